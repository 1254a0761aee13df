"""Results of activations as frames of Execute: every frame is an `ExecuteResponse` with one result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omniflow.codec.error import status_to_proto
from omniflow.common.v1 import value_pb2
from omniflow.graph.v1 import graph_event_pb2
from omniflow.interface import Context, Usage
from omniflow.role.v1 import replica_pb2, role_execution_service_pb2
from omniflow_core.errors import ErrorInfo

_FINISH_REASONS: Mapping[str, graph_event_pb2.FinishReason] = {
    "": graph_event_pb2.FINISH_REASON_UNSPECIFIED,
    "stop": graph_event_pb2.FINISH_REASON_STOP,
    "length": graph_event_pb2.FINISH_REASON_LENGTH,
    "tool_calls": graph_event_pb2.FINISH_REASON_TOOL_CALLS,
}

_RENEW_BYTES = 16 * 1024
"""Of yields made with one message, which keeps about four times that."""


def hello(replica: replica_pb2.Replica, value_endpoint: str) -> bytes:
    """The first frame of a stream."""
    frame, result = _frame(0)
    result.hello.replica.CopyFrom(replica)
    result.hello.value_endpoint = value_endpoint
    return frame.SerializeToString()


def heartbeat() -> bytes:
    """The stream is alive."""
    frame, result = _frame(0)
    result.heartbeat.SetInParent()
    return frame.SerializeToString()


def accepted(handle: int) -> bytes:
    """Taken in: waits or runs."""
    frame, result = _frame(handle)
    result.accepted.SetInParent()
    return frame.SerializeToString()


def completed(handle: int, yield_count: int, context: Context) -> bytes:
    """Last result on success. A finish reason that the contract does not know is left out."""
    frame, result = _frame(handle)
    result.completed.yield_count = yield_count
    if context.usage != Usage():
        result.completed.usage.input_tokens = context.usage.input_tokens
        result.completed.usage.cached_input_tokens = context.usage.cached_input_tokens
        result.completed.usage.output_tokens = context.usage.output_tokens
    if context.finish_reason:
        result.completed.finish_reason = _FINISH_REASONS.get(context.finish_reason, _FINISH_REASONS[""])
    result.completed.SetInParent()
    return frame.SerializeToString()


def failed(handle: int, error: ErrorInfo, is_retryable: bool) -> bytes:
    """Last result on failure or when stopped."""
    frame, result = _frame(handle)
    result.failed.status.CopyFrom(status_to_proto(error))
    result.failed.is_retryable = is_retryable
    return frame.SerializeToString()


def progress(handle: int, done: int, total: int, message: str) -> bytes:
    """Progress of a long activation."""
    frame, result = _frame(handle)
    result.progress.completed = done
    result.progress.total = total
    result.progress.message = message
    return frame.SerializeToString()


class YieldFrames:
    """Frames of one activation's yields. The message is filled again for each: half the cost of building a new one.

    A message never gives memory back while it lives, also what `clear` forgets, so it is replaced after some bytes: an
    activation may yield for hours.
    """

    __slots__ = ("_fields", "_frame", "_handle", "_output", "_written_bytes")

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._renew()

    def frame(self, ordinal: int, fields: Iterable[tuple[str, value_pb2.Value]]) -> bytes:
        """The frame of one yield."""
        if self._written_bytes > _RENEW_BYTES:
            self._renew()
        self._output.ordinal = ordinal
        for name, value in fields:
            self._fields[name].CopyFrom(value)
        data = self._frame.SerializeToString()
        self._written_bytes += len(data)
        self._fields.clear()
        return data

    def _renew(self) -> None:
        self._frame, result = _frame(self._handle)
        # `yield` is a word of Python, so the field is reached by its name as a string.
        self._output: role_execution_service_pb2.ActivationYield = getattr(result, "yield")
        self._output.SetInParent()
        self._fields = self._output.fields
        self._written_bytes = 0


def _frame(
    handle: int,
) -> tuple[role_execution_service_pb2.ExecuteResponse, role_execution_service_pb2.ExecuteResult]:
    frame = role_execution_service_pb2.ExecuteResponse()
    return frame, frame.results.add(handle=handle)
