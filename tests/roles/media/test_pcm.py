"""Raw samples and the MIME type that describes them."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from omniflow_roles.media.error import MediaError
from omniflow_roles.media.pcm import PcmFormat, from_mono, parse_mime_type, to_mono

MONO = PcmFormat(rate_hz=16_000, channels=1)


def test_format_says_what_bytes_mean() -> None:
    stereo = PcmFormat(rate_hz=8_000, channels=2)
    assert stereo.mime_type == "audio/L16;rate=8000;channels=2"
    assert stereo.frame_size_bytes == 4
    assert stereo.duration_s(32_000) == 1.0


@pytest.mark.parametrize(
    ("mime_type", "format"),
    [
        (MONO.mime_type, MONO),
        ("audio/l16; channels=2; rate=48000", PcmFormat(rate_hz=48_000, channels=2)),
        ("audio/L16;rate=16000", MONO),
    ],
)
def test_mime_type_is_read(mime_type: str, format: PcmFormat) -> None:
    assert parse_mime_type(mime_type) == format


@pytest.mark.parametrize(
    "mime_type",
    ["", "audio/wav", "audio/L16", "audio/L16;rate=0", "audio/L16;rate=1e3", "audio/L16;rate=8000;channels=-1"],
)
def test_mime_type_that_describes_no_samples_is_refused(mime_type: str) -> None:
    with pytest.raises(MediaError):
        parse_mime_type(mime_type)


def test_to_mono_scales_to_one() -> None:
    assert to_mono(struct.pack("<3h", 0, 16384, -32768), MONO).tolist() == [0.0, 0.5, -1.0]


def test_to_mono_takes_the_mean_of_the_channels() -> None:
    samples = to_mono(struct.pack("<4h", 16384, 0, -16384, 16384), PcmFormat(rate_hz=8_000, channels=2))
    assert samples.tolist() == [0.25, 0.0]
    assert samples.dtype == np.float32


def test_to_mono_refuses_half_a_frame() -> None:
    with pytest.raises(MediaError, match="middle of a frame"):
        to_mono(bytes(3), MONO)


def test_from_mono_is_the_inverse_and_clips() -> None:
    pcm = struct.pack("<4h", 0, 1, -32768, 32767)
    assert from_mono(to_mono(pcm, MONO)) == pcm
    assert from_mono(np.array([2.0, -2.0], dtype=np.float32)) == struct.pack("<2h", 32767, -32768)
