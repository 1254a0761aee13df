"""What an answer consists of, gathered event by event. Pure: the time comes with the event.

transcript ─ what was heard     text ─ tokens and texts, joined     audio ─ 16-bit PCM, joined
"""

from __future__ import annotations

import io
import re
import wave
from dataclasses import dataclass, field
from pathlib import Path

from omniflow.events import CallUsage, Event, Finished, FinishReason, Output, Progress
from omniflow.values import Audio, Tokens
from omniflow_core.errors import OmniFlowError, Reason

_SAMPLE_BYTES = 2
TRANSCRIPT = "transcript"
"""The output that says what was understood of a spoken question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pcm:
    """16-bit little-endian PCM."""

    rate_hz: int
    channels: int
    data: bytes = field(repr=False)

    @property
    def duration_s(self) -> float:
        return len(self.data) / (self.rate_hz * self.channels * _SAMPLE_BYTES)


def pcm_of(audio: Audio) -> Pcm:
    """The samples of an audio value: `audio/L16;rate=...;channels=...` or `audio/wav`. Raises OmniFlowError
    INVALID_OUTPUT for another kind."""
    kind, *parameters = [part.strip() for part in audio.mime_type.split(";")]
    if kind == "audio/L16":
        given = dict(re.findall(r"(\w+)=(\d+)", ";".join(parameters)))
        return Pcm(rate_hz=int(given["rate"]), channels=int(given.get("channels", 1)), data=bytes(audio.data))
    if kind == "audio/wav":
        with wave.open(io.BytesIO(bytes(audio.data))) as file:
            return Pcm(rate_hz=file.getframerate(), channels=file.getnchannels(), data=file.readframes(-1))
    raise OmniFlowError(Reason.INVALID_OUTPUT, f"cannot play audio of the type {audio.mime_type!r}")


@dataclass(slots=True, kw_only=True)
class Answer:
    """Everything that has come of an answer. Times are those that `take` was given, in seconds of any one clock."""

    asked_s: float
    transcript: str = ""
    text: str = ""
    audio: bytearray = field(default_factory=bytearray)
    rate_hz: int = 0
    channels: int = 0
    tokens: int = 0
    progress: Progress | None = None
    usage: CallUsage = field(default_factory=CallUsage)
    reason: FinishReason = FinishReason.UNSPECIFIED
    first_token_s: float | None = None
    last_token_s: float | None = None
    first_audio_s: float | None = None
    ended_s: float | None = None

    def take(self, event: Event, now_s: float) -> None:
        """Adds an event."""
        if isinstance(event, Output):
            self._take_output(event, now_s)
        elif isinstance(event, Progress):
            self.progress = event
        elif isinstance(event, Finished):
            self.usage, self.reason, self.ended_s = event.usage, event.reason, now_s

    @property
    def audio_s(self) -> float:
        """Duration of the speech."""
        return len(self.audio) / (self.rate_hz * self.channels * _SAMPLE_BYTES) if self.rate_hz else 0.0

    @property
    def tokens_per_s(self) -> float | None:
        """Rate after the first token; None for fewer than two."""
        if self.first_token_s is None or self.last_token_s is None or self.last_token_s <= self.first_token_s:
            return None
        return (self.tokens - 1) / (self.last_token_s - self.first_token_s)

    def summary(self) -> str:
        """Counters and times in a line."""
        parts = [f"{self.usage.input_tokens} tokens in, {self.usage.output_tokens or self.tokens} out"]
        parts += [f"first token after {self.first_token_s - self.asked_s:.2f} s"] if self.first_token_s else []
        parts += [f"{self.tokens_per_s:.1f} tokens/s"] if self.tokens_per_s else []
        parts += [f"first speech after {self.first_audio_s - self.asked_s:.2f} s"] if self.first_audio_s else []
        parts += [f"{self.ended_s - self.asked_s:.2f} s in all"] if self.ended_s else []
        parts += ["cut at the length limit"] if self.reason is FinishReason.LENGTH else []
        return ", ".join(parts)

    def write_wav(self, path: Path) -> None:
        """The speech as a WAV file. Raises OmniFlowError INVALID_OUTPUT when there is none."""
        if not self.audio:
            raise OmniFlowError(Reason.INVALID_OUTPUT, f"the answer has no speech to write to {path}")
        with wave.open(str(path), "wb") as file:
            file.setnchannels(self.channels)
            file.setsampwidth(_SAMPLE_BYTES)
            file.setframerate(self.rate_hz)
            file.writeframes(self.audio)

    def _take_output(self, output: Output, now_s: float) -> None:
        match output.value:
            case str() as text if output.field == TRANSCRIPT:
                self.transcript += text
            case str() as text:
                self._take_text(text, 1, now_s)
            case Tokens() as tokens:
                self._take_text(tokens.text, len(tokens.ids), now_s)
            case Audio() as audio:
                self._take_audio(pcm_of(audio), now_s)
            case _:
                pass  # other values have no place in a conversation

    def _take_text(self, text: str, tokens: int, now_s: float) -> None:
        self.text += text
        self.tokens += tokens
        self.first_token_s = now_s if self.first_token_s is None else self.first_token_s
        self.last_token_s = now_s

    def _take_audio(self, pcm: Pcm, now_s: float) -> None:
        if self.rate_hz and (pcm.rate_hz, pcm.channels) != (self.rate_hz, self.channels):
            raise OmniFlowError(
                Reason.INVALID_OUTPUT,
                f"the speech changed from {self.rate_hz} Hz, {self.channels} channels "
                f"to {pcm.rate_hz} Hz, {pcm.channels} channels",
            )
        self.rate_hz, self.channels = pcm.rate_hz, pcm.channels
        self.audio += pcm.data
        self.first_audio_s = now_s if self.first_audio_s is None else self.first_audio_s
