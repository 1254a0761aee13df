"""Results of activations as frames of Execute: every frame is an `ExecuteResponse` with one result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omniflow.codec.error import status_to_proto
from omniflow.common.v1 import value_pb2
from omniflow.graph.v1 import graph_event_pb2
from omniflow.interface import Context
from omniflow.role.v1 import replica_pb2, role_execution_service_pb2
from omniflow_core.errors import ErrorInfo

_FINISH_REASONS: Mapping[str, graph_event_pb2.FinishReason] = {
    "": graph_event_pb2.FINISH_REASON_UNSPECIFIED,
    "stop": graph_event_pb2.FINISH_REASON_STOP,
    "length": graph_event_pb2.FINISH_REASON_LENGTH,
    "tool_calls": graph_event_pb2.FINISH_REASON_TOOL_CALLS,
}

RENEW_BYTES = 16 * 1024
"""Of yields made with one message, which keeps about four times that."""


def hello(replica: replica_pb2.Replica, value_endpoint: str, *, is_resumed: bool, received_messages: int) -> bytes:
    """The first message of a transport."""
    frame, result = _frame(0)
    result.hello.is_resumed = is_resumed
    result.hello.received_messages = received_messages
    result.hello.replica.CopyFrom(replica)
    result.hello.value_endpoint = value_endpoint
    return frame.SerializeToString()


def heartbeat() -> bytes:
    """The stream is alive."""
    frame, result = _frame(0)
    result.heartbeat.SetInParent()
    return frame.SerializeToString()


def load(now: replica_pb2.ReplicaLoad) -> bytes:
    """What runs and waits here, for those who share the replica."""
    frame, result = _frame(0)
    result.load.CopyFrom(now)
    return frame.SerializeToString()


def accepted(handle: int) -> bytes:
    """Taken in: waits or runs."""
    frame, result = _frame(handle)
    result.accepted.SetInParent()
    return frame.SerializeToString()


def answered(handle: int, ordinal: int, fields: Iterable[tuple[str, value_pb2.Value]], context: Context) -> bytes:
    """The only yield with the end."""
    frame, result = _frame(handle)
    last = result.completed.last_yield
    last.ordinal = ordinal
    for name, value in fields:
        last.fields[name].CopyFrom(value)
    last.SetInParent()
    fill_completed(result.completed, ordinal + 1, context)
    return frame.SerializeToString()


def completed(handle: int, yield_count: int, context: Context) -> bytes:
    """Last result on success."""
    frame, result = _frame(handle)
    fill_completed(result.completed, yield_count, context)
    return frame.SerializeToString()


def failed(handle: int, error: ErrorInfo, is_retryable: bool) -> bytes:
    """Last result on failure or when stopped."""
    frame, result = _frame(handle)
    fill_failed(result.failed, error, is_retryable)
    return frame.SerializeToString()


def refused(handle: int, error: ErrorInfo, is_retryable: bool) -> bytes:
    """The only result of an activation that is not taken in."""
    frame, result = _frame(handle)
    fill_failed(result.failed, error, is_retryable)
    result.failed.is_refused = True
    return frame.SerializeToString()


def fill_completed(message: role_execution_service_pb2.ActivationCompleted, yield_count: int, context: Context) -> None:
    """A finish reason that the contract does not know is left out."""
    message.yield_count = yield_count
    usage = context.usage
    if usage.input_tokens or usage.output_tokens or usage.cached_input_tokens:
        message.usage.input_tokens = context.usage.input_tokens
        message.usage.cached_input_tokens = context.usage.cached_input_tokens
        message.usage.output_tokens = context.usage.output_tokens
    if context.finish_reason:
        message.finish_reason = _FINISH_REASONS.get(context.finish_reason, _FINISH_REASONS[""])
    message.SetInParent()


def fill_failed(message: role_execution_service_pb2.ActivationFailed, error: ErrorInfo, is_retryable: bool) -> None:
    """The error of an activation, as the control plane hears it."""
    message.status.CopyFrom(status_to_proto(error))
    message.is_retryable = is_retryable


class PipelineTotals:
    """What an activation of a pipeline and all below it have done so far."""

    __slots__ = (
        "cached_input_tokens",
        "finish_reason",
        "input_tokens",
        "output_tokens",
        "started_activations",
        "yield_count",
    )

    def __init__(self) -> None:
        self.yield_count = 0
        """Yields that were sent under the handle of the exit."""
        self.started_activations = 0
        self.input_tokens = 0
        self.cached_input_tokens = 0
        self.output_tokens = 0
        self.finish_reason: graph_event_pb2.FinishReason = graph_event_pb2.FINISH_REASON_UNSPECIFIED
        """The most telling one; the contract numbers them in this order."""

    def add_own(self, context: Context) -> None:
        """What the activation itself has counted."""
        usage = context.usage
        self.input_tokens += usage.input_tokens
        self.cached_input_tokens += usage.cached_input_tokens
        self.output_tokens += usage.output_tokens
        if context.finish_reason:
            own = _FINISH_REASONS.get(context.finish_reason, _FINISH_REASONS[""])
            self.finish_reason = max(self.finish_reason, own)

    def add(self, message: role_execution_service_pb2.ActivationCompleted) -> None:
        """What an activation below it has reported."""
        self.yield_count += message.yield_count
        self.started_activations += message.started_activations
        if message.HasField("usage"):
            usage = message.usage
            self.input_tokens += usage.input_tokens
            self.cached_input_tokens += usage.cached_input_tokens
            self.output_tokens += usage.output_tokens
        if message.finish_reason:
            self.finish_reason = max(self.finish_reason, message.finish_reason)


def pipeline_completed(handle: int, totals: PipelineTotals) -> bytes:
    """Last result on success of an activation whose yields went on by themselves."""
    frame, result = _frame(handle)
    message = result.completed
    message.yield_count = totals.yield_count
    message.started_activations = totals.started_activations
    message.finish_reason = totals.finish_reason
    if totals.input_tokens or totals.output_tokens or totals.cached_input_tokens:
        message.usage.input_tokens = totals.input_tokens
        message.usage.cached_input_tokens = totals.cached_input_tokens
        message.usage.output_tokens = totals.output_tokens
    message.SetInParent()
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
        if self._written_bytes > RENEW_BYTES:
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
