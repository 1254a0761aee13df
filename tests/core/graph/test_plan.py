"""What the planner compiles. What it refuses is in tests/core/scenarios/test_plan_rejects.py, joins in test_anchors.py."""

from __future__ import annotations

import pytest

from omniflow_core.errors import Reason
from omniflow_core.graph.explain import explain
from omniflow_core.graph.plan import InvalidGraphError, JoinKind, find_faults, plan_graph
from omniflow_core.graph.spec import ChunkSpec, GraphSpec, Replay
from tests.support.graphs import graph, node


def faults(spec: GraphSpec) -> list[tuple[str, str]]:
    return [(f.reason, f.field) for f in find_faults(spec)]


def test_plan_chain_compiles_deliveries_and_emissions() -> None:
    plan = plan_graph(graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out a.y>out"))
    assert [(d.node.name, d.group, d.fields) for d in plan.source.deliveries] == [("a", "main", (("x", "x"),))]
    assert [d.node.name for d in plan.nodes["a"].deliveries] == ["b"]
    assert [(e.source_field, e.output, e.order) for e in plan.nodes["b"].emissions] == [("y", "out", 0)]
    assert plan.order == ("a", "b")


def test_plan_reaches_only_outputs_that_work_can_still_give() -> None:
    nodes = (node("a"), node("b"), node("c"))
    plan = plan_graph(graph(nodes, "x>a.x a.y>b.x b.y>c.x b.y>first c.y>second", outputs="first second"))
    assert plan.source.reaches == (0, 1)
    assert plan.nodes["b"].reaches == (0, 1)
    assert plan.nodes["c"].reaches == (1,)


def test_plan_output_of_one_activation_needs_no_order() -> None:
    """What a single activation gives is in order by itself, be it a stream; several could overtake each other."""
    nodes = (node("a"), node("b"))
    plan = plan_graph(graph(nodes, "x>a.x a.y>b.x a.y>first b.y>second", outputs="first second"))
    assert plan.ordered_outputs == ("second",)
    assert [e.order for e in plan.nodes["a"].emissions] == [-1]
    both = plan_graph(graph(nodes, "x>a.x x>b.x a.y>out b.y>out", outputs="out"))
    assert both.ordered_outputs == ("out",)


def test_plan_unordered_output_has_no_order() -> None:
    plan = plan_graph(graph((node("a"),), "x>a.x a.y>out", outputs="", unordered="out"))
    assert plan.ordered_outputs == ()
    assert plan.nodes["a"].emissions[0].order == -1


def test_plan_group_is_found_by_its_only_field() -> None:
    nodes = (node("a", outputs="y z"), node("llm", "typed: text; spoken: transcript"))
    plan = plan_graph(graph(nodes, "x>a.x a.y>llm.text a.z>llm.transcript llm.y>out"))
    assert [(d.group, d.group_index) for d in plan.nodes["a"].deliveries] == [("typed", 0), ("spoken", 1)]
    assert [e.target_group for e in plan.spec.edges] == ["main", "typed", "spoken", ""]


def test_plan_tells_how_each_delivery_is_taken() -> None:
    nodes = (node("a"), node("b"), node("j", "p q"), node("d", "img", counts="img=2"), node("c"))
    edges = "x>a.x a.y>b.x a.y>j.p b.y>j.q a.y>d.img a.y>c.x j.y>out d.y>out c.y>out"
    plan = plan_graph(graph(nodes, edges, chunks={"a.y>c.x": ChunkSpec(size=2)}))
    assert [(d.node.name, d.kind, d.chunks is not None) for d in plan.nodes["a"].deliveries] == [
        ("b", JoinKind.SINGLE, False),
        ("j", JoinKind.PREFIX, False),
        ("d", JoinKind.COUNT, False),
        ("c", JoinKind.SINGLE, True),
    ]
    assert [n.name for n in plan.count_joins] == ["d"]


def test_plan_gate_counts_what_can_still_reach_it() -> None:
    """Trees of gates follow those of ordered outputs; what comes after the gated node does not reach its gate."""
    nodes = (node("a", outputs="y z"), node("gen", is_session_ordered=True), node("after"), node("aside"))
    plan = plan_graph(graph(nodes, "x>a.x a.y>gen.x gen.y>after.x a.z>aside.x after.y>out aside.y>out"))
    assert plan.gates == ("gen",)
    assert {n.name: n.reaches for n in plan.nodes.values()} == {
        "a": (0, 1),
        "gen": (0, 1),
        "after": (0,),
        "aside": (0,),
    }
    assert plan.source.reaches == (0, 1)


def test_plan_tracks_only_what_may_contribute() -> None:
    """Work on a route into the join, below its anchor; neither the anchor nor what leads elsewhere."""
    nodes = (node("s"), node("a"), node("b"), node("c"), node("u"), node("j", "b c"))
    plan = plan_graph(graph(nodes, "x>s.x s.y>a.x a.y>b.x a.y>c.x a.y>u.x b.y>j.b c.y>j.c u.y>out j.y>out"))
    assert {n.name: n.tracks for n in plan.nodes.values()} == {
        "s": (),
        "a": (),
        "b": (0,),
        "c": (0,),
        "u": (),
        "j": (),
    }
    assert [join.node.name for join in plan.nodes["a"].anchors] == ["j"]


def test_plan_dependency_edges_are_one_for_source_and_group() -> None:
    """Several fields from one node to one group are one dependency."""
    nodes = (node("a", outputs="y z"), node("b", "p q"), node("c"))
    plan = plan_graph(graph(nodes, "x>a.x a.y>b.p a.z>b.q a.y>c.x b.y>out c.y>out"))
    assert plan.dependency_edges == (("", "a", "main"), ("a", "b", "main"), ("a", "c", "main"))


@pytest.mark.parametrize("replay", list(Replay))
def test_plan_takes_every_replay_mode(replay: Replay) -> None:
    served = node("a", is_inline=False, role="worker", replay=replay)
    plan = plan_graph(graph((served,), "x>a.x a.y>out"))
    assert plan.roles == {"worker"}


def test_plan_rejects_unknown_field_names_the_nearest() -> None:
    spec = graph((node("a", outputs="tokens"),), "x>a.x a.token>out")
    (finding,) = find_faults(spec)
    assert finding.message == "Node 'a' has no output 'token'."
    assert finding.fix == "Did you mean 'tokens'?"
    assert finding.node == "a"


def test_plan_rejects_duplicate_names() -> None:
    assert faults(graph((node("a"), node("a")), "x>a.x a.y>out")) == [("DUPLICATE_NAME", "nodes[1].name")]


def test_plan_rejects_node_without_role() -> None:
    assert faults(graph((node("a", is_inline=False),), "x>a.x a.y>out")) == [("ROLE_MISSING", "nodes[0].role")]


def test_plan_error_carries_every_finding() -> None:
    with pytest.raises(InvalidGraphError) as caught:
        plan_graph(graph((node("a", inputs="x w"), node("b", inputs="v")), "x>a.x a.y>out"))
    assert caught.value.reason is Reason.INVALID_GRAPH
    assert [f.reason for f in caught.value.findings] == ["UNFED_FIELD", "UNFED_FIELD", "UNREACHABLE_NODE"]
    assert len(caught.value.violations) == 3


def test_explain_names_every_node_and_edge() -> None:
    plan = plan_graph(graph((node("a"), node("b", is_inline=False, role="r")), "x>a.x a.y>b.x b.y>out"))
    shown = explain(plan)
    assert "node   b: test.b (role r, streaming)" in shown
    assert "each yield starts b.main [single source] with y->x" in shown
    assert "each yield gives output out from y" in shown


def test_plan_leaves_an_unconnected_alternative_out() -> None:
    llm = node("llm", "typed: text; spoken: transcript")
    assert faults(graph((llm,), "x>llm.text llm.y>out")) == []
    assert ("UNFED_FIELD", "nodes[0].input_groups[0]") in faults(graph((llm,), "llm.y>out"))
