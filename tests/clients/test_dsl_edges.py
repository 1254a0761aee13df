"""What `>>` connects, and what it refuses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow.dsl import Graph, GraphError, Node, Port
from omniflow.interface import Field, Interface, groups
from omniflow.values import ValueType
from omniflow.workflow.v1 import graph_spec_pb2

TEXT, JSON = ValueType.TEXT, ValueType.JSON


class Echo(Interface):
    name = "test.echo"
    inputs = groups(text=Field(TEXT))
    outputs: ClassVar = {"text": Field(TEXT), "length": Field(JSON)}


class Merge(Interface):
    """`text` is in both groups, `spoken` is a group and a field, `name` and `group` are words of the DSL."""

    name = "test.merge"
    inputs = groups(
        ("typed", {"text": Field(TEXT), "name": Field(TEXT)}),
        ("spoken", {"text": Field(TEXT), "spoken": Field(TEXT), "group": Field(TEXT)}),
        ("counted", {"count": Field(JSON)}),
    )
    outputs: ClassVar = {"name": Field(TEXT), "count": Field(JSON)}


class Scene:
    """One of everything that edges start and end at."""

    def __init__(self) -> None:
        self.graph = Graph("scene")
        self.a = self.graph.node("a", Echo, inline=True)
        self.b = self.graph.node("b", Echo, inline=True)
        self.merge = self.graph.node("merge", Merge, inline=True)
        self.x = self.graph.input("x", TEXT)
        self.out = self.graph.output("out", TEXT)

    def edges(self) -> list[str]:
        return list(map(drawn, self.graph.spec().edges))


def drawn(edge: graph_spec_pb2.Edge) -> str:
    source = f"{edge.source_node}.{edge.source_field}".lstrip(".")
    target = ".".join(filter(None, (edge.target_node, edge.target_group, edge.target_field)))
    return f"{source}>{target}"


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_name_is_an_output_left_of_the_arrow_and_an_input_right_of_it(scene: Scene) -> None:
    scene.x >> scene.a.text
    scene.a.text >> scene.b.text
    scene.b.text >> scene.out
    assert scene.edges() == ["x>a.main.text", "a.text>b.main.text", "b.text>out"]


def test_every_way_to_write_an_input_means_the_same(scene: Scene) -> None:
    ways: list[Callable[[Node], Port]] = [
        lambda node: node.text,
        lambda node: node["text"],
        lambda node: node.inputs.text,
        lambda node: node.inputs["text"],
        lambda node: node.inputs.main.text,
        lambda node: node.inputs.main["text"],
        lambda node: node.inputs.field("text"),
        lambda node: node.inputs.group("main").text,
    ]
    for way in ways:
        made = Scene()
        made.x >> way(made.a)
        assert made.edges() == ["x>a.main.text"]


def test_one_source_leads_to_several_targets_in_their_order(scene: Scene) -> None:
    scene.x >> [scene.b.text, scene.a.text, scene.out]
    scene.a.text >> (scene.merge.inputs.typed.text, scene.merge.inputs.spoken.text)
    assert scene.edges() == [
        "x>b.main.text",
        "x>a.main.text",
        "x>out",
        "a.text>merge.typed.text",
        "a.text>merge.spoken.text",
    ]


def test_several_sources_of_one_field_keep_their_order(scene: Scene) -> None:
    scene.b.text >> scene.merge.inputs.typed.text
    scene.a.text >> scene.merge.inputs.typed.text
    assert scene.edges() == ["b.text>merge.typed.text", "a.text>merge.typed.text"]


def test_names_of_the_dsl_itself_are_reached_by_index(scene: Scene) -> None:
    scene.x >> scene.merge["name"]
    scene.merge["name"] >> scene.out
    scene.a.text >> scene.merge.group  # a field of that name; only under `inputs` it is a method
    scene.a.text >> scene.merge.inputs.typed["name"]
    assert scene.edges() == [
        "x>merge.typed.name",
        "merge.name>out",
        "a.text>merge.spoken.group",
        "a.text>merge.typed.name",
    ]


def test_name_of_a_group_and_a_field_is_both(scene: Scene) -> None:
    scene.x >> scene.merge.inputs.spoken
    scene.x >> scene.merge.inputs.spoken.text
    assert scene.edges() == ["x>merge.spoken.spoken", "x>merge.spoken.text"]


def test_list_with_a_mistake_adds_no_edge(scene: Scene) -> None:
    with pytest.raises(GraphError, match=r"x is TEXT, but merge\.count takes JSON"):
        scene.x >> [scene.a.text, scene.merge.count]
    assert scene.edges() == []


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "unknown name": (lambda s: s.a.txt, "'a' has neither an output nor an input 'txt'; did you mean 'text'?"),
    "nothing like it": (
        lambda s: s.a["zz"] >> s.out,
        "'a' has neither an output nor an input 'zz'; known: length, text",
    ),
    "unknown output": (lambda s: s.a.output("txt"), "'a' has no output 'txt'; did you mean 'text'?"),
    "unknown input": (lambda s: s.x >> s.a.inputs.txt, "'a' has no input field 'txt'; did you mean 'text'?"),
    "unknown group": (
        lambda s: s.merge.inputs.group("type"),
        "'merge' has no input group 'type'; did you mean 'typed'?",
    ),
    "unknown field of a group": (
        lambda s: s.merge.inputs.typed.nam,
        "group 'typed' of 'merge' has no field 'nam'; did you mean 'name'?",
    ),
    "field of a field": (
        lambda s: s.a.inputs.text.text,
        "a.inputs.text is an input field; fields are named under groups only",
    ),
    "several groups": (
        lambda s: s.x >> s.merge.text,
        (
            "'merge' has the field 'text' in several groups (typed, spoken): "
            "write merge.inputs.typed.text or merge.inputs.spoken.text"
        ),
    ),
    "group as a field": (
        lambda s: s.x >> s.merge.inputs.typed,
        "merge.inputs.typed is an input group: write merge.inputs.typed.text",
    ),
    "group as a name of the node": (
        lambda s: s.merge.typed,
        "merge.inputs.typed is an input group: write merge.inputs.typed.text",
    ),
    "output as a target": (
        lambda s: s.merge["count"] >> s.a.length,
        "a.length is an output: it gives values, and takes none; inputs: a.text",
    ),
    "input as a source": (
        lambda s: s.merge.spoken >> s.out,
        "merge.spoken is an input: it takes values, and gives none; outputs: merge.name, merge.count",
    ),
    "inputs as a source": (
        lambda s: s.a.inputs.text >> s.out,
        "a.inputs.text is an input: it takes values, and gives none",
    ),
    "graph output as a source": (lambda s: s.out >> s.a.text, "output out belongs to the graph: it takes values"),
    "graph input as a target": (lambda s: s.a.text >> s.x, "input x belongs to the graph: it gives values"),
    "types": (lambda s: s.a.length >> s.b.text, "a.length is JSON, but b.text takes TEXT"),
    "another graph": (lambda s: s.x >> Scene().a.text, "input x and a.text belong to different graphs"),
    "one more of the same": (lambda s: [s.a.text >> s.out for _ in range(2)], "this edge is there already, since "),
    "the same twice in a list": (
        lambda s: s.a.text >> [s.out, s.b.text, s.out],
        "out is there twice, and would be given",
    ),
    "node as a target": (
        lambda s: s.x >> s.a,
        "node 'a' (outputs: a.text, a.length; inputs: a.text) is no target of an edge",
    ),
    "node in a list": (lambda s: s.x >> [s.b.text, s.a], "node 'a' (outputs"),
    "node as a source": (
        lambda s: s.a >> s.b.text,
        "node 'a' (outputs: a.text, a.length; inputs: a.text) is no source of an edge",
    ),
    "nodes": (lambda s: s.a >> s.b, "node 'a' (outputs: a.text, a.length; inputs: a.text) is no source of an edge"),
    "inputs as a target": (lambda s: s.x >> s.a.inputs, "inputs of node 'a' (outputs"),
    "name of the node": (
        lambda s: s.x >> s.merge.name,
        "the text 'merge' (a field that has the name of a node's attribute is written node['name'])",
    ),
    "one more in a chain": (
        lambda s: s.x >> s.a.text >> s.b.text,
        "`a >> b >> c` is no edge; write `a.x >> b.y` and `b.z >> c.w`",
    ),
    "no target": (lambda s: s.x >> [], "an empty list of targets makes no edge"),
    "number": (lambda s: s.x >> 3, "3 is no target of an edge"),
    "number as a source": (lambda s: 3 >> s.a.text, "3 is no source of an edge; the target is a.text"),
    "chunks of an input": (lambda s: s.a.inputs.text.chunks(2), "a.inputs.text is an input: it takes values"),
    "chunks as a target": (lambda s: s.x >> s.a.text.chunks(2), "a.text.chunks(2) is a source, no target"),
    "chunks to an output": (lambda s: s.a.text.chunks(2) >> s.out, "output out takes single values"),
    "chunks of none": (lambda s: s.a.text.chunks(0), "size is 0; chunks are counted in yields, 1 or more"),
    "chunks of true": (lambda s: s.a.text.chunks(True), "size is True"),
    "chunks of half": (lambda s: s.a.text.chunks(2.5), "size is 2.5"),
    "no first": (lambda s: s.a.text.chunks(2, first=0), "first is 0; chunks are counted in yields, 1 or more"),
    "no stride": (lambda s: s.a.text.chunks(2, stride=0), "stride is 0; chunks are counted in yields, 1 or more"),
    "negative context": (lambda s: s.a.text.chunks(2, left_context=-1), "left_context is -1; chunks are counted"),
    "too many": (lambda s: s.a.text.chunks(2**32), "size is 4294967296"),
    "unknown drain": (lambda s: s.a.text.chunks(2, drain="stop"), 'drain is \'stop\'; write "end" or "continue"'),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_mistake_is_refused_at_its_line_and_adds_no_edge(mistake: str, scene: Scene) -> None:
    write, message = REFUSED[mistake]
    before = scene.edges()
    with pytest.raises(GraphError) as caught:
        write(scene)
    lines, first = inspect.getsourcelines(write)
    file, _, rest = str(caught.value).partition(":")
    line, _, said = rest.partition(": ")
    assert file.endswith("test_dsl_edges.py")
    assert first <= int(line) < first + len(lines)
    assert said.startswith(message)
    assert caught.value.location.line == int(line)
    assert len(scene.edges()) - len(before) == mistake.startswith("one more"), "all but what was right before it"


def test_second_of_two_same_edges_names_the_line_of_the_first(scene: Scene) -> None:
    scene.x >> scene.a.text
    line = inspect.getsourcelines(test_second_of_two_same_edges_names_the_line_of_the_first)[1] + 1
    with pytest.raises(GraphError, match=re.escape(f"test_dsl_edges.py:{line}")):
        scene.x >> scene.a.text


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, graph_spec_pb2.ChunkPolicy(size=25)),
        ({"first": 10, "left_context": 25}, graph_spec_pb2.ChunkPolicy(size=25, first=10, left_context=25)),
        ({"stride": 5, "flush": False}, graph_spec_pb2.ChunkPolicy(size=25, stride=5, flush=False)),
        ({"drain": "continue"}, graph_spec_pb2.ChunkPolicy(size=25, continues=True)),
        ({"drain": "end", "flush": True}, graph_spec_pb2.ChunkPolicy(size=25)),
    ],
)
def test_chunk_policy_goes_with_its_edge_alone(
    options: dict[str, Any], want: graph_spec_pb2.ChunkPolicy, scene: Scene
) -> None:
    scene.a.text.chunks(25, **options) >> scene.b.text
    scene.a.text >> scene.out
    chunked, plain = scene.graph.spec().edges
    assert chunked.chunks == want
    assert not plain.HasField("chunks")


@given(st.data())
def test_edges_are_as_written_whatever_the_graph(data: st.DataObject) -> None:
    graph = Graph("any")
    nodes = [graph.node(f"n{i}", Echo, inline=True) for i in range(data.draw(st.integers(1, 5)))]
    sources: dict[str, Port] = {"x": graph.input("x", TEXT), **{f"{n.name}.text": n.text for n in nodes}}
    targets: dict[str, Port] = {"out": graph.output("out", TEXT), **{f"{n.name}.main.text": n.text for n in nodes}}
    pairs = st.tuples(st.sampled_from(sorted(sources)), st.sampled_from(sorted(targets)))
    written = data.draw(st.lists(pairs, unique=True))
    for source, target in written:
        sources[source] >> targets[target]
    assert list(map(drawn, graph.spec().edges)) == [f"{source}>{target}" for source, target in written]


def test_completion_offers_the_fields(scene: Scene) -> None:
    assert {"text", "length", "inputs"} <= {*dir(scene.a)}
    assert {"typed", "spoken", "count", "text"} <= {*dir(scene.merge.inputs)}


def test_attribute_that_python_itself_looks_for_is_absent(scene: Scene) -> None:
    for thing in (scene.a, scene.a.inputs, scene.merge.inputs.typed):
        assert not hasattr(thing, "__wrapped__")
        assert not hasattr(thing, "_repr_html_")
    with pytest.raises(TypeError, match="not iterable"):
        list(scene.a)  # type: ignore[call-overload]
