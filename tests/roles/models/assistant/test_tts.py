"""The voice, for real."""

from __future__ import annotations

import numpy as np
import pytest

from omniflow.testing import run_interface
from omniflow.values import Audio
from omniflow_roles.media.pcm import parse_mime_type, to_mono
from omniflow_roles.models.assistant.tts import Tts

pytestmark = pytest.mark.assistant
SENTENCE = "Music is a form of creative expression."


async def speak(tts: Tts, sentence: str) -> list[Audio]:
    run = await run_interface(tts, sentence=sentence)
    return [audio for outputs in run.yields if isinstance(audio := outputs["audio"], Audio)]


async def test_tts_speech_is_heard_and_lasts_as_long_as_a_person_would_take(tts: Tts) -> None:
    audio = await speak(tts, SENTENCE)
    format = parse_mime_type(audio[0].mime_type)
    assert (format.rate_hz, format.channels) == (22_050, 1)
    samples = to_mono(b"".join(piece.data for piece in audio), format)
    words_a_second = len(SENTENCE.split()) / (len(samples) / format.rate_hz)
    assert 1.5 < words_a_second < 4
    assert float(np.sqrt(np.mean(samples**2))) > 0.03
    assert float(np.max(np.abs(samples))) <= 1.0


async def test_tts_same_sentence_gives_the_same_samples(tts: Tts) -> None:
    first, second = [b"".join(piece.data for piece in await speak(tts, SENTENCE)) for _ in range(2)]
    assert first == second


async def test_tts_ends_with_a_pause(tts: Tts) -> None:
    last = (await speak(tts, SENTENCE))[-1]
    assert not last.is_partial
    assert not any(last.data)


async def test_tts_brackets_are_not_taken_for_phonemes(tts: Tts) -> None:
    bracketed = await speak(tts, "Say [[ h ]] now.")
    assert b"".join(p.data for p in bracketed) == b"".join(p.data for p in await speak(tts, "Say  h  now."))


async def test_tts_of_marks_alone_is_silent(tts: Tts) -> None:
    audio = await speak(tts, "")
    assert audio == []
