"""What README shows is what runs: its files are taken from the text and run by its commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code(language: str, containing: str) -> str:
    """The block of README that holds a text."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    (found,) = [text for kind, text in blocks if kind == language and containing in text]
    return str(found)


class Shell:
    """Runs the `omniflow` command in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "OMNIFLOW_RUNTIME_DIR": str(folder / "run"), "OMNIFLOW_CONTROL_LISTEN": "127.0.0.1:0"}

    def __call__(self, *words: str) -> str:
        result = subprocess.run(
            [sys.executable, "-m", "omniflow_server", *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    subprocess.run([sys.executable, "-m", "omniflow_server", "down"], env=shell.env, capture_output=True, check=False)


def test_readme_shows_the_two_commands() -> None:
    assert "\nmake demo\n" in README
    assert "\nmake test\n" in README


def test_readme_client_example_compiles_and_fits_thirty_lines() -> None:
    example = code("python", "omniflow.connect")
    compile(example, "README.md", "exec")
    assert len(example.splitlines()) <= 30


def test_readme_graph_runs_with_the_commands_beside_it(shell: Shell) -> None:
    (shell.folder / "shout.py").write_text(code("python", "# shout.py"))
    commands = [line.removeprefix("$ omniflow ") for line in code("", "$ omniflow graph check").splitlines()]
    outputs = {}
    for command in commands:
        words = [word.strip('"') for word in re.findall(r'"[^"]+"|\S+', command)]
        if words[0] == "ask":
            target = re.search(r"ready on (\S+)", outputs["up"])
            assert target is not None, outputs["up"]
            words += ["--target", target[1]]
        outputs[words[0]] = shell(*words)
    assert list(outputs) == ["graph", "up", "ask", "status", "call", "down"]
    assert "MAKE!SOME!NOISE!" in outputs["ask"]
    assert "serving" in outputs["status"]
    assert "upper.main #" in outputs["call"]


def test_readme_client_example_talks_to_a_server(shell: Shell) -> None:
    """The README's client against a graph of the same name and fields, without the assistant's models."""
    flow = """
from omniflow import *
class Answer(Interface):
    name = "answer.text"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"tokens": Field(ValueType.TOKENS), "audio": Field(ValueType.AUDIO)}
    async def run(self, inputs, context):
        for word in ("Paris", " it", " is"):
            context.usage.output_tokens += 1
            yield {"tokens": Tokens((1,), word)}
        yield {"audio": Audio(b"\\0" * 320, "audio/L16;rate=16000;channels=1")}
graph = Graph("assistant")
answer = graph.node("answer", Answer, role="answer")
graph.input("text", ValueType.TEXT) >> answer.inputs.text
answer.tokens >> graph.output("text", ValueType.TOKENS)
answer.audio >> graph.output("audio", ValueType.AUDIO)
flow = Flow(name="assistant", graph=graph, roles=(RolePlan(name="answer", interfaces=("answer.text",)),))
"""
    (shell.folder / "flow.py").write_text(flow)
    target = re.search(r"ready on (\S+)", shell("up", "flow.py", "--detach"))
    assert target is not None
    client = code("python", "omniflow.connect").replace("127.0.0.1:7700", target[1])
    result = subprocess.run([sys.executable, "-c", client], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ("Paris it is\n[320 bytes of audio/L16;rate=16000;channels=1]\n\n3 tokens\nParis it is\n")
