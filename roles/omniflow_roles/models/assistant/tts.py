"""Speech synthesis: a sentence to its speech, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import Audio, ValueType
from omniflow_roles.media.pcm import PcmFormat

if TYPE_CHECKING:
    from omniflow_roles.models.assistant.voice import Voice

_PIECE_BYTES = 44_100
"""A second at 22,050 Hz, and less than the 64 KiB above which a value takes the slower way round the stream."""
_PAUSE_S = 0.25
"""Silence after a sentence; the next one comes without any."""


class Tts(Interface):
    """Sentence -> `audio/L16` pieces of at most a second, in order; nothing for a text without a sound.

    `timestamp_s` counts from the beginning of the sentence. The last piece, the only one that is not partial, is the pause
    after it.
    """

    name = "assistant.tts"
    inputs = groups(sentence=Field(ValueType.TEXT))
    outputs = {"audio": Field(ValueType.AUDIO)}

    def setup(self) -> None:
        """Load the voice: half a second."""
        from omniflow_roles.models.assistant.voice import Voice

        self._voice: Voice = Voice()

    def run(self, inputs: Inputs, context: Context) -> Iterator[Outputs]:
        format, size_bytes = self._voice.format, 0
        for block in self._voice.speak(str(inputs["sentence"])):
            if context.is_cancelled:
                return
            for piece in pieces(block, format, start_bytes=size_bytes):
                yield {"audio": piece}
            size_bytes += len(block)
        if size_bytes:
            yield {"audio": _pause(format, start_bytes=size_bytes)}


def pieces(pcm: bytes, format: PcmFormat, *, start_bytes: int) -> Iterator[Audio]:
    """A block of 16-bit PCM, `start_bytes` into its item, in pieces that each fit into a message; none is copied."""
    size_bytes = _PIECE_BYTES // format.frame_size_bytes * format.frame_size_bytes
    view = memoryview(pcm)
    for start in range(0, len(pcm), size_bytes):
        yield Audio(
            view[start : start + size_bytes],
            mime_type=format.mime_type,
            timestamp_s=format.duration_s(start_bytes + start),
            is_partial=True,
        )


def _pause(format: PcmFormat, *, start_bytes: int) -> Audio:
    silence = bytes(round(_PAUSE_S * format.rate_hz) * format.frame_size_bytes)
    return Audio(silence, mime_type=format.mime_type, timestamp_s=format.duration_s(start_bytes))
