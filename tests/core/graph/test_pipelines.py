"""Which chains of a graph are pipelines. That they change nothing for a call is in tests/properties."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from itertools import pairwise, permutations
from typing import Any

import pytest

from omniflow_core.graph.anchors import Origins
from omniflow_core.graph.pipelines import find_pipelines
from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.references import with_groups
from omniflow_core.graph.spec import ChunkSpec, GraphSpec, NodeSpec, OnFailure, Replay
from tests.support.graphs import graph, node
from tests.support.lines import lines_run


def of(role: str, name: str, inputs: str = "x", outputs: str = "y", **options: Any) -> NodeSpec:
    """A streaming node that a role serves."""
    return node(name, inputs, outputs, is_inline=False, role=role, **options)


def found(nodes: tuple[NodeSpec, ...], edges: str, **options: Any) -> list[str]:
    """Nodes of each pipeline."""
    return found_in(graph(nodes, edges, **options))


def found_in(spec: GraphSpec) -> list[str]:
    return [" ".join(n.name for n in pipeline.nodes) for pipeline in plan_graph(spec).pipelines]


def chain(*nodes: NodeSpec) -> GraphSpec:
    """Each node gives y to the next one's x; the last one gives it out."""
    names = [n.name for n in nodes]
    edges = " ".join(f"{a}.y>{b}.x" for a, b in pairwise(names))
    return graph(nodes, f"x>{names[0]}.x {edges} {names[-1]}.y>out")


def changed(spec: GraphSpec, name: str, **changes: Any) -> GraphSpec:
    nodes = tuple(dataclasses.replace(n, **changes) if n.name == name else n for n in spec.nodes)
    return dataclasses.replace(spec, nodes=nodes)


A, B, C = of("r", "a"), of("s", "b"), of("t", "c")
ABC = chain(A, B, C)


# --- what a pipeline is -----------------------------------------------------------------------------------------------


def test_chain_of_different_roles_is_a_pipeline() -> None:
    plan = plan_graph(ABC)
    (pipeline,) = plan.pipelines
    assert (pipeline.entry, pipeline.nodes) == ("a", ABC.nodes)
    assert (pipeline.exits, pipeline.outputs) == ((("y", "out"),), ("y",))


def test_role_that_has_an_interface_twice_is_in_no_pipeline() -> None:
    other = of("r", "d")
    assert found_in(chain(A, B, other)) == ["a b d"]
    assert found_in(chain(A, B, dataclasses.replace(other, interface=A.interface))) == []


def test_only_the_first_node_names_its_pipeline() -> None:
    plan = plan_graph(ABC)
    assert plan.nodes["a"].pipeline is plan.pipelines[0]
    assert [plan.nodes[name].pipeline for name in "bc"] == [None, None]
    assert plan.source.pipeline is None


def test_first_delivery_of_each_node_leads_to_the_next() -> None:
    nodes = (of("r", "a", outputs="y z"), of("s", "b", "one: p q?; two: k?"), C)
    plan = plan_graph(graph(nodes, "x>a.x a.z>b.one.q a.y>b.one.p b.y>c.x c.y>out"))
    (pipeline,) = plan.pipelines
    assert [n.name for n in pipeline.nodes] == ["a", "b", "c"]
    (to_b,) = plan.nodes["a"].deliveries
    assert (to_b.node.name, to_b.group, to_b.fields) == ("b", "one", (("z", "q"), ("y", "p")))
    assert to_b.required == {"p"}


def test_exits_are_in_the_order_of_the_graph_and_fields_without_repeats() -> None:
    nodes = (A, of("s", "b", outputs="y z w"))
    plan = plan_graph(graph(nodes, "x>a.x b.z>p a.y>b.x b.y>p b.z>q", outputs="p", unordered="q"))
    (pipeline,) = plan.pipelines
    assert pipeline.exits == (("z", "p"), ("y", "p"), ("z", "q"))
    assert pipeline.outputs == ("z", "y")


def test_nodes_behind_the_first_need_not_be_streaming() -> None:
    assert found_in(changed(changed(ABC, "b", is_streaming=False), "c", is_streaming=False)) == ["a b c"]


def test_pipelines_are_found_side_by_side_in_the_order_of_the_graph() -> None:
    nodes = (of("s", "d"), A, of("r", "e"), B)
    edges = "x>a.x a.y>b.x b.y>p x>d.x d.y>e.x e.y>q"
    assert found(nodes, edges, outputs="p q") == ["d e", "a b"]


