"""`omniflow.workflow.v1` messages to the core's frozen graph definition, and its nodes and edges back."""

from __future__ import annotations

from omniflow.common.v1 import value_pb2
from omniflow.workflow.v1 import graph_spec_pb2 as pb
from omniflow_core.graph import spec as core


def graph_spec_from_proto(message: pb.GraphSpec) -> core.GraphSpec:
    """The definition as the core sees it. Enum values that are not set mean their documented defaults."""
    return core.GraphSpec(
        name=message.name,
        nodes=tuple(_node(node) for node in message.nodes),
        edges=tuple(_edge(edge) for edge in message.edges),
        placeholders=tuple(
            core.PlaceholderSpec(field=_field(p.field), is_streaming=p.is_streaming) for p in message.placeholders
        ),
        outputs=tuple(core.OutputSpec(field=_field(o.field), is_unordered=o.is_unordered) for o in message.outputs),
        global_parameters=tuple(parameter.name for parameter in message.global_parameters),
    )


def node_to_proto(node: core.NodeSpec) -> pb.Node:
    """What a role needs to know of a node that it runs in a segment: its fields, limits and what becomes of failures."""
    return pb.Node(
        name=node.name,
        interface=node.interface,
        role=node.role,
        input_groups=[pb.InputGroup(name=g.name, fields=map(_field_to_proto, g.fields)) for g in node.groups],
        outputs=map(_field_to_proto, node.outputs),
        is_streaming=node.is_streaming,
        on_impossible=pb.ON_IMPOSSIBLE_SKIP if node.on_impossible is core.OnImpossible.SKIP else pb.ON_IMPOSSIBLE_FAIL,
        on_failure=pb.ON_FAILURE_SKIP if node.on_failure is core.OnFailure.SKIP else pb.ON_FAILURE_FAIL_CALL,
        yield_window=node.yield_window,
        loop_bound=node.loop_bound,
    )


def edge_to_proto(edge: core.EdgeSpec) -> pb.Edge:
    """An edge without a chunk policy."""
    return pb.Edge(
        source_node=edge.source_node,
        source_field=edge.source_field,
        target_node=edge.target_node,
        target_group=edge.target_group,
        target_field=edge.target_field,
    )


def _field_to_proto(field: core.FieldSpec) -> pb.Field:
    return pb.Field(
        name=field.name,
        type=f"VALUE_TYPE_{field.type}",
        is_optional=field.is_optional,
    )


def type_name(number: value_pb2.ValueType) -> str:
    """A value type without its prefix; unknown numbers keep their digits, so that they match nothing."""
    known = value_pb2.ValueType.values()
    return value_pb2.ValueType.Name(number).removeprefix("VALUE_TYPE_") if number in known else str(number)


_BALANCE = {
    pb.BALANCE_POLICY_ROUND_ROBIN: core.Balance.ROUND_ROBIN,
    pb.BALANCE_POLICY_RANDOM: core.Balance.RANDOM,
    pb.BALANCE_POLICY_POWER_OF_TWO: core.Balance.POWER_OF_TWO,
    pb.BALANCE_POLICY_CONSISTENT_HASH: core.Balance.CONSISTENT_HASH,
    pb.BALANCE_POLICY_SESSION_AFFINITY: core.Balance.SESSION_AFFINITY,
    pb.BALANCE_POLICY_COST_AWARE: core.Balance.COST_AWARE,
    pb.BALANCE_POLICY_KV_AWARE: core.Balance.KV_AWARE,
}
_ON_IMPOSSIBLE = {pb.ON_IMPOSSIBLE_SKIP: core.OnImpossible.SKIP}
_ON_FAILURE = {pb.ON_FAILURE_SKIP: core.OnFailure.SKIP}
_REPLAY = {pb.REPLAY_MODE_RESTART: core.Replay.RESTART, pb.REPLAY_MODE_CONTINUE: core.Replay.CONTINUE}


def _field(message: pb.Field) -> core.FieldSpec:
    return core.FieldSpec(name=message.name, type=type_name(message.type), is_optional=message.is_optional)


def _node(message: pb.Node) -> core.NodeSpec:
    return core.NodeSpec(
        name=message.name,
        interface=message.interface,
        role=message.role,
        groups=tuple(
            core.GroupSpec(name=group.name, fields=tuple(map(_field, group.fields))) for group in message.input_groups
        ),
        outputs=tuple(map(_field, message.outputs)),
        is_streaming=message.is_streaming,
        is_inline=message.is_inline,
        is_session_ordered=message.is_session_ordered,
        is_deterministic=message.is_deterministic,
        is_spread=message.is_spread,
        balance=_BALANCE.get(message.balance, core.Balance.LEAST_LOADED),
        cost_field=message.cost_field,
        activate_by_count=tuple(_trigger(trigger) for trigger in message.activate_by_count),
        on_impossible=_ON_IMPOSSIBLE.get(message.on_impossible, core.OnImpossible.FAIL),
        on_failure=_ON_FAILURE.get(message.on_failure, core.OnFailure.FAIL_CALL),
        replay=_REPLAY.get(message.replay, core.Replay.NONE),
        yield_window=message.yield_window,
        loop_bound=message.loop_bound,
        global_parameters=tuple(message.global_parameters),
        timeout_s=message.timeout.ToMilliseconds() / 1000 if message.HasField("timeout") else None,
    )


def _trigger(message: pb.CountTrigger) -> core.CountTriggerSpec:
    constant = message.constant if message.WhichOneof("count") == "constant" else None
    return core.CountTriggerSpec(field=message.field, count_field=message.count_field, constant=constant)


def _edge(message: pb.Edge) -> core.EdgeSpec:
    chunks = None
    if message.HasField("chunks"):
        policy = message.chunks
        chunks = core.ChunkSpec(
            first=policy.first,
            size=policy.size,
            stride=policy.stride,
            left_context=policy.left_context,
            flush=policy.flush if policy.HasField("flush") else True,
            continues=policy.continues,
        )
    return core.EdgeSpec(
        source_node=message.source_node,
        source_field=message.source_field,
        target_node=message.target_node,
        target_group=message.target_group,
        target_field=message.target_field,
        chunks=chunks,
    )
