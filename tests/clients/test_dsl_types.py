"""What a type checker knows of the DSL and of interfaces: good code passes the strictest rules, mistakes do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.cli import guide

pytestmark = pytest.mark.slow

HEAD = """\
from omniflow import Context, Field, Graph, Inputs, Interface, Outputs, ValueType, groups
from typing_extensions import assert_type
from omniflow import Node, Port

class Echo(Interface):
    name = "test.echo"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"text": Field(ValueType.TEXT)}

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"text": inputs["text"]}

graph = Graph("types")
a = graph.node("a", Echo, inline=True)
b = graph.node("b", Echo, inline=True)
"""
GOOD = """\
assert_type(a, Node)
assert_type(a.text, Port)
assert_type(a.text.chunks(2, drain="continue"), Port)
graph.input("x", ValueType.TEXT) >> [a.text, b.inputs.main.text]
a.inputs.text
graph.node("c", Echo, role="c", replay="continue", balance="kv_aware", activate_by_count={"text": 1})
"""
MISTAKES = [
    "a.text >> b",
    "a >> b.text",
    "a >> b",
    "a.text >> a.name",
    "a.text >> b.text >> b.text",
    "a.text >> [b]",
    "a.text.chunks(2.5)",
    "a.text.chunks(2, drain='stop')",
    "graph.input('x', str)",
    "graph.node('c', Echo(), inline=True)",
    "graph.node('c', Echo, inline=True, replay='again')",
    "graph.node('c', Echo, inline=True, balance='best')",
    "graph.node('c', Echo, inline=True, activate_by_count={'text': 1.5})",
    "graph.node('c', Echo, inline=True, loop_bounds=1)",
]


def errors_of(text: str, folder: Path) -> list[int]:
    """Lines with errors under --strict."""
    mypy = pytest.importorskip("mypy.api")
    file = folder / "code.py"
    file.write_text(text)
    out, problem, _ = mypy.run(["--strict", "--cache-dir", str(folder / "cache"), "--no-error-summary", str(file)])
    assert not problem
    return [int(line.split(":")[1]) for line in out.splitlines() if ": error:" in line]


@pytest.mark.parametrize("text", [HEAD + GOOD, guide.snippets(), guide.figure4()], ids=["all", "guide", "figure4"])
def test_good_code_is_typed(text: str, tmp_path: Path) -> None:
    assert errors_of(text, tmp_path) == []


def test_mistakes_are_seen_before_anything_runs(tmp_path: Path) -> None:
    first = HEAD.count("\n") + 1
    found = errors_of(HEAD + "\n".join(MISTAKES) + "\n", tmp_path)
    assert {*found} >= {*range(first, first + len(MISTAKES))}
