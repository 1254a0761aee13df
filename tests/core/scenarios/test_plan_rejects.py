"""What a graph must not ask for: each finding names reason, field, node and group, and says what would fix it."""

from __future__ import annotations

import dataclasses

import pytest

from omniflow_core.graph.plan import InvalidGraphError, find_faults, plan_graph
from omniflow_core.graph.spec import ChunkSpec, FieldSpec, GraphSpec
from tests.support.graphs import graph, node

Expected = tuple[str, str, str, str]
"""Reason, field path, node and group."""


def assert_rejected(spec: GraphSpec, *expected: Expected) -> None:
    """The planner finds exactly that, and every finding says what would fix it."""
    findings = list(find_faults(spec))
    assert [(f.reason, f.field, f.node, f.group) for f in findings] == list(expected)
    assert all(f.fix and f.message for f in findings)
    with pytest.raises(InvalidGraphError) as caught:
        plan_graph(spec)
    assert caught.value.findings == tuple(findings)


# --- unknown names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ("x>a.x a.z>out", ("UNKNOWN_FIELD", "edges[1].source_field", "a", "")),
        ("x>a.q a.y>out", ("UNKNOWN_FIELD", "edges[0].target_field", "a", "")),
        ("x>a.main.q a.y>out", ("UNKNOWN_FIELD", "edges[0].target_field", "a", "main")),
        ("z>a.x a.y>out", ("UNKNOWN_FIELD", "edges[0].source_field", "", "")),
        ("x>a.x a.y>other", ("UNKNOWN_FIELD", "edges[1].target_field", "", "")),
    ],
)
def test_plan_rejects_unknown_field(edges: str, expected: Expected) -> None:
    assert_rejected(graph((node("a"),), edges), expected)


@pytest.mark.parametrize(
    ("edges", "field"), [("b.y>a.x a.y>out", "edges[0].source_node"), ("x>b.x a.y>out", "edges[0].target_node")]
)
def test_plan_rejects_unknown_node(edges: str, field: str) -> None:
    assert_rejected(graph((node("a"),), edges), ("UNKNOWN_NODE", field, "", ""))


def test_plan_rejects_unknown_group() -> None:
    spec = graph((node("a"),), "x>a.mian.x a.y>out")
    assert_rejected(spec, ("UNKNOWN_GROUP", "edges[0].target_group", "a", "mian"))
    assert next(find_faults(spec)).fix == "Did you mean 'main'?"


def test_plan_rejects_ambiguous_group() -> None:
    spec = graph((node("a", "one: x; two: x"),), "x>a.x a.y>out")
    assert_rejected(spec, ("AMBIGUOUS_GROUP", "edges[0].target_group", "a", ""))


def test_plan_rejects_unknown_global_parameter() -> None:
    spec = graph((node("a", global_parameters=("history",)),), "x>a.x a.y>out")
    assert_rejected(spec, ("UNKNOWN_GLOBAL_PARAMETER", "nodes[0].global_parameters[0]", "a", ""))
    plan_graph(dataclasses.replace(spec, global_parameters=("history",)))


# --- fields -----------------------------------------------------------------------------------------------------------


def test_plan_rejects_type_mismatch() -> None:
    loud = dataclasses.replace(node("a"), outputs=(FieldSpec(name="y", type="AUDIO"),))
    assert_rejected(graph((loud, node("b")), "x>a.x a.y>b.x b.y>out"), ("TYPE_MISMATCH", "edges[1]", "b", ""))
    assert_rejected(graph((loud, node("b")), "x>a.x a.y>b.main.x b.y>out"), ("TYPE_MISMATCH", "edges[1]", "b", "main"))


def test_plan_rejects_unfed_field() -> None:
    """A required field that no route can provide, even one of an alternative, once the graph uses that."""
    assert_rejected(
        graph((node("a", inputs="x w"),), "x>a.x a.y>out"), ("UNFED_FIELD", "nodes[0].input_groups[0]", "a", "main")
    )
    spec = graph((node("a", "one: x; two: y z"),), "x>a.one.x x>a.two.y a.y>out")
    assert_rejected(spec, ("UNFED_FIELD", "nodes[0].input_groups[1]", "a", "two"))


