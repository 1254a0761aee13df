"""The parser: takes a question that is typed or spoken, refuses what is neither, and routes it.

Everything is decided from the text's length and the file's header: nothing is decoded, copied or allocated for input that
will be refused. Errors name the field of the call that is to blame.
"""

from __future__ import annotations

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import Audio, ValueType
from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_roles.media.error import MediaError
from omniflow_roles.media.wav import Wav, parse_wav

TEXT_PATH = "call.inputs[text]"
AUDIO_PATH = "call.inputs[audio]"

MIN_RATE_HZ = 8_000
MAX_RATE_HZ = 48_000
MAX_CHANNELS = 2
MAX_DURATION_S = 60.0
"""A question, not a lecture; at 48 kHz stereo this is 11.5 MB."""

_WAV_TYPES = frozenset({"", "audio/wav", "audio/wave", "audio/x-wav", "audio/vnd.wave"})


class Parser(Interface):
    """Typed text or a WAV file -> the same value on the output of its kind; the other output is skipped.

    Raises MISSING_INPUT for neither, INVALID_FIELD for both or a blank text, INVALID_MEDIA for audio that is not one whole
    WAV file of 16-bit PCM, mono or stereo, 8 to 48 kHz, at most 60 s.
    """

    name = "assistant.parser"
    inputs = groups(
        text=Field(ValueType.TEXT, is_optional=True),
        audio=Field(ValueType.AUDIO, is_optional=True),
    )
    outputs = {"text": Field(ValueType.TEXT), "audio": Field(ValueType.AUDIO)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        if "text" in inputs and "audio" in inputs:
            raise invalid_field(AUDIO_PATH, f"give either text or audio, not both ({TEXT_PATH} is set too)")
        if "text" in inputs:
            return {"text": _checked_text(inputs)}
        if "audio" in inputs:
            return {"audio": _checked_audio(inputs)}
        raise invalid_field(
            TEXT_PATH, f"give a question: text, or a WAV file in {AUDIO_PATH}", reason=Reason.MISSING_INPUT
        )


def _checked_text(inputs: Inputs) -> str:
    text = str(inputs["text"])
    if not text.strip():
        raise invalid_field(TEXT_PATH, "the question is blank")
    return text


def _checked_audio(inputs: Inputs) -> Audio:
    pieces = inputs.all("audio")
    audio = pieces[0]
    assert isinstance(audio, Audio)
    if len(pieces) > 1 or audio.is_partial:
        raise _bad_audio("the recording must come as one whole file, not in pieces")
    if audio.mime_type.partition(";")[0].strip().lower() not in _WAV_TYPES:
        raise _bad_audio(f"the type is {audio.mime_type[:64]!r}; only audio/wav is understood")
    try:
        _check_limits(parse_wav(audio.data))
    except MediaError as error:
        raise _bad_audio(str(error)) from None
    return audio


def _check_limits(wav: Wav) -> None:
    if not MIN_RATE_HZ <= wav.format.rate_hz <= MAX_RATE_HZ:
        raise MediaError(f"the sample rate is {wav.format.rate_hz} Hz; {MIN_RATE_HZ} to {MAX_RATE_HZ} are understood")
    if wav.format.channels > MAX_CHANNELS:
        raise MediaError(f"the recording has {wav.format.channels} channels; mono and stereo are understood")
    if wav.duration_s > MAX_DURATION_S:
        raise MediaError(f"the recording lasts {wav.duration_s:.1f} s; {MAX_DURATION_S:.0f} s are the limit")


def _bad_audio(description: str) -> OmniFlowError:
    return invalid_field(AUDIO_PATH, description, reason=Reason.INVALID_MEDIA)
