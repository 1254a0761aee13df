"""WAV files: reading the header of 16-bit PCM without copying the samples, and writing one.

    "RIFF" size "WAVE"  { id size payload [pad] }*        every size little-endian, payloads padded to even lengths
                          "fmt "  tag channels rate byte_rate block_align bits [extension]
                          "data"  samples

Of the chunks only "fmt " and "data" matter; the rest (LIST, bext, ...) is passed over. Everything is judged from the
header, so a hostile file costs a few comparisons and allocates nothing. Other sample formats (float, A-law, 24 bit) and
RF64 are refused by name: recorders that make them can be told to make 16-bit PCM, and a silent misreading cannot be told.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from omniflow.values import Buffer
from omniflow_roles.media.error import MediaError
from omniflow_roles.media.pcm import PcmFormat

_PCM = 0x0001
_EXTENSIBLE = 0xFFFE
_PCM_SUBFORMAT = bytes.fromhex("0100000000001000800000aa00389b71")
_UNKNOWN_SIZE = 0xFFFFFFFF
"""What writers that cannot seek (a pipe) leave in the size of "data": it lasts until the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wav:
    """A parsed WAV file: its format, and a view of its samples in the caller's own buffer."""

    format: PcmFormat
    samples: memoryview = field(repr=False)

    @property
    def duration_s(self) -> float:
        return self.format.duration_s(self.samples.nbytes)


def parse_wav(data: Buffer) -> Wav:
    """Read a WAV file of 16-bit PCM. Raises MediaError that says what is wrong with it."""
    view = memoryview(data).cast("B")
    if bytes(view[:4]) != b"RIFF" or bytes(view[8:12]) != b"WAVE":
        raise MediaError("this is no WAV file: it does not begin with RIFF....WAVE")
    format: PcmFormat | None = None
    for name, payload in _chunks(view):
        if name == b"fmt ":
            format = _parse_format(payload)
        elif name == b"data":
            if format is None:
                raise MediaError("the WAV file has its samples before their format")
            return _checked(Wav(format=format, samples=payload))
    raise MediaError("the WAV file has no samples: there is no data chunk")


def write_wav(samples: Buffer, format: PcmFormat) -> bytes:
    """A WAV file around 16-bit PCM samples."""
    size = memoryview(samples).nbytes
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        36 + size,
        b"WAVE",
        b"fmt ",
        16,
        _PCM,
        format.channels,
        format.rate_hz,
        format.rate_hz * format.frame_size_bytes,
        format.frame_size_bytes,
        16,
        b"data",
        size,
    )
    return header + bytes(samples)


def _chunks(view: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    position = 12
    while position + 8 <= view.nbytes:
        name, size = struct.unpack_from("<4sI", view, position)
        position += 8
        rest = view.nbytes - position
        if name == b"data" and size == _UNKNOWN_SIZE:
            size = rest
        if size > rest:
            raise MediaError(f"the WAV file is cut short: a chunk announces {size} bytes and {rest} are left")
        yield name, view[position : position + size]
        position += size + size % 2


def _parse_format(chunk: memoryview) -> PcmFormat:
    if chunk.nbytes < 16:
        raise MediaError("the WAV file's format chunk is shorter than 16 bytes")
    tag, channels, rate_hz, _, frame_size_bytes, bits = struct.unpack_from("<HHIIHH", chunk)
    if tag == _EXTENSIBLE and chunk[24:40] == _PCM_SUBFORMAT:
        tag = _PCM
    if tag != _PCM or bits != 16:
        raise MediaError(f"the WAV file is not 16-bit PCM (format {tag:#06x}, {bits} bits)")
    if not channels or not rate_hz or frame_size_bytes != 2 * channels:
        raise MediaError("the WAV file's format chunk contradicts itself")
    return PcmFormat(rate_hz=rate_hz, channels=channels)


def _checked(wav: Wav) -> Wav:
    if not wav.samples.nbytes:
        raise MediaError("the WAV file has no samples: its data chunk is empty")
    if wav.samples.nbytes % wav.format.frame_size_bytes:
        raise MediaError("the WAV file's samples end in the middle of a frame")
    return wav
