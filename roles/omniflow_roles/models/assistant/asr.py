"""Speech recognition: a recording to its transcript."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import Audio, ValueType
from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.media.error import MediaError
from omniflow_roles.media.pcm import to_mono
from omniflow_roles.media.wav import parse_wav
from omniflow_roles.models.assistant.parser import AUDIO_PATH

if TYPE_CHECKING:
    from omniflow_roles.models.assistant.recogniser import Recogniser


class Asr(Interface):
    """WAV file -> what is said in it, in US English. Raises INVALID_MEDIA for no WAV file and for one without speech."""

    name = "assistant.asr"
    inputs = groups(audio=Field(ValueType.AUDIO))
    outputs = {"transcript": Field(ValueType.TEXT)}

    def setup(self) -> None:
        """Load the acoustic model, the dictionary and the language model: half a second."""
        from omniflow_roles.models.assistant.recogniser import Recogniser

        self._recogniser: Recogniser = Recogniser()

    def run(self, inputs: Inputs, context: Context) -> Outputs:
        audio = inputs["audio"]
        assert isinstance(audio, Audio)
        try:
            wav = parse_wav(audio.data)  # again, because a role takes its inputs from graphs that it does not know
        except MediaError as error:
            raise invalid_field(AUDIO_PATH, str(error), reason=Reason.INVALID_MEDIA) from None
        total_ms = round(wav.duration_s * 1000)
        transcript = self._recogniser.transcribe(
            to_mono(wav.samples, wav.format),
            wav.format.rate_hz,
            is_cancelled=lambda: context.is_cancelled,
            report=lambda done_s: context.progress(round(done_s * 1000), total_ms, "listening (ms)"),
        )
        if context.is_cancelled:
            raise OmniFlowError(Reason.CALL_CANCELLED, "the call was cancelled while it was listened to")
        if not transcript:
            raise invalid_field(AUDIO_PATH, "no speech was recognised", reason=Reason.INVALID_MEDIA)
        return {"transcript": sentence_case(transcript)}


def sentence_case(transcript: str) -> str:
    """The recogniser's lower-case words as a person would write them; a model answers all in lower case otherwise."""
    return transcript[:1].upper() + re.sub(r"\bi\b", "I", transcript[1:])
