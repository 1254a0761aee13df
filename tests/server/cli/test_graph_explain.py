"""`omniflow graph explain`: the plan as text, and as a drawing in a file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from google.protobuf import json_format

from omniflow_core.graph import drawing
from tests.server.cli.command import CommandLine
from tests.server.cli.recorded import diamond


@pytest.fixture
def graph_file(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("omniflow_server.cli.graph.registered", lambda: ["test.step", "test.pair"])
    Path("diamond.json").write_text(json_format.MessageToJson(diamond().spec()))
    return "diamond.json"


def test_explain_prints_joins_and_anchors(omniflow: CommandLine, graph_file: str) -> None:
    outcome = omniflow("graph", "explain", graph_file)
    assert outcome.status == 0
    assert "    takes main [prefix join below each yield of a]\n      route a > b gives p\n" in outcome.out
    assert "  dependencies (5)\n    call -> a.main\n" in outcome.out


def test_explain_writes_a_drawing(omniflow: CommandLine, graph_file: str) -> None:
    outcome = omniflow("graph", "explain", graph_file, "--svg", "diamond.svg")
    assert outcome.status == 0
    assert outcome.out.endswith("wrote diamond.svg\n")
    root = ElementTree.parse("diamond.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert [g.get("data-node") for g in root.iter() if g.get("data-node")] == ["a", "b", "c", "j"]


def test_explain_says_why_there_is_no_drawing(
    omniflow: CommandLine, graph_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = omniflow("graph", "explain", graph_file, "--svg", "absent/diamond.svg")
    assert (outcome.status, outcome.err) == (2, "error: cannot write absent/diamond.svg: No such file or directory\n")
    monkeypatch.setattr(drawing, "MAX_NODES", 3)
    outcome = omniflow("graph", "explain", graph_file, "--svg", "diamond.svg")
    assert outcome.status == 2
    assert "nodes are not drawn" in outcome.err
    assert not Path("diamond.svg").exists()