def test_plan_rejects_output_without_route() -> None:
    assert_rejected(graph((node("a"),), "x>a.x", outputs="out"), ("UNFED_FIELD", "outputs[0]", "", ""))


def test_plan_rejects_unreachable_node() -> None:
    spec = graph((node("a"), node("b", inputs="z?")), "x>a.x a.y>out")
    assert_rejected(spec, ("UNREACHABLE_NODE", "nodes[1]", "b", ""))


def test_plan_rejects_unreachable_source_of_a_join() -> None:
    """What cannot run cannot be joined either; the finding is the node, not the join."""
    nodes = (node("lone", inputs="z?"), node("j", "p q"))
    spec = graph(nodes, "x>j.p lone.y>j.q j.y>out")
    assert_rejected(spec, ("UNREACHABLE_NODE", "nodes[0]", "lone", ""))


def test_plan_rejects_unreachable_cycle() -> None:
    """Two nodes that feed each other, but that nothing leads to."""
    nodes = (node("a"), node("b", loop_bound=3), node("c"))
    spec = graph(nodes, "x>a.x b.y>c.x c.y>b.x a.y>out")
    assert_rejected(spec, ("UNREACHABLE_NODE", "nodes[1]", "b", ""), ("UNREACHABLE_NODE", "nodes[2]", "c", ""))


# --- joins ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "streaming", "edges"),
    [
        ("", "s t", "s>a.x t>b.x a.y>j.p b.y>j.q"),
        ("x", "s", "s>a.x x>b.x a.y>j.p b.y>j.q"),
        ("x", "s", "s>a.x x>j.q a.y>j.p a.y>b.x"),
        ("x", "s t", "t>a.x x>b.x a.y>j.p b.y>j.q"),
    ],
)
def test_plan_rejects_no_unique_anchor(inputs: str, streaming: str, edges: str) -> None:
    """Two streams, or a stream and a single input, have no common origin."""
    spec = graph(
        (node("a"), node("b"), node("j", "p q")), f"{edges} j.y>out", inputs=inputs, streaming=streaming, outputs="out"
    )
    assert_rejected(spec, ("NO_UNIQUE_ANCHOR", "nodes[2].input_groups[0]", "j", "main"))


@pytest.mark.parametrize(("inputs", "streaming"), [("", "x"), ("x", "")])
def test_plan_rejects_anchor_lost(inputs: str, streaming: str) -> None:
    """Every route passes a, but what d gives is gathered from all its yields."""
    nodes = (node("a"), node("d", "img", counts="img=2"), node("c"), node("j", "p q"))
    edges = "x>a.x a.y>d.img a.y>c.x d.y>j.p c.y>j.q j.y>out"
    spec = graph(nodes, edges, inputs=inputs, streaming=streaming)
    assert_rejected(spec, ("ANCHOR_LOST", "nodes[3].input_groups[0]", "j", "main"))
    (finding,) = find_faults(spec)
    assert "a count join on the way" in finding.message


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ((node("a"), node("b", "p q?", loop_bound=3), node("c")), "x>a.x a.y>b.p b.y>c.x c.y>b.q b.y>out"),
        ((node("a"), node("b", "p q", loop_bound=3), node("c")), "x>a.x a.y>b.p a.y>b.q b.y>c.x c.y>b.q b.y>out"),
    ],
)
def test_plan_rejects_indistinguishable_iterations(nodes: tuple, edges: str) -> None:  # type: ignore[type-arg]
    """What b gives comes back into the same bucket."""
    assert_rejected(graph(nodes, edges), ("INDISTINGUISHABLE_ITERATIONS", "nodes[1].input_groups[0]", "b", "main"))


