"""Graph messages to the planner's definition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omniflow.codec.workflow import graph_spec_from_proto, node_to_proto, type_name
from omniflow.common.v1 import value_pb2
from omniflow.workflow.v1 import graph_spec_pb2 as pb
from omniflow_core.graph import spec as core

EMPTY = core.NodeSpec(name="n", interface="i", groups=(), outputs=())


def node_of(**fields: object) -> core.NodeSpec:
    message = pb.GraphSpec(nodes=[pb.Node(name="n", interface="i", **fields)])  # type: ignore[arg-type]
    return graph_spec_from_proto(message).nodes[0]


def chunks_of(policy: pb.ChunkPolicy | None) -> core.ChunkSpec | None:
    edge = pb.Edge(source_field="x", target_node="n", target_field="y", chunks=policy)
    return graph_spec_from_proto(pb.GraphSpec(edges=[edge])).edges[0].chunks


def test_what_is_not_set_means_its_default() -> None:
    assert node_of() == EMPTY
    assert node_of(balance=0, on_impossible=0, on_failure=0, replay=0) == EMPTY


@pytest.mark.parametrize("field", ["balance", "on_impossible", "on_failure", "replay"])
def test_number_of_a_later_version_means_the_default(field: str) -> None:
    assert node_of(**{field: 99}) == EMPTY


@pytest.mark.parametrize(
    ("trigger", "want"),
    [
        (pb.CountTrigger(field="x", count_field="n"), core.CountTriggerSpec(field="x", count_field="n")),
        (pb.CountTrigger(field="x", constant=0), core.CountTriggerSpec(field="x", constant=0)),
        (pb.CountTrigger(field="x", constant=3), core.CountTriggerSpec(field="x", constant=3)),
        (pb.CountTrigger(field="x"), core.CountTriggerSpec(field="x")),
    ],
)
def test_count_of_a_trigger_is_a_field_or_a_constant_or_missing(
    trigger: pb.CountTrigger, want: core.CountTriggerSpec
) -> None:
    assert node_of(activate_by_count=[trigger]) == replace(EMPTY, activate_by_count=(want,))


def test_cost_field_is_taken_as_it_is() -> None:
    assert node_of(balance=pb.BALANCE_POLICY_COST_AWARE, cost_field="steps") == replace(
        EMPTY, balance=core.Balance.COST_AWARE, cost_field="steps"
    )


def test_node_of_a_segment_says_nothing_of_balance_and_cost() -> None:
    """A replica chooses none, and plans the entry without the groups that are fed outside, which may have that field."""
    node = replace(EMPTY, role="r", balance=core.Balance.COST_AWARE, cost_field="steps")
    assert node_to_proto(node) == node_to_proto(replace(EMPTY, role="r"))


def test_rest_of_chunks_is_given_unless_it_is_declined() -> None:
    assert chunks_of(None) is None
    assert chunks_of(pb.ChunkPolicy(size=4)) == core.ChunkSpec(size=4, flush=True)
    assert chunks_of(pb.ChunkPolicy(size=4, flush=True)) == core.ChunkSpec(size=4, flush=True)
    assert chunks_of(pb.ChunkPolicy(flush=False, continues=True)) == core.ChunkSpec(flush=False, continues=True)
    assert chunks_of(pb.ChunkPolicy(first=1, size=2, stride=3, left_context=4)) == core.ChunkSpec(
        first=1, size=2, stride=3, left_context=4
    )


def test_type_is_its_name_without_prefix() -> None:
    assert type_name(value_pb2.VALUE_TYPE_TEXT) == "TEXT"
    assert type_name(99) == "99"  # type: ignore[arg-type]
