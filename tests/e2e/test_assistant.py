"""The assistant with real weights: the demo, and what a caller sees when each of its roles is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

import omniflow
from omniflow_core.errors import OmniFlowError, Reason
from tests.server.launch.installed import Installed

pytestmark = [pytest.mark.assistant, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
GREEDY = omniflow.Sampling(temperature=0.0, max_tokens=96)
QUESTION = "Why is water important?"
RELOAD_S = 120.0
"""A role that was killed loads its model again, on a machine that may be busy."""


def test_demo_answers_a_typed_and_a_spoken_question(tmp_path: Path) -> None:
    out = tmp_path / "demo.wav"
    result = subprocess.run(
        [sys.executable, "-m", "omniflow_server", "demo", "--out", str(out)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    share = re.search(r"(\d+)% of the words of the answer were understood", result.stdout)
    assert share is not None, result.stdout
    assert int(share[1]) >= 60
    assert "heard: Why is water important" in result.stdout
    with wave.open(str(out)) as speech:
        assert speech.getnframes() / speech.getframerate() > 3.0


@pytest.fixture(scope="module")
def command() -> Iterator[Installed]:
    with tempfile.TemporaryDirectory(prefix="of-") as folder:
        installed = Installed(folder=Path(folder))
        try:
            installed("up", "assistant", "--detach", "--listen", "127.0.0.1:0")
            yield installed
        finally:
            installed("down")


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> omniflow.Audio:
    """A spoken question, made by the assistant's own voice."""
    return say(QUESTION, tmp_path_factory.mktemp("spoken"))


@pytest.fixture(scope="module")
def long_recording(tmp_path_factory: pytest.TempPathFactory) -> omniflow.Audio:
    """A quarter of a minute, which the recogniser listens to for seconds."""
    return say(" ".join([QUESTION] * 10), tmp_path_factory.mktemp("long"))


def say(text: str, folder: Path) -> omniflow.Audio:
    tools = "omniflow_roles.models.assistant.tools"
    python = os.environ["OMNIFLOW_ENVIRONMENTS_ASSISTANT"]
    file = folder / "question.wav"
    subprocess.run([python, "-m", tools, "say", text, str(file)], check=True, capture_output=True)
    return omniflow.Audio(file.read_bytes(), "audio/wav")


def runs(role: str, event: omniflow.Event) -> bool:
    """The event shows that the role is at work."""
    match event:
        case omniflow.Progress(node=node):
            return node == role
        case omniflow.Output(value=omniflow.Tokens()):
            return role == "llm"
        case omniflow.Output(value=omniflow.Audio()):
            return role == "tts"
    return False


async def ask(client: omniflow.Client, spoken: omniflow.Audio) -> tuple[str, int]:
    """(the text of the answer, the bytes of its speech)."""
    text, speech = "", 0
    async for event in client.stream("assistant", audio=spoken, sampling=GREEDY):
        if isinstance(event, omniflow.Output):
            if isinstance(event.value, omniflow.Tokens):
                text += event.value.text
            elif isinstance(event.value, omniflow.Audio):
                speech += len(event.value.data)
    return text, speech


@pytest.mark.parametrize("role", ["asr", "llm", "tts"])
async def test_killed_role_under_a_stream_is_replaced_and_the_next_call_works(
    command: Installed, spoken: omniflow.Audio, long_recording: omniflow.Audio, role: str
) -> None:
    under_way = long_recording if role == "asr" else spoken  # a short one may be understood before its role is killed
    status = command.status()
    async with omniflow.connect(status["target"]) as client:
        first = await ask(client, spoken)
        (victim,) = [p for p in command.status()["processes"] if p["role"] == role]
        try:
            async for event in client.stream("assistant", audio=under_way, sampling=GREEDY):
                if runs(role, event):
                    with contextlib.suppress(ProcessLookupError):  # several such events may be on their way
                        os.kill(victim["pid"], 9)
        except OmniFlowError as error:
            assert error.reason is Reason.REPLICA_LOST
            assert error.info.metadata["node"] == role
        else:
            # Between two sentences it had nothing to lose: the rest was spoken by the next process.
            assert role == "tts"
        killed_s = time.monotonic()
        while (now := _process(command, role))["pid"] == victim["pid"] or now["restarts"] == victim["restarts"]:
            assert time.monotonic() - killed_s < 2.5, "not replaced within two seconds"
            await asyncio.sleep(0.05)
        while await client.health("graphs/assistant") is not omniflow.Health.SERVING:
            assert time.monotonic() - killed_s < RELOAD_S
            await asyncio.sleep(0.2)
        assert await ask(client, spoken) == first, "greedy, so the new process gives the same answer"


def _process(command: Installed, role: str) -> dict[str, object]:
    (found,) = [p for p in command.status()["processes"] if p["role"] == role]
    return dict(found)


async def test_completions_of_one_call_reach_the_caller_with_what_was_likely(command: Installed) -> None:
    sampling = omniflow.Sampling(temperature=1.0, seed=1, max_tokens=8, completions=2, top_logprobs=2)
    ids: dict[int, list[int]] = {0: [], 1: []}
    async with omniflow.connect(command.status()["target"]) as client:
        async for event in client.stream("assistant", text=QUESTION, sampling=sampling):
            if isinstance(event, omniflow.Output) and isinstance(tokens := event.value, omniflow.Tokens):
                ids[tokens.completion].extend(tokens.ids)
                assert len(tokens.logprobs) == len(tokens.alternatives) == len(tokens.ids)
                assert all(len(likely) == 2 for likely in tokens.alternatives)
    assert [len(found) for found in ids.values()] == [8, 8]
    assert ids[0] != ids[1]


async def test_call_without_a_question_names_the_inputs(command: Installed) -> None:
    async with omniflow.connect(command.status()["target"]) as client:
        with pytest.raises(OmniFlowError) as caught:
            await client.run("assistant")
        assert caught.value.reason is Reason.MISSING_INPUT
        assert [v.field for v in caught.value.violations] == ["call.inputs[audio]", "call.inputs[text]"]


async def test_audio_that_is_not_wav_names_its_field(command: Installed) -> None:
    async with omniflow.connect(command.status()["target"]) as client:
        with pytest.raises(OmniFlowError) as caught:
            await client.run("assistant", audio=omniflow.Audio(b"ID3 no wave", "audio/wav"))
        assert caught.value.reason is Reason.INVALID_MEDIA
        assert "audio" in caught.value.violations[0].field
