"""Raw PCM: signed 16-bit little-endian samples, channels interleaved, and the MIME type that says so.

    audio/L16;rate=22050;channels=1      b"\\x00\\x00\\x01\\x00..."      one frame = one sample of every channel

Samples are little-endian, as `omniflow.values.Audio` says (RFC 2586's audio/L16 is big-endian; every codec and model
that we feed wants the machine's own order). numpy is imported by the functions that need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from omniflow.values import Buffer
from omniflow_roles.media.error import MediaError

if TYPE_CHECKING:
    import numpy as np

Samples: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
"""[frames] float32 in [-1, 1]."""

SAMPLE_SIZE_BYTES = 2
_FULL_SCALE = 32768.0
_ESSENCE = "audio/l16"


@dataclass(frozen=True, slots=True, kw_only=True)
class PcmFormat:
    """How raw samples are to be read."""

    rate_hz: int
    channels: int

    @property
    def frame_size_bytes(self) -> int:
        return SAMPLE_SIZE_BYTES * self.channels

    @property
    def mime_type(self) -> str:
        return f"audio/L16;rate={self.rate_hz};channels={self.channels}"

    def duration_s(self, size_bytes: int) -> float:
        """Playing time of that many bytes."""
        return size_bytes / self.frame_size_bytes / self.rate_hz


def parse_mime_type(mime_type: str) -> PcmFormat:
    """Format of an `audio/L16;rate=...;channels=...` type; one channel when it names none. Raises MediaError."""
    essence, *parameters = (part.strip() for part in mime_type.split(";"))
    if essence.lower() != _ESSENCE:
        raise MediaError(f"raw PCM is audio/L16;rate=...;channels=..., not {mime_type[:64]!r}")
    values = dict(parameter.lower().split("=", 1) for parameter in parameters if "=" in parameter)
    return PcmFormat(rate_hz=_number(values, "rate", None), channels=_number(values, "channels", 1))


def _number(values: dict[str, str], name: str, default: int | None) -> int:
    text = values.get(name, "" if default is None else str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise MediaError(f"audio/L16 needs {name}= with a positive whole number")
    return int(text)


def to_mono(data: Buffer, format: PcmFormat) -> Samples:
    """Samples of the only channel, or the mean of all channels. Raises MediaError when a frame is incomplete."""
    import numpy as np

    if memoryview(data).nbytes % format.frame_size_bytes:
        raise MediaError(f"the PCM data ends in the middle of a frame of {format.frame_size_bytes} bytes")
    frames = np.frombuffer(data, dtype="<i2").reshape(-1, format.channels)
    samples: Samples = frames.mean(axis=1, dtype=np.float32)
    samples /= np.float32(_FULL_SCALE)
    return samples


def from_mono(samples: Samples) -> bytes:
    """16-bit PCM of one channel; what is beyond full scale is clipped, never wrapped."""
    import numpy as np

    return bytes(np.clip(np.rint(samples * np.float32(_FULL_SCALE)), -32768, 32767).astype("<i2").data)
