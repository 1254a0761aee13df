"""What the planner refuses, by name and with a fix, and what it compiles."""

from __future__ import annotations

import dataclasses
import time

import pytest

from omniflow_core.errors import Reason
from omniflow_core.graph.explain import explain
from omniflow_core.graph.plan import GraphPlan, InvalidGraphError, find_faults, plan_graph
from omniflow_core.graph.spec import ChunkSpec, CountTriggerSpec, FieldSpec, GraphSpec, GroupSpec, Replay
from tests.support.graphs import edge, graph, node


def faults(spec: GraphSpec) -> list[tuple[str, str]]:
    return [(f.reason, f.field) for f in find_faults(spec)]


def test_plan_chain_compiles_deliveries_and_emissions() -> None:
    plan = plan_graph(graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out a.y>out"))
    assert [(d.node.name, d.group, d.fields) for d in plan.source.deliveries] == [("a", "main", (("x", "x"),))]
    assert [d.node.name for d in plan.nodes["a"].deliveries] == ["b"]
    assert [(e.source_field, e.output, e.order) for e in plan.nodes["b"].emissions] == [("y", "out", 0)]
    assert plan.order == ("a", "b")


def test_plan_reaches_only_outputs_that_work_can_still_give() -> None:
    plan = plan_graph(graph((node("a"), node("b")), "x>a.x a.y>b.x a.y>first b.y>second", outputs="first second"))
    assert plan.source.reaches == (0, 1)
    assert plan.nodes["a"].reaches == (0, 1)
    assert plan.nodes["b"].reaches == (1,)


def test_plan_unordered_output_has_no_order() -> None:
    plan = plan_graph(graph((node("a"),), "x>a.x a.y>out", outputs="", unordered="out"))
    assert plan.ordered_outputs == ()
    assert plan.nodes["a"].emissions[0].order == -1


def test_plan_group_is_found_by_its_only_field() -> None:
    typed = GroupSpec(name="typed", fields=(FieldSpec(name="text", type="TEXT"),))
    spoken = GroupSpec(name="spoken", fields=(FieldSpec(name="transcript", type="TEXT"),))
    llm = dataclasses.replace(node("llm"), groups=(typed, spoken))
    plan = plan_graph(graph((node("a", outputs="y z"), llm), "x>a.x a.y>llm.text a.z>llm.transcript llm.y>out"))
    assert [d.group for d in plan.nodes["a"].deliveries] == ["typed", "spoken"]


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ("x>a.x a.z>out", ("UNKNOWN_FIELD", "edges[1].source_field")),
        ("x>b.x a.y>out", ("UNKNOWN_NODE", "edges[0].target_node")),
        ("b.y>a.x a.y>out", ("UNKNOWN_NODE", "edges[0].source_node")),
        ("z>a.x a.y>out", ("UNKNOWN_FIELD", "edges[0].source_field")),
        ("x>a.x a.y>other", ("UNKNOWN_FIELD", "edges[1].target_field")),
        ("x>a.q a.y>out", ("UNKNOWN_FIELD", "edges[0].target_field")),
    ],
)
def test_plan_rejects_unknown_names(edges: str, expected: tuple[str, str]) -> None:
    assert faults(graph((node("a"),), edges)) == [expected]


def test_plan_rejects_unknown_field_names_the_nearest() -> None:
    spec = graph((node("a", outputs="tokens"),), "x>a.x a.token>out")
    (finding,) = find_faults(spec)
    assert finding.message == "Node 'a' has no output 'token'."
    assert finding.fix == "Did you mean 'tokens'?"
    assert finding.node == "a"


def test_plan_rejects_type_mismatch() -> None:
    loud = dataclasses.replace(node("a"), outputs=(FieldSpec(name="y", type="AUDIO"),))
    spec = graph((loud,), "x>a.x a.y>out")
    (finding,) = find_faults(spec)
    assert (finding.reason, finding.field) == ("TYPE_MISMATCH", "edges[1]")
    assert "a.y is AUDIO, but out takes TEXT" in finding.message


def test_plan_rejects_required_field_without_route() -> None:
    assert faults(graph((node("a", inputs="x w"),), "x>a.x a.y>out")) == [("UNFED_FIELD", "nodes[0].input_groups[0]")]
    assert faults(graph((node("a", inputs="x w?"),), "x>a.x a.y>out")) == []


