"""How a graph is cut into segments. That no cut changes a call is in tests/properties."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from itertools import pairwise, permutations
from typing import Any

import pytest

from omniflow_core.graph.inside import segment_graph
from omniflow_core.graph.plan import InvalidGraphError, JoinKind, SegmentPlan, plan_graph
from omniflow_core.graph.spec import ChunkSpec, GraphSpec, NodeSpec, Replay
from tests.support.graphs import graph, node
from tests.support.lines import lines_run


def of(role: str, name: str, inputs: str = "x", outputs: str = "y", **options: Any) -> NodeSpec:
    """A node that a role serves."""
    return node(name, inputs, outputs, is_inline=False, role=role, **options)


def cut(nodes: tuple[NodeSpec, ...], edges: str, **options: Any) -> dict[str, str]:
    """Members of each segment in the order of the graph, by entry."""
    plan = plan_graph(graph(nodes, edges, **options))
    return {segment.entry: " ".join(n.name for n in segment.nodes) for segment in plan.segments}


def the_segment(nodes: tuple[NodeSpec, ...], edges: str, **options: Any) -> SegmentPlan:
    (segment,) = plan_graph(graph(nodes, edges, **options)).segments
    return segment


def chain(*nodes: NodeSpec) -> GraphSpec:
    """Each node gives y to the next one's x; the last one gives it out."""
    names = [n.name for n in nodes]
    edges = " ".join(f"{a}.y>{b}.x" for a, b in pairwise(names))
    return graph(nodes, f"x>{names[0]}.x {edges} {names[-1]}.y>out")


def cut_of(spec: GraphSpec) -> dict[str, str]:
    return {segment.entry: " ".join(n.name for n in segment.nodes) for segment in plan_graph(spec).segments}


def changed(spec: GraphSpec, name: str, **changes: Any) -> GraphSpec:
    nodes = tuple(dataclasses.replace(n, **changes) if n.name == name else n for n in spec.nodes)
    return dataclasses.replace(spec, nodes=nodes)


ABC = chain(of("r", "a"), of("r", "b"), of("r", "c"))
STEP_LOOP = (
    of("r", "step", "first: x; more: z", loop_bound=9),
    of("r", "cond"),
    of("r", "uncond"),
    of("r", "combine", "p q", "y again image"),
)
STEP_EDGES = (
    "x>step.first.x step.y>cond.x step.y>uncond.x cond.y>combine.p uncond.y>combine.q combine.again>step.more.z "
    "combine.image>out"
)


# --- what belongs together --------------------------------------------------------------------------------------------


def test_chain_of_one_role_is_one_segment() -> None:
    (segment,) = plan_graph(ABC).segments
    assert (segment.role, segment.entry, [n.name for n in segment.nodes]) == ("r", "a", ["a", "b", "c"])
    assert [(e.source_node, e.target_node) for e in segment.edges] == [("a", "b"), ("b", "c")]
    assert segment.exits == {"c": ("y",)}


def test_nodes_name_their_segment_and_whether_something_leaves_it() -> None:
    plan = plan_graph(ABC)
    (segment,) = plan.segments
    assert [plan.nodes[name].segment for name in "abc"] == [segment] * 3
    assert [plan.nodes[name].has_exits for name in "abc"] == [False, False, True]
    assert plan.source.segment is None


def test_loop_round_a_diamond_is_one_segment_with_its_join() -> None:
    plan = plan_graph(graph(STEP_LOOP, STEP_EDGES))
    (segment,) = plan.segments
    assert (segment.entry, len(segment.nodes), len(segment.edges)) == ("step", 4, 5)
    assert segment.exits == {"combine": ("image",)}
    assert [(join.node.name, join.segment) for join in plan.joins] == [("combine", segment)]


