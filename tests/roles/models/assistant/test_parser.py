"""What the parser lets through, and what it says of the rest. No engine is needed."""

from __future__ import annotations

import pytest

from omniflow.testing import run_interface
from omniflow.values import Audio
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.media.pcm import PcmFormat
from omniflow_roles.media.wav import write_wav
from omniflow_roles.models.assistant.parser import Parser


def recording(*, rate_hz: int = 16_000, channels: int = 1, duration_s: float = 0.1) -> bytes:
    format = PcmFormat(rate_hz=rate_hz, channels=channels)
    return write_wav(bytes(round(rate_hz * duration_s) * format.frame_size_bytes), format)


async def refused(**fields: str | Audio | tuple[Audio, ...]) -> OmniFlowError:
    with pytest.raises(OmniFlowError) as caught:
        await run_interface(Parser, **fields)
    return caught.value


async def test_parser_passes_text_on() -> None:
    run = await run_interface(Parser, text="Why?")
    assert run.yields == ({"text": "Why?"},)


@pytest.mark.parametrize("mime_type", ["audio/wav", "audio/x-wav", "AUDIO/WAV; codecs=1", ""])
@pytest.mark.parametrize(("rate_hz", "channels"), [(8_000, 1), (44_100, 2), (48_000, 1)])
async def test_parser_passes_a_recording_on_unchanged(mime_type: str, rate_hz: int, channels: int) -> None:
    audio = Audio(recording(rate_hz=rate_hz, channels=channels), mime_type=mime_type)
    run = await run_interface(Parser, audio=audio)
    assert list(run.yields[0]) == ["audio"]
    assert run.yields[0]["audio"] is audio


async def test_parser_refuses_neither() -> None:
    error = await refused()
    assert error.reason is Reason.MISSING_INPUT
    assert [violation.field for violation in error.violations] == ["call.inputs[text]"]


async def test_parser_refuses_both() -> None:
    error = await refused(text="Why?", audio=Audio(recording(), mime_type="audio/wav"))
    assert error.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in error.violations] == ["call.inputs[audio]"]
    assert "call.inputs[text]" in error.message


@pytest.mark.parametrize("text", ["", " \n\t"])
async def test_parser_refuses_a_blank_question(text: str) -> None:
    error = await refused(text=text)
    assert (error.reason, error.violations[0].field) == (Reason.INVALID_FIELD, "call.inputs[text]")


@pytest.mark.parametrize(
    ("audio", "says"),
    [
        (Audio(b"ID3 something else", mime_type="audio/wav"), "no WAV file"),
        (Audio(b"", mime_type="audio/wav"), "no WAV file"),
        (Audio(recording(), mime_type="audio/mpeg"), "'audio/mpeg'; only audio/wav"),
        (Audio(recording()[:-10], mime_type="audio/wav"), "cut short"),
        (Audio(recording(), mime_type="audio/wav", is_partial=True), "one whole file"),
        (Audio(recording(rate_hz=7_999), mime_type="audio/wav"), "7999 Hz"),
        (Audio(recording(rate_hz=96_000), mime_type="audio/wav"), "96000 Hz"),
        (Audio(recording(channels=3), mime_type="audio/wav"), "3 channels"),
        (Audio(recording(rate_hz=8_000, duration_s=60.1), mime_type="audio/wav"), "lasts 60.1 s; 60 s are the limit"),
    ],
)
async def test_parser_refuses_a_recording_that_it_cannot_use(audio: Audio, says: str) -> None:
    error = await refused(audio=audio)
    assert (error.reason, error.violations[0].field) == (Reason.INVALID_MEDIA, "call.inputs[audio]")
    assert says in error.message


async def test_parser_refuses_a_recording_in_pieces() -> None:
    half = Audio(recording(), mime_type="audio/wav")
    assert (await refused(audio=(half, half))).reason is Reason.INVALID_MEDIA
