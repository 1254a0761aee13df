"""The guide to graphs, taken apart: its Python, what it says that calls give, and its shell sessions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniflow.dsl import Graph

GUIDE = Path(__file__).parents[3] / "docs" / "graphs.md"
FIGURE4 = "# figure4.py\n"

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMISE = re.compile(r"^# ((?:\w+=\"[^\"]*\",?\s*)+) -> (.+(?:\n# {5}.+)*)$", re.MULTILINE)
_VALUE = re.compile(r"(\w+)=\"([^\"]*)\"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What the guide says that a call gives: values by output, in their order."""

    graph: Graph
    inputs: dict[str, str]
    outputs: dict[str, list[str]]

    def __str__(self) -> str:
        return f"{self.graph.name}({', '.join(self.inputs.values())})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A shell session: files by name, and a command with what it prints."""

    files: dict[str, str]
    command: str
    printed: str


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return [text for kind, text in _FENCED.findall(GUIDE.read_text(encoding="utf-8")) if kind == language]


def figure4() -> str:
    """The file of the last part."""
    (file,) = (block for block in blocks("python") if block.startswith(FIGURE4))
    return file


def snippets() -> str:
    """Everything before it, which is one program."""
    return "\n\n".join(block for block in blocks("python") if not block.startswith(FIGURE4))


def promises() -> Iterator[Promise]:
    """Runs the Python; the promises of each block are about the graph that it made last."""
    scope: dict[str, Any] = {"__name__": "guide"}
    for block in blocks("python"):
        own: dict[str, Any] = {"__name__": "figure4"} if block.startswith(FIGURE4) else scope
        exec(compile(block, str(GUIDE), "exec"), own)
        for given, wanted in _PROMISE.findall(block):
            outputs: dict[str, list[str]] = {}
            for name, value in _VALUE.findall(wanted):
                outputs.setdefault(name, []).append(value)
            yield Promise(graph=own["graph"], inputs=dict(_VALUE.findall(given)), outputs=outputs)


def sessions() -> Iterator[Session]:
    """The commands of every session; each sees the files that were shown before it."""
    files = {"figure4.py": figure4()}
    for block in blocks("console"):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = step.partition("\n")
            if command.startswith("cat "):
                files[command.removeprefix("cat ")] = printed
            else:
                yield Session(files=dict(files), command=command, printed=printed)