def test_nested_diamonds_are_one_segment() -> None:
    nodes = (*(of("r", name) for name in "abcde"), of("r", "i", "d e"), of("r", "j", "i c"))
    edges = "x>a.x a.y>b.x a.y>c.x b.y>d.x b.y>e.x d.y>i.d e.y>i.e i.y>j.i c.y>j.c j.y>out"
    assert cut(nodes, edges) == {"a": "a b c d e i j"}


def test_node_that_feeds_itself_is_a_segment() -> None:
    nodes = (of("r", "a", "first: x; more: z", "y again", loop_bound=5),)
    assert cut(nodes, "x>a.first.x a.again>a.more.z a.y>out") == {"a": "a"}


def test_single_node_is_no_segment() -> None:
    assert cut_of(chain(of("r", "a"))) == {}


def test_field_that_is_taken_inside_and_outside_is_an_exit() -> None:
    nodes = (of("r", "a", outputs="y z w"), of("r", "b"), node("k"))
    segment = the_segment(nodes, "x>a.x a.y>b.x a.y>k.x a.z>k.x a.w>out b.y>out k.y>out")
    assert segment.exits == {"a": ("y", "z", "w"), "b": ("y",)}
    assert [(e.source_field, e.target_node) for e in segment.edges] == [("y", "b")]


def test_segments_do_not_depend_on_the_order_of_definition() -> None:
    edges = f"{STEP_EDGES} combine.image>post.x post.y>out"
    for nodes in permutations((*STEP_LOOP, of("r", "post"))):
        segment = the_segment(nodes, edges)
        assert (segment.entry, segment.nodes) == ("step", nodes)


# --- where it ends ----------------------------------------------------------------------------------------------------


def test_another_role_ends_a_segment_and_may_begin_its_own() -> None:
    nodes = (of("r", "a"), of("r", "b"), of("s", "c"), of("s", "d"), of("r", "e"))
    plan = plan_graph(chain(*nodes))
    assert {s.entry: (s.role, [n.name for n in s.nodes]) for s in plan.segments} == {
        "a": ("r", ["a", "b"]),
        "c": ("s", ["c", "d"]),
    }


def test_inline_nodes_are_in_no_segment() -> None:
    assert cut_of(chain(of("r", "a"), node("b"), of("r", "c"))) == {}
    assert cut_of(chain(node("a"), node("b"))) == {}


def test_loop_that_leaves_the_role_is_not_inside() -> None:
    """What comes back from outside starts the entry anew."""
    nodes = (of("r", "a", "first: x; more: z", loop_bound=5), of("r", "b", outputs="y again"), node("k"))
    edges = "x>a.first.x a.y>b.x b.again>k.x k.y>a.more.z b.y>out"
    segment = the_segment(nodes, edges)
    assert [n.name for n in segment.nodes] == ["a", "b"]
    assert segment.exits == {"b": ("again", "y")}
    assert [(e.source_node, e.target_node) for e in segment.edges] == [("a", "b")]


@pytest.mark.parametrize(
    "changes",
    [
        {"timeout_s": 5.0},
        {"replay": Replay.RESTART},
        {"replay": Replay.CONTINUE},
    ],
)
def test_node_that_is_watched_or_started_again_is_in_no_segment(changes: dict[str, Any]) -> None:
    longer = chain(*(of("r", name) for name in "abcde"))
    assert cut_of(changed(longer, "a", **changes)) == {"b": "b c d e"}
    assert cut_of(changed(longer, "c", **changes)) == {"a": "a b", "d": "d e"}


def test_node_with_global_parameters_is_in_no_segment() -> None:
    spec = changed(dataclasses.replace(ABC, global_parameters=("voice",)), "a", global_parameters=("voice",))
    assert cut_of(spec) == {"b": "b c"}


def test_session_ordered_node_can_only_be_the_entry() -> None:
    assert cut_of(changed(ABC, "a", is_session_ordered=True)) == {"a": "a b c"}
    assert cut_of(changed(ABC, "b", is_session_ordered=True)) == {"b": "b c"}