def test_plan_rejects_indistinguishable_iterations_of_a_count_join() -> None:
    nodes = (node("a"), node("d", "img", counts="img=2", loop_bound=3))
    spec = graph(nodes, "x>a.x a.y>d.img d.y>d.img d.y>out")
    assert_rejected(spec, ("INDISTINGUISHABLE_ITERATIONS", "nodes[1].activate_by_count", "d", ""))


def test_plan_rejects_unbounded_cycle() -> None:
    a = node("a", "first: x; more: z", outputs="y again")
    spec = graph((a,), "x>a.first.x a.again>a.more.z a.y>out")
    assert_rejected(spec, ("UNBOUNDED_CYCLE", "nodes[0].loop_bound", "a", ""))
    plan_graph(dataclasses.replace(spec, nodes=(dataclasses.replace(a, loop_bound=3),)))


def test_plan_rejects_join_that_never_closes() -> None:
    """b needs what only it can bring about."""
    nodes = (node("a"), node("b", "p q", loop_bound=3), node("c"))
    spec = graph(nodes, "x>a.x a.y>b.p b.y>c.x c.y>b.q b.y>out")
    assert_rejected(spec, ("JOIN_NEVER_CLOSES", "nodes[1].input_groups[0]", "b", "main"))


def test_plan_rejects_count_join_that_never_closes() -> None:
    nodes = (node("a"), node("d", "img aud", counts="img=1 aud=1", loop_bound=3))
    spec = graph(nodes, "x>a.x a.y>d.img d.y>d.aud d.y>out")
    assert_rejected(spec, ("JOIN_NEVER_CLOSES", "nodes[1].activate_by_count", "d", ""))


def test_plan_rejects_mixed_placeholders() -> None:
    field = "nodes[0].input_groups[0]"
    spec = graph((node("a", inputs="x s"),), "x>a.x s>a.s a.y>out", streaming="s")
    assert_rejected(spec, ("MIXED_PLACEHOLDERS", field, "a", "main"))
    spec = graph((node("a", inputs="s t"),), "s>a.s t>a.t a.y>out", inputs="", streaming="s t")
    assert_rejected(spec, ("MIXED_PLACEHOLDERS", field, "a", "main"))


# --- count joins ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "counts", "edges", "field"),
    [
        ("img n#", "img=n", "x>d.img", "activate_by_count[0].count_field"),
        ("img", "img=n", "x>d.img", "activate_by_count[0].count_field"),
        ("img", "aud=1 img=1", "x>d.img", "activate_by_count[0].field"),
        ("img? meta", "img=1", "x>d.meta", "activate_by_count[0].field"),
    ],
)
def test_plan_rejects_missing_count_source(inputs: str, counts: str, edges: str, field: str) -> None:
    optional = inputs.replace("n#", "n#?")
    spec = graph((node("d", optional, counts=counts),), f"{edges} d.y>out")
    assert_rejected(spec, ("MISSING_COUNT_SOURCE", f"nodes[0].{field}", "d", ""))


def test_plan_rejects_count_that_is_no_json() -> None:
    spec = graph((node("d", "img n", counts="img=n"),), "x>d.img x>d.n d.y>out")
    assert_rejected(spec, ("TYPE_MISMATCH", "nodes[0].activate_by_count[0].count_field", "d", ""))


def test_plan_rejects_companion_without_trigger() -> None:
    """The facet may select nothing, so its companion could accompany nothing."""
    d = node("d", "pictures: img; notes: meta", counts="img=1")
    spec = graph((d,), "x>d.pictures.img x>d.notes.meta d.y>out")
    assert_rejected(spec, ("COMPANION_WITHOUT_TRIGGER", "nodes[0].input_groups[1]", "d", "notes"))


def test_plan_rejects_optional_companion() -> None:
    spec = graph((node("d", "img meta?", counts="img=1"),), "x>d.img x>d.meta d.y>out")
    assert_rejected(spec, ("OPTIONAL_COMPANION", "nodes[0].input_groups[0]", "d", "main"))