def test_pipelines_do_not_depend_on_the_order_of_definition() -> None:
    for nodes in permutations(ABC.nodes):
        (pipeline,) = plan_graph(dataclasses.replace(ABC, nodes=nodes)).pipelines
        assert [n.name for n in pipeline.nodes] == ["a", "b", "c"]


# --- members ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", "abc")
@pytest.mark.parametrize(
    "changes",
    [
        {"role": "", "is_inline": True},
        {"timeout_s": 5.0},
        {"replay": Replay.RESTART},
        {"replay": Replay.CONTINUE},
        {"is_session_ordered": True},
        {"loop_bound": 9},
        {"is_spread": True},
        {"on_failure": OnFailure.SKIP},
    ],
)
def test_node_that_needs_the_control_plane_is_in_none(name: str, changes: dict[str, Any]) -> None:
    assert found_in(changed(ABC, name, **changes)) == []


@pytest.mark.parametrize("name", "abc")
def test_node_with_global_parameters_is_in_none(name: str) -> None:
    spec = dataclasses.replace(ABC, global_parameters=("voice",))
    assert found_in(spec) == ["a b c"]
    assert found_in(changed(spec, name, global_parameters=("voice",))) == []


def test_count_join_is_in_none() -> None:
    edges = "x>a.x a.y>b.x b.y>out"
    assert found((A, B), edges) == ["a b"]
    assert found((A, of("s", "b", counts="x=2")), edges) == []
    assert found((of("r", "a", counts="x=1"), B), edges) == []


def test_nodes_of_a_segment_are_in_none() -> None:
    spec = with_groups(chain(A, B, of("s", "c")))
    assert [n.name for n in plan_graph(spec).segments[0].nodes] == ["b", "c"]
    assert found_in(spec) == []
    (pipeline,) = find_pipelines(spec, Origins(spec), segments=())
    assert [n.name for n in pipeline.nodes] == ["a", "b", "c"]


def test_node_behind_one_that_needs_the_control_plane_may_be_the_first() -> None:
    """k runs once and yields once, so a does too."""
    k = of("s", "k", is_streaming=False, timeout_s=5.0)
    assert found_in(chain(k, A, B)) == ["a b"]


# --- the first --------------------------------------------------------------------------------------------------------


def test_single_node_is_none() -> None:
    assert found_in(chain(A)) == []


def test_first_node_must_be_streaming() -> None:
    assert found_in(changed(chain(A, B), "a", is_streaming=False)) == []


def test_first_node_that_each_value_of_an_input_starts_is_none() -> None:
    edges = "s>a.x a.y>b.x b.y>out"
    assert found((A, B), edges, inputs="", streaming="s") == []


def test_first_node_that_each_yield_of_another_starts_is_none() -> None:
    assert found_in(chain(node("k"), A, B)) == []
    assert found_in(chain(node("k", is_streaming=False), A, B)) == ["a b"]


def test_first_node_with_two_groups_is_none() -> None:
    nodes = (of("r", "a", "one: x; two: z"), B)
    assert found(nodes, "x>a.one.x a.y>b.x b.y>out") == ["a b"]
    assert found(nodes, "x>a.one.x z>a.two.z a.y>b.x b.y>out", inputs="x z") == []


def test_first_node_in_a_loop_is_none() -> None:
    nodes = (of("r", "a", "one: x; two: z"), of("s", "b", outputs="y again"))
    edges = "x>a.one.x a.y>b.x b.y>out"
    assert found(nodes, edges) == ["a b"]
    looping = (dataclasses.replace(nodes[0], loop_bound=3), nodes[1])
    assert found(looping, f"{edges} b.again>a.two.z") == []


def test_first_node_that_takes_chunks_is_none() -> None:
    nodes = (node("k"), A, B)
    edges = "x>k.x k.y>a.x a.y>b.x b.y>out"
    assert found(nodes, edges, chunks={"k.y>a.x": ChunkSpec(size=2)}) == []


def test_first_node_may_be_a_join_that_runs_once() -> None:
    nodes = (node("k"), of("r", "a", "p q"), B)
    assert found(nodes, "x>k.x k.y>a.p x>a.q a.y>b.x b.y>out") == ["a b"]


# --- from node to node ------------------------------------------------------------------------------------------------


def test_node_that_gives_to_two_nodes_is_none() -> None:
    assert found((A, B, C), "x>a.x a.y>b.x a.y>c.x b.y>p c.y>q", outputs="p q") == []