def test_session_ordered_entry_is_fed_by_no_loop_inside() -> None:
    """Each of its activations waits for the one before, which only the control plane sees."""
    spec = changed(graph(STEP_LOOP, STEP_EDGES), "step", is_session_ordered=True)
    assert cut_of(spec) == {"step": "step cond uncond"}


def test_feeders_that_a_session_ordered_node_must_not_have_inside_may_follow_each_other() -> None:
    nodes = (of("r", "a", "first: x; more: p q", loop_bound=9, is_session_ordered=True), of("r", "b"), of("r", "c"))
    edges = "x>a.first.x a.y>b.x b.y>c.x b.y>a.more.p c.y>a.more.q c.y>out"
    assert cut(nodes, edges) == {"b": "b c"}


def test_node_behind_one_that_is_in_no_segment_takes_along_all_that_it_alone_leads_to() -> None:
    """h feeds itself although its activations must wait, so it can be in none; d joins what is near a with what is far."""
    h = of("r", "h", "first: x; more: z", "y again", loop_bound=9, is_session_ordered=True)
    nodes = (h, of("r", "a"), of("r", "b"), of("r", "c"), of("r", "d", "p q"))
    edges = "x>h.first.x h.again>h.more.z h.y>a.x a.y>b.x b.y>c.x a.y>d.p c.y>d.q d.y>out"
    assert cut(nodes, edges) == {"a": "a b c d"}


def test_count_join_can_only_be_the_entry() -> None:
    nodes = (of("r", "a"), of("r", "d", "img", counts="img=2"), of("r", "b"))
    assert cut(nodes, "x>a.x a.y>d.img d.y>b.x b.y>out") == {"d": "d b"}


def test_node_that_takes_chunks_can_only_be_the_entry() -> None:
    chunks = {"a.y>b.x": ChunkSpec(size=2)}
    assert cut(tuple(ABC.nodes), "x>a.x a.y>b.x b.y>c.x c.y>out", chunks=chunks) == {"b": "b c"}


def test_entry_takes_no_chunks_of_what_is_inside() -> None:
    nodes = (of("r", "a", "first: x; more: z", loop_bound=5), of("r", "b", outputs="y again"))
    edges = "x>a.first.x a.y>b.x b.again>a.more.z b.y>out"
    assert cut(nodes, edges) == {"a": "a b"}
    assert cut(nodes, edges, chunks={"b.again>a.more.z": ChunkSpec(size=2)}) == {}


def test_spread_nodes_and_others_are_apart() -> None:
    """A replica is chosen for each activation of one kind, and for the whole call for the other."""
    nodes = (of("r", "a"), of("r", "b"), of("r", "c", is_spread=True), of("r", "d", is_spread=True))
    assert cut_of(chain(*nodes)) == {"a": "a b", "c": "c d"}


# --- who feeds whom ---------------------------------------------------------------------------------------------------


def test_group_of_the_entry_that_is_fed_from_both_sides_keeps_what_feeds_it_out() -> None:
    """Its bucket has contributions that only the control plane knows."""
    nodes = (of("r", "a", "first: x; more: p q", loop_bound=5), of("r", "b"), node("k"), of("r", "c"))
    edges = "x>a.first.x a.y>b.x a.y>k.x b.y>a.more.p k.y>a.more.q a.y>c.x c.y>out"
    plan = plan_graph(graph(nodes, edges))
    assert [(s.entry, [n.name for n in s.nodes]) for s in plan.segments] == [("a", ["a", "c"])]
    assert [(join.group, join.segment) for join in plan.joins] == [("more", None)]


def test_entry_that_feeds_a_group_of_its_own_together_with_something_outside_is_none() -> None:
    nodes = (of("r", "a", "first: x; more: p q", loop_bound=5), node("k"), of("r", "c"))
    edges = "x>a.first.x a.y>k.x a.y>a.more.p k.y>a.more.q a.y>c.x c.y>out"
    assert cut(nodes, edges) == {}


