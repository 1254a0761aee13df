"""Reading and writing WAV files."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Callable

import pytest

from omniflow_roles.media.error import MediaError
from omniflow_roles.media.pcm import PcmFormat
from omniflow_roles.media.wav import parse_wav, write_wav

MONO = PcmFormat(rate_hz=16_000, channels=1)
SAMPLES = struct.pack("<4h", 1, -2, 300, -32768)


def chunk(name: bytes, payload: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(payload) if size is None else size) + payload + b"\0" * (len(payload) % 2)


def riff(*chunks: bytes) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def fmt(tag: int = 1, channels: int = 1, rate_hz: int = 16_000, block: int = 2, bits: int = 16) -> bytes:
    return chunk(b"fmt ", struct.pack("<HHIIHH", tag, channels, rate_hz, rate_hz * block, block, bits))


def test_wav_written_is_read_by_the_standard_library() -> None:
    format = PcmFormat(rate_hz=22_050, channels=2)
    with wave.open(io.BytesIO(write_wav(SAMPLES, format))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (22_050, 2, 2)
        assert file.readframes(-1) == SAMPLES


def test_wav_of_the_standard_library_is_read() -> None:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(SAMPLES)
    parsed = parse_wav(written.getvalue())
    assert parsed.format == MONO
    assert bytes(parsed.samples) == SAMPLES
    assert parsed.duration_s == 4 / 16_000


def test_wav_samples_are_a_view_of_the_callers_buffer() -> None:
    data = bytearray(write_wav(SAMPLES, MONO))
    parsed = parse_wav(data)
    data[-8:] = bytes(8)
    assert bytes(parsed.samples) == bytes(8)


def test_wav_other_chunks_are_passed_over_with_their_padding() -> None:
    data = riff(chunk(b"LIST", b"odd"), fmt(), chunk(b"fact", b"1234"), chunk(b"data", SAMPLES), chunk(b"id3 ", b"x"))
    assert bytes(parse_wav(data).samples) == SAMPLES


def test_wav_extensible_pcm_is_read() -> None:
    extension = struct.pack("<HHI", 22, 16, 4) + bytes.fromhex("0100000000001000800000aa00389b71")
    format = struct.pack("<HHIIHH", 0xFFFE, 1, 16_000, 32_000, 2, 16) + extension
    assert parse_wav(riff(chunk(b"fmt ", format), chunk(b"data", SAMPLES))).format == MONO


def test_wav_of_unknown_length_lasts_until_the_end() -> None:
    assert bytes(parse_wav(riff(fmt(), chunk(b"data", SAMPLES, size=0xFFFFFFFF))).samples) == SAMPLES


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no WAV file"),
        (b"ID3\x04 an mp3 file of some length", "no WAV file"),
        (b"RIFF\0\0\0\0AVI " + bytes(40), "no WAV file"),
        (riff(fmt()), "no data chunk"),
        (riff(chunk(b"data", SAMPLES)), "before their format"),
        (riff(fmt(), chunk(b"data", b"")), "data chunk is empty"),
        (
            riff(fmt(), chunk(b"data", SAMPLES, size=1_000_000)),
            "cut short: a chunk announces 1000000 bytes and 8 are left",
        ),
        (riff(chunk(b"LIST", b"", size=0xFFFFFFFF)), "cut short"),
        (riff(fmt(), chunk(b"data", SAMPLES[:7])), "middle of a frame"),
        (riff(chunk(b"fmt ", b"\1\0"), chunk(b"data", SAMPLES)), "shorter than 16 bytes"),
        (riff(fmt(tag=3, bits=32, block=4), chunk(b"data", SAMPLES)), r"not 16-bit PCM \(format 0x0003, 32 bits\)"),
        (riff(fmt(tag=0xFFFE), chunk(b"data", SAMPLES)), "not 16-bit PCM"),
        (riff(fmt(bits=8, block=1), chunk(b"data", SAMPLES)), "not 16-bit PCM"),
        (riff(fmt(channels=0, block=0), chunk(b"data", SAMPLES)), "contradicts itself"),
        (riff(fmt(rate_hz=0), chunk(b"data", SAMPLES)), "contradicts itself"),
        (riff(fmt(channels=2, block=2), chunk(b"data", SAMPLES)), "contradicts itself"),
    ],
)
def test_wav_that_cannot_be_read_says_why(data: bytes, says: str) -> None:
    with pytest.raises(MediaError, match=says):
        parse_wav(data)


@pytest.mark.parametrize("damage", [lambda data, at: data[:at], lambda data, at: data[:at] + b"\xff" + data[at + 1 :]])
def test_wav_damaged_anywhere_is_read_or_refused(damage: Callable[[bytes, int], bytes]) -> None:
    whole = write_wav(SAMPLES, MONO)
    for at in range(len(whole)):
        try:
            parse_wav(damage(whole, at))
        except MediaError:
            continue
