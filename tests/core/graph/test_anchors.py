"""What is found out about joins before anything runs: kinds, anchors and the ways from the anchor to the group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omniflow_core.graph.plan import GraphPlan, GroupPlan, JoinKind, RoutePlan, plan_graph
from omniflow_core.graph.spec import ChunkSpec, GraphSpec
from tests.support.graphs import graph, node
from tests.support.lines import lines_run


def group_of(plan: GraphPlan, name: str, group: str = "main") -> GroupPlan:
    (found,) = [g for g in plan.groups if (g.node, g.group) == (name, group)]
    return found


def anchors(spec: GraphSpec) -> dict[str, tuple[str, str]]:
    """Kind and anchor of each group."""
    return {f"{g.node}.{g.group}": (g.kind.value, g.anchor) for g in plan_graph(spec).groups}


def test_anchor_of_figure_5() -> None:
    nodes = (node("a"), node("c"), node("d"), node("h"), node("k"), node("j", "h k"))
    plan = plan_graph(graph(nodes, "x>a.x a.y>c.x c.y>d.x c.y>k.x d.y>h.x h.y>j.h k.y>j.k j.y>out"))
    assert group_of(plan, "j") == GroupPlan(
        node="j",
        group="main",
        kind=JoinKind.PREFIX,
        anchor="c",
        routes=(
            RoutePlan(nodes=("c", "d", "h"), fields=("h",)),
            RoutePlan(nodes=("c", "k"), fields=("k",)),
        ),
    )
    assert group_of(plan, "h") == GroupPlan(
        node="h",
        group="main",
        kind=JoinKind.SINGLE,
        anchor="d",
        routes=(RoutePlan(nodes=("d",), fields=("x",)),),
    )
    assert group_of(plan, "a").anchor == ""
    assert plan.order == ("a", "c", "d", "k", "h", "j")


FIGURE_4 = graph(
    (
        node("parser", outputs="text image vit_count# vae_count#"),
        node("embed"),
        node("vit"),
        node("vae"),
        node("llm", "text: emb; image: vit vae", outputs="tokens done", is_session_ordered=True),
        node(
            "dit",
            "signal: done; images: vit vae; counts: vit_count# vae_count#",
            counts="done=1 vit=vit_count vae=vae_count",
        ),
        node("decoder"),
    ),
    "x>parser.x parser.text>embed.x parser.image>vit.x parser.image>vae.x embed.y>llm.text.emb vit.y>llm.image.vit "
    "vae.y>llm.image.vae llm.tokens>text llm.done>dit.signal.done vit.y>dit.images.vit vae.y>dit.images.vae "
    "parser.vit_count>dit.counts.vit_count parser.vae_count>dit.counts.vae_count dit.y>decoder.x decoder.y>image",
    outputs="text image",
)


def test_anchor_of_figure_4() -> None:
    plan = plan_graph(FIGURE_4)
    assert anchors(FIGURE_4) == {
        "parser.main": ("single", ""),
        "embed.main": ("single", "parser"),
        "vit.main": ("single", "parser"),
        "vae.main": ("single", "parser"),
        "llm.text": ("single", "embed"),
        "llm.image": ("prefix", "parser"),
        "dit.signal": ("count", ""),
        "dit.images": ("count", ""),
        "dit.counts": ("count", ""),
        "decoder.main": ("single", "dit"),
    }
    assert group_of(plan, "llm", "image").routes == (
        RoutePlan(nodes=("parser", "vit"), fields=("vit",)),
        RoutePlan(nodes=("parser", "vae"), fields=("vae",)),
    )
    assert plan.gates == ("llm",)
    assert {g.triggers for g in plan.groups if g.node == "dit"} == {("done", "vit", "vae")}


@pytest.mark.parametrize(
    ("edges", "anchor", "routes"),
    [
        ("a.y>b.x a.y>c.x b.y>j.p c.y>j.q", "a", [("a", "b"), ("a", "c")]),
        ("a.y>b.x a.y>j.p b.y>j.q a.y>c.x", "a", [("a",), ("a", "b")]),
        ("a.y>b.x b.y>c.x b.y>j.p c.y>j.q", "b", [("b",), ("b", "c")]),
    ],
)
def test_anchor_of_a_diamond(edges: str, anchor: str, routes: list[tuple[str, ...]]) -> None:
    """Two branches, one branch beside a direct edge, and a diamond further down: a source itself can be the anchor."""
    nodes = (node("a"), node("b"), node("c"), node("j", "p q"))
    group = group_of(plan_graph(graph(nodes, f"x>a.x {edges} j.y>out")), "j")
    assert (group.kind, group.anchor, [route.nodes for route in group.routes]) == (JoinKind.PREFIX, anchor, routes)


def test_anchor_of_single_placeholders_is_the_call() -> None:
    """All of them come as one yield, so a join over them runs once a call."""
    nodes = (node("a"), node("b"), node("j", "p q r"))
    spec = graph(nodes, "x>a.x z>b.x a.y>j.p b.y>j.q z>j.r j.y>out", inputs="x z")
    group = group_of(plan_graph(spec), "j")
    assert (group.kind, group.anchor) == (JoinKind.PREFIX, "")
    assert [route.nodes for route in group.routes] == [("", "a"), ("", "b"), ("",)]


def test_anchor_of_one_streaming_placeholder_is_the_call() -> None:
    nodes = (node("a"), node("b"), node("j", "p q"))
    spec = graph(nodes, "s>a.x s>b.x a.y>j.p b.y>j.q j.y>out", inputs="", streaming="s")
    assert anchors(spec)["j.main"] == ("prefix", "")


def test_placeholders_alone_are_a_single_source() -> None:
    spec = graph((node("j", "p q"),), "x>j.p z>j.q j.y>out", inputs="x z")
    assert anchors(spec) == {"j.main": ("single", "")}


def test_anchor_of_nested_diamonds() -> None:
    nodes = (node("a"), node("b"), node("c"), node("d"), node("e"), node("i", "d e"), node("j", "i c"))
    edges = "x>a.x a.y>b.x a.y>c.x b.y>d.x b.y>e.x d.y>i.d e.y>i.e i.y>j.i c.y>j.c j.y>out"
    plan = plan_graph(graph(nodes, edges))
    assert (group_of(plan, "i").anchor, group_of(plan, "j").anchor) == ("b", "a")
    assert group_of(plan, "j").routes[0].nodes == ("a", "b", "d", "i")


def test_anchor_of_a_diamond_in_a_loop() -> None:
    a = node("a", "first: x; more: z", loop_bound=5)
    nodes = (a, node("b"), node("c"), node("j", "b c", outputs="y again"))
    edges = "x>a.first.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.again>a.more.z j.y>out"
    assert anchors(graph(nodes, edges)) == {
        "a.first": ("single", ""),
        "a.more": ("single", "j"),
        "b.main": ("single", "a"),
        "c.main": ("single", "a"),
        "j.main": ("prefix", "a"),
    }


def test_anchor_of_a_loop_whose_join_is_its_own_anchor() -> None:
    """j splits into b and c, which meet in another group of j: below each yield of j, not of the call."""
    j = node("j", "first: x; more: b c", loop_bound=5)
    spec = graph((j, node("b"), node("c")), "x>j.first.x j.y>b.x j.y>c.x b.y>j.more.b c.y>j.more.c j.y>out")
    assert anchors(spec)["j.more"] == ("prefix", "j")


def test_anchor_behind_a_loop_is_what_every_round_passes() -> None:
    """Contributions of all rounds of b meet below one yield of a."""
    b = node("b", "first: x; more: z", outputs="y again", loop_bound=5)
    nodes = (node("a"), b, node("c"), node("j", "b c"))
    spec = graph(nodes, "x>a.x a.y>b.first.x a.y>c.x b.again>b.more.z b.y>j.b c.y>j.c j.y>out")
    assert anchors(spec)["j.main"] == ("prefix", "a")


def test_count_join_keeps_the_origin_that_runs_once() -> None:
    """a yields once a call, so whatever the count join gathers descends from that one yield."""
    d = node("d", "img", counts="img=2")
    nodes = (node("a", is_streaming=False), node("v"), d, node("c"), node("j", "p q"))
    edges = "x>a.x a.y>v.x v.y>d.img a.y>c.x d.y>j.p c.y>j.q j.y>out"
    assert anchors(graph(nodes, edges))["j.main"] == ("prefix", "a")


def test_anchor_behind_a_count_join_is_the_count_join() -> None:
    d = node("d", "img", counts="img=2")
    nodes = (node("v"), d, node("b"), node("c"), node("j", "p q"))
    edges = "s>v.x v.y>d.img d.y>b.x d.y>c.x b.y>j.p c.y>j.q j.y>out"
    assert anchors(graph(nodes, edges, inputs="", streaming="s"))["j.main"] == ("prefix", "d")


def test_field_fed_by_several_edges_of_one_source_is_no_join() -> None:
    spec = graph((node("a", outputs="y z"), node("b")), "x>a.x a.y>b.x a.z>b.x b.y>out")
    assert anchors(spec)["b.main"] == ("single", "a")


def test_group_tells_its_chunks() -> None:
    policy = ChunkSpec(size=3, left_context=1)
    plan = plan_graph(graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out", chunks={"a.y>b.x": policy}))
    assert (group_of(plan, "a").chunks, group_of(plan, "b").chunks) == (None, policy)


# --- cost -------------------------------------------------------------------------------------------------------------


def diamonds(count: int) -> GraphSpec:
    """`count` nodes: a chain of diamonds, each below the last."""
    nodes = [node("a0")]
    edges = ["x>a0.x"]
    for i in range(1, count // 3 + 1):
        nodes += [node(f"b{i}"), node(f"c{i}"), node(f"a{i}", "p q")]
        edges += [f"a{i - 1}.y>b{i}.x", f"a{i - 1}.y>c{i}.x", f"b{i}.y>a{i}.p", f"c{i}.y>a{i}.q"]
    return graph(tuple(nodes), " ".join([*edges, f"a{count // 3}.y>out"]))


def chain(count: int) -> GraphSpec:
    nodes = tuple(node(f"n{i}") for i in range(count))
    edges = " ".join(f"n{i}.y>n{i + 1}.x" for i in range(count - 1))
    return graph(nodes, f"x>n0.x {edges} n{count - 1}.y>out")


def loops(count: int) -> GraphSpec:
    """Two-node cycles in a row."""
    nodes = []
    edges = ["x>a0.first.x"]
    for i in range(count // 2):
        nodes += [node(f"a{i}", "first: x; more: z", loop_bound=3), node(f"b{i}", outputs="y again")]
        edges += [f"a{i}.y>b{i}.x", f"b{i}.again>a{i}.more.z"]
        edges += [f"b{i}.y>a{i + 1}.first.x"] if i < count // 2 - 1 else [f"b{i}.y>out"]
    return graph(tuple(nodes), " ".join(edges))


def lines_planned(spec: GraphSpec) -> int:
    return lines_run(lambda: plan_graph(spec))


@pytest.mark.parametrize("shape", [chain, diamonds, loops])
def test_planning_is_linear_in_nodes(shape: Callable[[int], GraphSpec]) -> None:
    """200 nodes take about twice the work of 100: a quadratic planner would take four times."""
    half, whole = shape(100), shape(200)
    assert lines_planned(whole) <= 2.4 * lines_planned(half)