# --- gates and chunks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "streaming", "edges"), [("", "s t", "s>a.x t>gen.two.q"), ("x", "s", "x>a.x s>gen.two.q")]
)
def test_plan_rejects_no_common_origin(inputs: str, streaming: str, edges: str) -> None:
    gen = node("gen", "one: p; two: q", is_session_ordered=True)
    spec = graph((node("a"), gen), f"{edges} a.y>gen.one.p gen.y>out", inputs=inputs, streaming=streaming)
    assert_rejected(spec, ("NO_COMMON_ORIGIN", "nodes[1].is_session_ordered", "gen", ""))


@pytest.mark.parametrize(
    "chunks",
    [{"a.y>b.p": ChunkSpec(size=2)}, {"a.y>b.p": ChunkSpec(size=2), "a.z>b.q": ChunkSpec(size=3)}],
)
def test_plan_rejects_mixed_chunks(chunks: dict[str, ChunkSpec]) -> None:
    nodes = (node("a", outputs="y z"), node("b", "p q"))
    spec = graph(nodes, "x>a.x a.y>b.p a.z>b.q b.y>out", chunks=chunks)
    assert_rejected(spec, ("MIXED_CHUNKS", "edges[2].chunks", "b", "main"))


def test_plan_rejects_chunks_in_a_join() -> None:
    nodes = (node("a"), node("b"), node("j", "p q"))
    policy = ChunkSpec(size=2)
    spec = graph(nodes, "x>a.x a.y>b.x a.y>j.p b.y>j.q j.y>out", chunks={"a.y>j.p": policy, "b.y>j.q": policy})
    assert_rejected(
        spec,
        ("CHUNKS_IN_JOIN", "edges[2].chunks", "j", "main"),
        ("CHUNKS_IN_JOIN", "edges[3].chunks", "j", "main"),
    )
    counted = node("d", "img", counts="img=1")
    spec = graph((node("a"), counted), "x>a.x a.y>d.img d.y>out", chunks={"a.y>d.img": policy})
    assert_rejected(spec, ("CHUNKS_IN_JOIN", "edges[1].chunks", "d", "main"))


@pytest.mark.parametrize(
    ("policy", "inputs", "loop_bound"),
    [
        (ChunkSpec(size=0), "x", 0),
        (ChunkSpec(first=2), "x", 0),
        (ChunkSpec(size=2, left_context=-1), "x", 0),
        (ChunkSpec(size=2, stride=-1), "x", 0),
        (ChunkSpec(size=2, first=-1), "x", 0),
        (ChunkSpec(size=2, continues=True), "x", 3),
        (ChunkSpec(size=2, continues=True), "x?", 0),
    ],
)
def test_plan_rejects_invalid_chunks(policy: ChunkSpec, inputs: str, loop_bound: int) -> None:
    nodes = (node("a"), node("b", inputs, loop_bound=loop_bound))
    spec = graph(nodes, "x>a.x a.y>b.x b.y>out", chunks={"a.y>b.x": policy})
    assert_rejected(spec, ("INVALID_CHUNKS", "edges[1].chunks", "b", "main"))


def test_plan_finds_every_fault_of_different_kinds_at_once() -> None:
    nodes = (
        node("a"),
        node("b"),
        node("j", "p q"),
        node("d", "img n#?", counts="img=n"),
        node("lone", inputs="z?"),
    )
    spec = graph(nodes, "s>a.x t>b.x a.y>j.p b.y>j.q a.y>d.img j.y>out d.y>out", inputs="", streaming="s t")
    assert_rejected(
        spec,
        ("NO_UNIQUE_ANCHOR", "nodes[2].input_groups[0]", "j", "main"),
        ("MISSING_COUNT_SOURCE", "nodes[3].activate_by_count[0].count_field", "d", ""),
        ("UNREACHABLE_NODE", "nodes[4]", "lone", ""),
    )


def test_plan_rejects_chunks_of_a_single_input() -> None:
    """One value makes no stream."""
    spec = graph((node("a"),), "x>a.x a.y>out", chunks={"x>a.x": ChunkSpec(size=2)})
    assert_rejected(spec, ("INVALID_CHUNKS", "edges[0].chunks", "a", "main"))
