"""How speech is cut into values, with a scripted voice in place of the real one."""

from __future__ import annotations

from collections.abc import Iterator

from omniflow.interface import Context, Inputs
from omniflow.testing import run_interface
from omniflow.values import Audio
from omniflow_roles.media.pcm import PcmFormat
from omniflow_roles.models.assistant.tts import Tts

FORMAT = PcmFormat(rate_hz=22_050, channels=1)


class ScriptedVoice:
    """Says one block of samples for each word."""

    format = FORMAT

    def __init__(self, samples_a_word: int) -> None:
        self._block = bytes(range(2)) * samples_a_word
        self.spoken = 0

    def speak(self, text: str) -> Iterator[bytes]:
        for _ in text.split():
            self.spoken += 1
            yield self._block


def tts_with(voice: ScriptedVoice) -> Tts:
    tts = Tts()
    tts._voice = voice  # type: ignore[assignment]
    return tts


async def spoken(text: str, samples_a_word: int) -> list[Audio]:
    run = await run_interface(tts_with(ScriptedVoice(samples_a_word)), sentence=text)
    return [audio for outputs in run.yields if isinstance(audio := outputs["audio"], Audio)]


async def test_speech_comes_in_pieces_that_fit_into_a_message() -> None:
    audio = await spoken("long", 50_000)
    assert [len(piece.data) for piece in audio] == [44_100, 44_100, 11_800, 11_024]
    assert [piece.timestamp_s for piece in audio] == [0.0, 1.0, 2.0, 50_000 / 22_050]
    assert all(len(piece.data) < 65_536 for piece in audio)


async def test_speech_pieces_all_say_their_format_and_the_last_is_the_pause() -> None:
    audio = await spoken("two words", 1_000)
    assert {piece.mime_type for piece in audio} == {"audio/L16;rate=22050;channels=1"}
    assert [piece.is_partial for piece in audio] == [True, True, False]
    assert [piece.timestamp_s for piece in audio] == [0.0, 1_000 / 22_050, 2_000 / 22_050]
    assert not any(audio[-1].data)


async def test_speech_of_nothing_is_nothing() -> None:
    assert await spoken("", 10) == []


def test_speech_stops_between_blocks_when_cancelled() -> None:
    voice = ScriptedVoice(10)
    context = Context(call_id="c", activation_id=1, node="tts")
    running = tts_with(voice).run(Inputs("main", {"sentence": ("one two three",)}), context)
    next(running)
    context.cancelled.set()
    assert list(running) == []
    assert voice.spoken == 2
