"""Speech to text with pocketsphinx and the US-English model that its wheel carries. Imported by the ASR role alone.

The utterance is fed in blocks of half a second, so a cancel is seen after one of them. The live estimate of the channel's
mean spectrum is put back before every utterance: without it a result depends on who spoke before. (Normalising over the
whole utterance at once is no better, 83 % against 83 % of words, is worse for quiet recordings, and cannot be stopped.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pocketsphinx import Decoder

from omniflow_roles.media.pcm import Samples, from_mono
from omniflow_roles.media.resample import resample

RATE_HZ = 16_000
_BLOCK_BYTES = RATE_HZ  # half a second of 16-bit samples


class Recogniser:
    """A decoder; loads in about 0.4 s. Methods may be called from any thread, one utterance is decoded at a time."""

    def __init__(self) -> None:
        self._decoder = Decoder(loglevel="FATAL", samprate=float(RATE_HZ))
        self._first_mean = self._decoder.get_cmn(False)
        self._one_at_a_time = threading.Lock()

    def transcribe(
        self,
        samples: Samples,
        rate_hz: int,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
        report: Callable[[float], None] = lambda done_s: None,
    ) -> str:
        """Words in lower case, "" for silence or when cancelled.

        samples: [frames] float32 at `rate_hz`. report: called with the seconds that have been listened to.
        """
        pcm = from_mono(resample(samples, rate_hz, RATE_HZ))
        with self._one_at_a_time:
            self._decoder.set_cmn(self._first_mean)
            self._decoder.start_utt()
            try:
                for start in range(0, len(pcm), _BLOCK_BYTES):
                    if is_cancelled():
                        return ""
                    self._decoder.process_raw(pcm[start : start + _BLOCK_BYTES], False, False)
                    report(min(start + _BLOCK_BYTES, len(pcm)) / (2 * RATE_HZ))
            finally:
                self._decoder.end_utt()
            found = self._decoder.hyp()
            return str(found.hypstr) if found is not None else ""