def test_plan_rejects_output_without_route() -> None:
    assert faults(graph((node("a"),), "x>a.x", outputs="out")) == [("UNFED_FIELD", "outputs[0]")]


def test_plan_rejects_duplicate_names() -> None:
    assert faults(graph((node("a"), node("a")), "x>a.x a.y>out")) == [("DUPLICATE_NAME", "nodes[1].name")]


def test_plan_rejects_group_with_several_sources() -> None:
    spec = graph((node("a"), node("b"), node("j", inputs="p q")), "x>a.x x>b.x a.y>j.p b.y>j.q j.y>out")
    (finding,) = find_faults(spec)
    assert (finding.reason, finding.node, finding.group) == ("UNSUPPORTED_JOIN", "j", "main")
    assert "a, b" in finding.message


def test_plan_rejects_mixed_placeholders() -> None:
    spec = graph((node("a", inputs="x s"),), "x>a.x s>a.s a.y>out", streaming="s")
    assert faults(spec) == [("MIXED_PLACEHOLDERS", "a.main")]


def test_plan_rejects_unreachable_node() -> None:
    lone = node("b", inputs="z?")
    assert faults(graph((node("a"), lone), "x>a.x a.y>out")) == [("UNREACHABLE_NODE", "nodes[1]")]


def test_plan_rejects_unbounded_cycle() -> None:
    a = dataclasses.replace(
        node("a", outputs="y again"),
        groups=(
            GroupSpec(name="first", fields=(FieldSpec(name="x", type="TEXT"),)),
            GroupSpec(name="more", fields=(FieldSpec(name="z", type="TEXT"),)),
        ),
    )
    edges = "x>a.x a.again>a.z a.y>out"
    assert faults(graph((a,), edges)) == [("UNBOUNDED_CYCLE", "nodes[0].loop_bound")]
    assert faults(graph((dataclasses.replace(a, loop_bound=3),), edges)) == []


def test_plan_rejects_node_without_role() -> None:
    assert faults(graph((node("a", is_inline=False),), "x>a.x a.y>out")) == [("ROLE_MISSING", "nodes[0].role")]


def test_plan_rejects_what_it_cannot_run() -> None:
    counted = node("a", activate_by_count=(CountTriggerSpec(field="x", constant=2),), replay=Replay.RESTART)
    spec = graph((counted,), "x>a.x a.y>out")
    spec = dataclasses.replace(
        spec, edges=(dataclasses.replace(edge("x", "a.x"), chunks=ChunkSpec(size=2)), spec.edges[1])
    )
    assert faults(spec) == [
        ("UNSUPPORTED", "nodes[0].activate_by_count"),
        ("UNSUPPORTED", "nodes[0].replay"),
        ("UNSUPPORTED", "edges[0].chunks"),
    ]


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


def test_plan_time_is_linear_in_edges() -> None:
    """Ten times the edges may cost thirty times at most: a quadratic planner would need a hundred."""

    def chain(length: int) -> GraphPlan:
        nodes = tuple(node(f"n{i}") for i in range(length))
        edges = " ".join(f"n{i}.y>n{i + 1}.x" for i in range(length - 1))
        spec = graph(nodes, f"x>n0.x {edges} n{length - 1}.y>out")
        start = time.process_time()
        plan = plan_graph(spec)
        durations.append(time.process_time() - start)
        return plan

    durations: list[float] = []
    chain(100)
    durations.clear()
    for length in (100, 1000):
        chain(length)
    assert durations[1] < 30 * max(durations[0], 1e-4)


def test_plan_leaves_an_unconnected_alternative_out() -> None:
    typed = GroupSpec(name="typed", fields=(FieldSpec(name="text", type="TEXT"),))
    spoken = GroupSpec(name="spoken", fields=(FieldSpec(name="transcript", type="TEXT"),))
    llm = dataclasses.replace(node("llm"), groups=(typed, spoken))
    assert faults(graph((llm,), "x>llm.text llm.y>out")) == []
    assert ("UNFED_FIELD", "nodes[0].input_groups[0]") in faults(graph((llm,), "llm.y>out"))
