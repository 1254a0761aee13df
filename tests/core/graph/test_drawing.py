"""A plan as SVG: valid XML that shows every node once and every edge."""

from __future__ import annotations

import dataclasses
from collections import Counter
from xml.etree import ElementTree

from omniflow_core.graph.drawing import MAX_NODES, draw
from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.spec import ChunkSpec, GraphSpec
from tests.support.graphs import graph, node

SVG = "{http://www.w3.org/2000/svg}"
DIAMOND = graph((node("a"), node("b"), node("c"), node("j", "p q")), "x>a.x a.y>b.x a.y>c.x b.y>j.p c.y>j.q j.y>out")


def drawn(spec: GraphSpec) -> ElementTree.Element:
    return ElementTree.fromstring(draw(plan_graph(spec)))


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def boxes(root: ElementTree.Element) -> Counter[str]:
    names = (box.get("data-node") for box in root.iter(f"{SVG}g") if "node" in (box.get("class") or "").split())
    return Counter(name for name in names if name is not None)


def edge_tips(root: ElementTree.Element) -> list[str]:
    paths = (path for path in root.iter(f"{SVG}path") if "edge" in (path.get("class") or ""))
    return [path.findtext(f"{SVG}title") or "" for path in paths]


def marks(root: ElementTree.Element, kind: str) -> int:
    return sum(shape.get("class") == kind for shape in root.iter() if shape.tag in (f"{SVG}circle", f"{SVG}rect"))


def test_drawing_has_every_node_once_and_every_edge() -> None:
    root = drawn(DIAMOND)
    assert boxes(root) == {"a": 1, "b": 1, "c": 1, "j": 1}
    assert edge_tips(root) == [
        "call to a: x",
        "a to b: y → x",
        "a to c: y → x",
        "b to j: y → p",
        "c to j: y → q",
        "j to outputs: y → out",
    ]


def test_drawing_marks_kinds_of_joins_and_anchors() -> None:
    counted = node("k", "done", counts="done=1")
    spec = graph(
        (*DIAMOND.nodes, counted),
        "x>a.x a.y>b.x a.y>c.x b.y>j.p c.y>j.q j.y>out b.y>k.done k.y>two",
        outputs="out two",
    )
    root = drawn(spec)
    assert "main: join below a" in texts(root)
    assert "anchor of j.main" in texts(root)
    assert "main: count join" in texts(root)
    assert "done: 1" in texts(root)
    assert (marks(root, "prefix"), marks(root, "count"), marks(root, "single")) == (1, 1, 3 + 2)


def test_drawing_leads_a_loop_back_below_the_boxes() -> None:
    loop = node("b", inputs="first: x; more: z", outputs="y again", loop_bound=3)
    root = drawn(graph((node("a"), loop), "x>a.x a.y>b.first.x b.again>b.more.z b.y>out"))
    back = [path for path in root.iter(f"{SVG}path") if path.get("class") == "edge back"]
    assert [path.findtext(f"{SVG}title") for path in back] == ["b to b: again → z"]
    assert "inline, streaming, at most 3 iterations" in texts(root)
    _, _, _, height = map(float, (root.get("viewBox") or "").split())
    assert height == float(root.get("height") or 0)


def test_drawing_joins_fields_of_one_edge_and_shows_chunks() -> None:
    spec = graph(
        (node("a", outputs="p q"), node("b", "p q")),
        "x>a.x a.p>b.p a.q>b.q b.y>out",
        chunks={"a.p>b.p": ChunkSpec(size=2), "a.q>b.q": ChunkSpec(size=2)},
    )
    root = drawn(spec)
    assert "a to b: p, q" in edge_tips(root)
    assert "main, chunks of 2" in texts(root)


def test_drawing_escapes_what_xml_cannot_carry() -> None:
    odd = dataclasses.replace(node("a", is_inline=False, role='<r&"\x00\ud800>'), interface="i<j>&'k'")
    root = drawn(dataclasses.replace(graph((odd,), "x>a.x a.y>out"), name='graphs/<"x">'))
    assert root.findtext(f"{SVG}title") == 'graphs/<"x">'
    assert "i<j>&'k'" in texts(root)
    assert 'role <r&"\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}>, streaming' in texts(root)


def test_drawing_of_inputs_and_outputs_says_how_they_are_taken() -> None:
    spec = graph((node("a", inputs="x? s?"),), "s>a.s a.y>out", inputs="", streaming="s", outputs="", unordered="out")
    assert {"s: text, streaming", "out: text, unordered"} <= set(texts(drawn(spec)))


def test_graph_that_nobody_could_read_is_not_drawn() -> None:
    def chain(length: int) -> str:
        edges = " ".join(f"n{i}.y>n{i + 1}.x" for i in range(length - 1))
        nodes = tuple(node(f"n{i}") for i in range(length))
        return draw(plan_graph(graph(nodes, f"x>n0.x {edges} n{length - 1}.y>out")))

    assert len(boxes(ElementTree.fromstring(chain(MAX_NODES)))) == MAX_NODES
    assert chain(MAX_NODES + 1) == ""
