"""The recogniser, on speech of our own voice."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from omniflow.testing import run_interface
from omniflow.values import Audio
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.media.pcm import PcmFormat, Samples, from_mono, to_mono
from omniflow_roles.media.resample import resample
from omniflow_roles.media.wav import write_wav
from omniflow_roles.models.assistant.asr import Asr
from omniflow_roles.models.assistant.prompts import SPOKEN_QUESTION
from omniflow_roles.models.assistant.tts import Tts

pytestmark = pytest.mark.assistant
HEARD = SPOKEN_QUESTION.rstrip("?")


@pytest.fixture(scope="module")
def question(tts: Tts) -> Samples:
    """The spoken question, 22,050 Hz."""
    return to_mono(b"".join(tts._voice.speak(SPOKEN_QUESTION)), tts._voice.format)


def recording(samples: Samples, rate_hz: int, channels: int = 1) -> Audio:
    pcm = from_mono(np.repeat(resample(samples, 22_050, rate_hz), channels))
    return Audio(write_wav(pcm, PcmFormat(rate_hz=rate_hz, channels=channels)), mime_type="audio/wav")


@pytest.mark.parametrize(("rate_hz", "channels"), [(22_050, 1), (16_000, 1), (44_100, 2), (48_000, 1)])
async def test_asr_understands_the_question(asr: Asr, question: Samples, rate_hz: int, channels: int) -> None:
    run = await run_interface(asr, audio=recording(question, rate_hz, channels))
    assert run.text("transcript") == HEARD
    assert run.progress[-1][0] == run.progress[-1][1]


async def test_asr_understands_a_quiet_recording_with_silence_around_it(asr: Asr, question: Samples) -> None:
    run = await run_interface(asr, audio=recording(np.pad(question * np.float32(0.2), (11_025, 11_025)), 16_000))
    assert run.text("transcript") == HEARD


async def test_asr_result_does_not_depend_on_what_was_heard_before(asr: Asr, question: Samples) -> None:
    noise = np.random.default_rng(3).standard_normal(66_150).astype(np.float32) * np.float32(0.3)
    asr._recogniser.transcribe(noise, 22_050)
    assert (await run_interface(asr, audio=recording(question, 22_050))).text("transcript") == HEARD


async def test_asr_refuses_silence(asr: Asr) -> None:
    with pytest.raises(OmniFlowError) as caught:
        await run_interface(asr, audio=recording(np.zeros(22_050, dtype=np.float32), 16_000))
    assert (caught.value.reason, caught.value.violations[0].field) == (Reason.INVALID_MEDIA, "call.inputs[audio]")


async def test_asr_refuses_what_is_no_wav(asr: Asr) -> None:
    with pytest.raises(OmniFlowError) as caught:
        await run_interface(asr, audio=Audio(b"OggS", mime_type="audio/wav"))
    assert caught.value.reason is Reason.INVALID_MEDIA


def test_asr_cancelled_listens_no_further(asr: Asr, question: Samples) -> None:
    cancelled, heard_s = threading.Event(), []

    def report(done_s: float) -> None:
        heard_s.append(done_s)
        cancelled.set()

    text = asr._recogniser.transcribe(np.tile(question, 10), 22_050, is_cancelled=cancelled.is_set, report=report)
    assert (text, heard_s) == ("", [0.5])
