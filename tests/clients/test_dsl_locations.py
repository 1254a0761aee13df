"""From a part of a graph back to the line that wrote it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from omniflow.dsl import Graph, GraphError
from omniflow.flow_loading import load_graph
from omniflow_core.errors import OmniFlowError

FLOW = """\
from omniflow import Field, Graph, Interface, ValueType, groups

class Echo(Interface):
    name = "test.echo"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"text": Field(ValueType.TEXT)}

def echo(name):
    return graph.node(name, Echo, inline=True)

graph = Graph("lines")
kv = graph.global_parameter("kv")
a = graph.node(
    "a",
    Echo,
    inline=True,
)
b = echo("b")
graph.input("x", ValueType.TEXT) >> a.text
a.text >> [b.text, graph.output("y", ValueType.TEXT)]
b.text >> graph.output("z", ValueType.TEXT)
"""


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.py").write_text(FLOW)
    return load_graph("lines.py:graph")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("global_parameters[0].layout", 12),
        ("nodes[0]", 13),
        ("graph.nodes[0].interface", 13),
        ("nodes[1].input_groups[0].fields[0].name", 9),
        ("a", 13),
        ("b.main", 9),
        ("placeholders[0]", 19),
        ("edges[0].source_field", 19),
        ("edges[1].target", 20),
        ("edges[2]", 20),
        ("edges[3].chunks", 21),
        ("outputs[0]", 20),
        ("outputs[1].field.name", 21),
    ],
)
def test_part_leads_to_its_line(path: str, line: int, graph: Graph) -> None:
    location = graph.location_of(path)
    assert location is not None
    assert str(location) == f"lines.py:{line}"
    assert Path(location.file).is_absolute()


@pytest.mark.parametrize("path", ["", "graph", "name", "nodes[2]", "edges[4].chunks", "c", "c.main", "nodes"])
def test_what_is_no_part_has_no_line(path: str, graph: Graph) -> None:
    assert graph.location_of(path) is None


def test_file_elsewhere_is_named_in_full(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert str(graph.location_of("a")) == f"{tmp_path}/lines.py:13"


def test_mistake_in_a_file_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.py").write_text(FLOW + "b.txt >> a.text\n")
    with pytest.raises(OmniFlowError) as caught:
        load_graph("wrong.py:graph")
    assert caught.value.message == "wrong.py:22: 'b' has neither an output nor an input 'txt'; did you mean 'text'?"


def test_mistake_points_past_every_frame_of_the_package() -> None:
    with pytest.raises(GraphError) as caught:
        Graph("no name")
    assert caught.value.location.file == __file__
    assert caught.value.location.line == sys._getframe().f_lineno - 2