def test_node_that_gives_to_two_groups_of_one_node_is_none() -> None:
    nodes = (of("r", "a", outputs="y z"), of("s", "b", "one: x; two: z"))
    assert found(nodes, "x>a.x a.y>b.one.x b.y>out") == ["a b"]
    assert found(nodes, "x>a.x a.y>b.one.x a.z>b.two.z b.y>out") == []


@pytest.mark.parametrize("name", "ab")
def test_node_that_gives_to_the_call_as_well_is_none(name: str) -> None:
    edges = "x>a.x a.y>b.x b.y>c.x c.y>p"
    assert found(ABC.nodes, f"{edges} {name}.y>q", outputs="p q") == []


def test_node_whose_yields_are_taken_in_chunks_is_none() -> None:
    for pair in ("a.y>b.x", "b.y>c.x"):
        spec = graph(ABC.nodes, "x>a.x a.y>b.x b.y>c.x c.y>out", chunks={pair: ChunkSpec(size=2)})
        assert found_in(spec) == []


def test_node_that_the_call_feeds_too_is_none() -> None:
    nodes = (A, of("s", "b", "x z?"))
    assert found(nodes, "x>a.x a.y>b.x b.y>out") == ["a b"]
    assert found(nodes, "x>a.x a.y>b.x z>b.z b.y>out", inputs="x z") == []


def test_node_that_another_node_feeds_too_is_none() -> None:
    nodes = (A, of("s", "b", "one: x; two: z"), node("k"))
    edges = "x>a.x a.y>b.one.x b.y>out x>k.x"
    assert found(nodes, f"{edges} k.y>p", outputs="out p") == ["a b"]
    assert found(nodes, f"{edges} k.y>b.two.z") == []


def test_first_nodes_that_meet_are_none() -> None:
    nodes = (A, of("t", "c"), of("s", "b", "one: x; two: x"))
    assert found(nodes, "x>a.x x>c.x a.y>b.one.x c.y>b.two.x b.y>out") == []


# --- the last ---------------------------------------------------------------------------------------------------------


def test_chain_whose_end_gives_nothing_out_is_none() -> None:
    edges = "x>a.x a.y>b.x x>k.x k.y>out"
    assert found((A, B, node("k")), f"{edges} b.y>p", outputs="out p") == ["a b"]
    assert found((A, B, node("k")), edges) == []


@pytest.mark.parametrize("other", ["k.y", "x"])
def test_output_that_something_else_gives_to_is_none(other: str) -> None:
    edges = "x>a.x a.y>b.x b.y>p x>k.x k.y>q"
    assert found((A, B, node("k")), edges, outputs="p q") == ["a b"]
    assert found((A, B, node("k")), f"{edges} {other}>p", outputs="p q") == []


def test_one_shared_output_of_several_is_enough() -> None:
    nodes = (A, of("s", "b", outputs="y z"))
    edges = "x>a.x a.y>b.x b.y>p b.z>q"
    assert found(nodes, edges, outputs="p q") == ["a b"]
    assert found(nodes, f"{edges} x>q", outputs="p q") == []


def test_chains_that_give_to_one_output_are_none() -> None:
    nodes = (A, B, of("s", "d"), of("r", "e"))
    assert found(nodes, "x>a.x a.y>b.x b.y>out x>d.x d.y>e.x e.y>out") == []


# --- cost -------------------------------------------------------------------------------------------------------------


def long_chain(count: int) -> GraphSpec:
    return chain(*(of("rs"[i % 2], f"n{i}") for i in range(count)))


def chains_that_meet(count: int) -> GraphSpec:
    """Many first nodes, each in a group of its own of one node."""
    groups = "; ".join(f"g{i}: x" for i in range(count))
    edges = " ".join(f"x>n{i}.x n{i}.y>b.g{i}.x" for i in range(count))
    return graph((*(of("r", f"n{i}") for i in range(count)), of("s", "b", groups)), f"{edges} b.y>out")


@pytest.mark.parametrize("shape", [long_chain, chains_that_meet])
def test_looking_for_pipelines_is_linear(shape: Callable[[int], GraphSpec]) -> None:
    def lines(count: int) -> int:
        spec = with_groups(shape(count))
        return lines_run(partial(list, find_pipelines(spec, Origins(spec), ())))

    assert lines(200) <= 2.2 * lines(100)
