"""Gathering an answer from events, its counters and its WAV file."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import pytest

from omniflow.events import CallUsage, Event, Finished, FinishReason, Output, Progress
from omniflow.values import Audio, Json, Tokens, Value
from omniflow_core.errors import OmniFlowError
from omniflow_server.cli.answer import Answer, pcm_of

L16 = "audio/L16;rate=8000;channels=1"


def output(field: str, value: Value) -> Event:
    return Output(field, value, "node", (), 1)


def gathered(*events: Event) -> Answer:
    """An answer whose events come a second apart; asked at 100 s."""
    answer = Answer(asked_s=100.0)
    for second, event in enumerate(events, start=101):
        answer.take(event, float(second))
    return answer


def wav(samples: bytes, rate_hz: int = 8000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate_hz)
        writer.writeframes(samples)
    return file.getvalue()


def test_answer_joins_tokens_and_keeps_the_transcript_apart() -> None:
    answer = gathered(
        output("transcript", "why is the sky blue"),
        output("tokens", Tokens((1,), "It ")),
        output("tokens", Tokens((2, 3), "scatters.")),
        output("extra", Json({"ignored": True})),
    )
    assert (answer.transcript, answer.text, answer.tokens) == ("why is the sky blue", "It scatters.", 3)


def test_answer_measures_from_the_question() -> None:
    answer = gathered(
        output("tokens", Tokens((1,), "a")),
        output("audio", Audio(b"\0\0", L16)),
        output("tokens", Tokens((2,), "b")),
        output("tokens", Tokens((3,), "c")),
        Finished(FinishReason.LENGTH, CallUsage(input_tokens=7, output_tokens=3), (), 5),
    )
    assert answer.tokens_per_s == pytest.approx(2 / 3)
    assert answer.summary() == (
        "7 tokens in, 3 out, first token after 1.00 s, 0.7 tokens/s, first speech after 2.00 s, "
        "5.00 s in all, cut at the length limit"
    )


def test_answer_without_tokens_has_no_rate() -> None:
    assert gathered(Progress("asr", 1, 2, "listening", 1)).summary() == "0 tokens in, 0 out"


def test_answer_writes_the_speech_of_all_pieces(tmp_path: Path) -> None:
    answer = gathered(
        output("audio", Audio(b"\1\0" * 4000, L16)), output("audio", Audio(wav(b"\2\0" * 4000), "audio/wav"))
    )
    answer.write_wav(tmp_path / "answer.wav")
    assert answer.audio_s == 1.0
    with wave.open(str(tmp_path / "answer.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (8000, 1, 2)
        assert file.readframes(-1) == b"\1\0" * 4000 + b"\2\0" * 4000


def test_answer_without_speech_writes_no_file(tmp_path: Path) -> None:
    with pytest.raises(OmniFlowError, match="has no speech to write"):
        gathered().write_wav(tmp_path / "answer.wav")
    assert list(tmp_path.iterdir()) == []


def test_answer_refuses_speech_whose_format_changes() -> None:
    with pytest.raises(OmniFlowError, match="changed from 8000 Hz, 1 channels to 16000 Hz"):
        gathered(output("audio", Audio(b"\0\0", L16)), output("audio", Audio(wav(b"\0\0", 16000), "audio/wav")))


def test_pcm_of_names_a_type_that_it_cannot_read() -> None:
    with pytest.raises(OmniFlowError, match="audio/ogg"):
        pcm_of(Audio(b"", "audio/ogg"))


def test_pcm_of_reads_the_parameters_of_raw_samples() -> None:
    pcm = pcm_of(Audio(b"\0" * 16, "audio/L16; channels=2; rate=4"))
    assert (pcm.rate_hz, pcm.channels, pcm.duration_s) == (4, 2, 1.0)
