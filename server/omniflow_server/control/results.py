"""What replicas report of activations, as events of the core."""

from __future__ import annotations

import dataclasses

from omniflow.codec.error import status_from_proto
from omniflow.graph.v1 import graph_event_pb2
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow_core.control.events import ActivationFinished, ActivationYielded, ExitYielded, Value
from omniflow_core.errors import ErrorInfo
from omniflow_server.control.carried import INSIDE, CarriedValue

_FINISH_REASONS = {
    graph_event_pb2.FINISH_REASON_STOP: "stop",
    graph_event_pb2.FINISH_REASON_LENGTH: "length",
    graph_event_pb2.FINISH_REASON_TOOL_CALLS: "tool_calls",
}


def yielded(activation_id: int, attempt: int, message: pb.ActivationYield) -> ActivationYielded:
    """One output. Values that stay inside a segment are there by name only."""
    size_bytes = message.ByteSize()
    fields, stored_bytes = _carried(message)
    if message.inside_fields:
        fields.update(dict.fromkeys(message.inside_fields, INSIDE))
        size_bytes += message.inside_bytes
        stored_bytes += message.inside_stored_bytes
    return ActivationYielded(activation_id, message.ordinal, fields, size_bytes, attempt, stored_bytes)


def left(activation_id: int, attempt: int, message: pb.ActivationYield) -> ExitYielded:
    """A yield of a pipeline's last node."""
    fields, stored_bytes = _carried(message)
    return ExitYielded(
        activation_id, message.ordinal, fields, tuple(message.origin_path), message.ByteSize(), attempt, stored_bytes
    )


def _carried(message: pb.ActivationYield) -> tuple[dict[str, Value], int]:
    """The values of a yield, and the bytes of payloads that other processes keep of it."""
    fields: dict[str, Value] = {}
    stored_bytes = 0
    for name, value in message.fields.items():
        carried = fields[name] = CarriedValue(message=value)
        stored_bytes += carried.stored_bytes
    return fields, stored_bytes


def finished(activation_id: int, attempt: int, message: pb.ActivationCompleted) -> ActivationFinished:
    """The last result on success, with the last yield when that came along."""
    usage = message.usage
    event = ActivationFinished(
        activation_id,
        message.yield_count,
        _FINISH_REASONS.get(message.finish_reason, ""),
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.output_tokens,
        attempt,
    )
    event.started_activations = message.started_activations
    if message.HasField("last_yield"):
        last = yielded(activation_id, attempt, message.last_yield)
        event.last, event.size_bytes, event.stored_bytes = last.fields, last.size_bytes, last.stored_bytes
    return event


def error_of(message: pb.ActivationFailed, node: str) -> ErrorInfo:
    """The error with the node in its metadata, whatever the replica said."""
    return named(status_from_proto(message.status), node)


def named(error: ErrorInfo, node: str) -> ErrorInfo:
    """The error with the node that it is about."""
    return dataclasses.replace(error, metadata={"node": node, **error.metadata})
