"""The demo's promise: what the assistant says is understood by another machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from omniflow.interface import Sampling
from omniflow.testing import run_interface
from omniflow.values import Audio
from omniflow_roles.media.wav import parse_wav, write_wav
from omniflow_roles.models.assistant import tools
from omniflow_roles.models.assistant.asr import Asr
from omniflow_roles.models.assistant.llm import Llm
from omniflow_roles.models.assistant.prompts import SPOKEN_QUESTION, TYPED_QUESTION
from omniflow_roles.models.assistant.readback import share_read_back
from omniflow_roles.models.assistant.splitter import Splitter
from omniflow_roles.models.assistant.tts import Tts

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(300)]

LEAST_SHARE = 0.65
"""The demo asks for 0.6."""


async def speak(tts: Tts, passages: Sequence[str]) -> bytes:
    """A WAV file of an answer, made as the graph makes it."""
    pcm = b""
    for passage in passages:
        for split in (await run_interface(Splitter, passage=passage)).yields:
            spoken = await run_interface(tts, sentence=split["sentence"])
            pcm += b"".join(audio.data for y in spoken.yields if isinstance(audio := y["audio"], Audio))
    return write_wav(pcm, tts._voice.format)


@pytest.mark.parametrize("is_spoken", [False, True])
async def test_spoken_answer_is_read_back(llm: Llm, asr: Asr, tts: Tts, is_spoken: bool) -> None:
    if is_spoken:
        question = Audio(tools.say(SPOKEN_QUESTION), mime_type="audio/wav")
        inputs = {"transcript": (await run_interface(asr, audio=question)).text("transcript")}
    else:
        inputs = {"text": TYPED_QUESTION}
    answer = await run_interface(llm, inputs, sampling=Sampling(temperature=0.0))
    passages = [str(outputs["passage"]) for outputs in answer.yields if "passage" in outputs]
    assert answer.finish_reason == "stop"
    assert len(passages) > 1
    heard = tools.hear(await speak(tts, passages))
    assert share_read_back("".join(passages), heard) >= LEAST_SHARE, heard


def test_tools_speak_and_listen(tmp_path: Path) -> None:
    file = str(tmp_path / "question.wav")
    assert tool("say", SPOKEN_QUESTION, file)["duration_s"] == round(parse_wav(Path(file).read_bytes()).duration_s, 3)
    assert tool("hear", file) == {"heard": "why is water important"}
    assert tool("score", file, "Why is fire important?") == {"share": 0.75, "heard": "why is water important"}


def test_tools_say_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    file = tmp_path / "x.wav"
    file.write_bytes(b"nothing")
    result = run_tool("hear", str(file))
    assert result.returncode == 1
    assert result.stderr.strip().endswith("this is no WAV file: it does not begin with RIFF....WAVE")


def run_tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "omniflow_roles.models.assistant.tools", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def tool(*arguments: str) -> dict[str, object]:
    result = run_tool(*arguments)
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))