def test_entry_that_feeds_itself_beside_a_branch_is_inside_with_it() -> None:
    nodes = (of("r", "a", "first: x; more: z w", "y again", loop_bound=5), of("r", "b"))
    assert cut(nodes, "x>a.first.x a.again>a.more.z a.y>b.x b.y>a.more.w b.y>out") == {"a": "a b"}


def test_alternative_groups_of_the_entry_are_fed_outside_and_inside() -> None:
    nodes = (of("r", "a", "text: x; image: p; more: z", loop_bound=5), of("r", "b", outputs="y again"))
    edges = "x>a.text.x i>a.image.p a.y>b.x b.again>a.more.z b.y>out"
    assert cut(nodes, edges, inputs="x", streaming="i") == {"a": "a b"}


def test_node_that_is_fed_by_two_entries_is_inside_neither() -> None:
    nodes = (of("r", "a"), of("r", "b"), of("r", "e"), of("r", "f"), of("r", "j", "one: x; two: z"), of("r", "k"))
    edges = "p>a.x q>e.x a.y>b.x e.y>f.x b.y>j.one.x f.y>j.two.z j.y>k.x k.y>out"
    assert cut(nodes, edges, inputs="", streaming="p q") == {"a": "a b", "e": "e f", "j": "j k"}


def test_node_with_an_input_of_the_call_is_not_inside() -> None:
    nodes = (of("r", "a"), of("r", "b", "x z"), of("r", "c"))
    assert cut(nodes, "x>a.x a.y>b.x z>b.z b.y>c.x c.y>out", inputs="x z") == {"b": "b c"}


def test_join_of_a_branch_inside_and_one_outside_is_not_inside() -> None:
    nodes = (of("r", "a"), of("r", "b"), node("k"), of("r", "j", "b k"), of("r", "c"))
    edges = "x>a.x a.y>b.x a.y>k.x b.y>j.b k.y>j.k j.y>c.x c.y>out"
    plan = plan_graph(graph(nodes, edges))
    assert {s.entry: [n.name for n in s.nodes] for s in plan.segments} == {"a": ["a", "b"], "j": ["j", "c"]}
    assert [join.segment for join in plan.joins] == [None], "its bucket is the control plane's"


def test_join_outside_that_is_anchored_inside_is_an_exit_like_any_other() -> None:
    nodes = (of("r", "a"), of("r", "b"), of("r", "c"), node("j", "p q"))
    plan = plan_graph(graph(nodes, "x>a.x a.y>b.x a.y>c.x b.y>j.p c.y>j.q j.y>out"))
    (segment,) = plan.segments
    assert segment.exits == {"b": ("y",), "c": ("y",)}
    assert [(join.anchor.name, join.segment) for join in plan.joins] == [("a", None)]


def test_join_that_is_its_own_anchor_loops_inside() -> None:
    nodes = (of("r", "j", "first: x; more: p q", loop_bound=5), of("r", "b"), of("r", "c"))
    edges = "x>j.first.x j.y>b.x j.y>c.x b.y>j.more.p c.y>j.more.q j.y>out"
    plan = plan_graph(graph(nodes, edges))
    (segment,) = plan.segments
    assert [n.name for n in segment.nodes] == ["j", "b", "c"]
    assert [(join.group, join.segment) for join in plan.joins] == [("more", segment)]


def test_entry_that_is_a_join_of_outside_is_not_fed_inside() -> None:
    nodes = (node("a"), node("b"), of("r", "j", "p q"), of("r", "c"))
    plan = plan_graph(graph(nodes, "x>a.x a.y>b.x a.y>j.p b.y>j.q j.y>c.x c.y>out"))
    assert [(s.entry, len(s.nodes)) for s in plan.segments] == [("j", 2)]
    assert [join.segment for join in plan.joins] == [None]


# --- cost -------------------------------------------------------------------------------------------------------------


def long_chain(count: int) -> GraphSpec:
    """One segment of all nodes."""
    return chain(*(of("r", f"n{i}") for i in range(count)))


def fed_everywhere(count: int) -> GraphSpec:
    """A chain in which each node has another group that the call feeds: none can follow another."""
    nodes = tuple(of("r", f"n{i}", "one: x; two: z") for i in range(count))
    edges = " ".join(f"n{i}.y>n{i + 1}.one.x x>n{i + 1}.two.z" for i in range(count - 1))
    return graph(nodes, f"x>n0.one.x {edges} n{count - 1}.y>out")


def loops_in_a_row(count: int) -> GraphSpec:
    """Two-node cycles, each behind the last."""
    nodes = []
    edges = ["x>a0.first.x"]
    for i in range(count // 2):
        nodes += [of("r", f"a{i}", "first: x; more: z", loop_bound=3), of("r", f"b{i}", outputs="y again")]
        edges += [f"a{i}.y>b{i}.x", f"b{i}.again>a{i}.more.z"]
        edges += [f"b{i}.y>a{i + 1}.first.x"] if i < count // 2 - 1 else [f"b{i}.y>out"]
    return graph(tuple(nodes), " ".join(edges))


@pytest.mark.parametrize("shape", [long_chain, fed_everywhere, loops_in_a_row])
def test_looking_for_segments_is_linear_in_nodes(shape: Callable[[int], GraphSpec]) -> None:
    half, whole = (lines_run(partial(plan_graph, shape(count))) for count in (100, 200))
    assert whole <= 2.4 * half


def test_heads_that_are_found_one_after_the_other_cost_little_more_than_planning() -> None:
    """The last of a row of nodes that feed each other to and fro is fed by the call, so in the end all of them are heads."""
    count = 60
    nodes = (of("r", "h"), *(of("r", f"n{i}", "one: x; two: z", loop_bound=3) for i in range(count)))
    edges = " ".join(f"n{i}.y>n{i + 1}.one.x n{i + 1}.y>n{i}.two.z" for i in range(count - 1))
    last = f"n{count - 1}"
    spec = graph((*nodes, node("k")), f"x>h.x h.y>n0.one.x {edges} x>k.x k.y>{last}.two.z {last}.y>out")
    inline = dataclasses.replace(spec, nodes=tuple(dataclasses.replace(n, role="", is_inline=True) for n in spec.nodes))
    assert plan_graph(spec).segments == ()
    assert lines_run(partial(plan_graph, spec)) <= 1.5 * lines_run(partial(plan_graph, inline))


# --- the graph inside -------------------------------------------------------------------------------------------------


def test_graph_inside_starts_the_entry_and_keeps_the_joins() -> None:
    segment = the_segment(STEP_LOOP, STEP_EDGES)
    inside = segment_graph(segment.nodes, segment.edges, segment.entry)
    assert [d.node.name for d in inside.source.deliveries] == ["step"]
    assert {(g.node, g.kind, g.anchor) for g in inside.groups if g.kind is JoinKind.PREFIX} == {
        ("combine", JoinKind.PREFIX, "step")
    }
    assert inside.nodes["step"].loop_bound == 9
    assert inside.nodes["combine"].emissions == ()


def test_graph_inside_has_neither_gate_nor_count_at_its_entry() -> None:
    nodes = (node("a"), of("r", "d", "img", counts="img=2"), of("r", "b"))
    segment = the_segment(nodes, "x>a.x a.y>d.img d.y>b.x b.y>out")
    assert segment_graph(segment.nodes, segment.edges, "d").count_joins == ()
    gated = plan_graph(changed(ABC, "a", is_session_ordered=True)).segments[0]
    assert segment_graph(gated.nodes, gated.edges, "a").gates == ()


def test_graph_inside_without_its_entry_is_an_error() -> None:
    segment = plan_graph(ABC).segments[0]
    with pytest.raises(InvalidGraphError) as caught:
        segment_graph(segment.nodes, segment.edges, "k")
    assert [f.reason for f in caught.value.findings] == ["UNKNOWN_NODE"]
