"""What happens inside a segment, as frames of its handle: every event of one occasion in one SegmentStep.

    the last branch gives its noise, which starts `guide`      ─▶ ExecuteResult {handle, segment_step {completed, started}}

Only what somebody outside waits for wakes the writer of the stream; the rest travels with it, or when the link has been
silent for a heartbeat.
"""

from __future__ import annotations

from omniflow.interface import Context, Outputs
from omniflow.large_values import INLINE_LIMIT
from omniflow.role.v1 import role_execution_service_pb2
from omniflow.values import Action, Buffer, Media, Tensor, Value
from omniflow_core.control.segments import RunInner
from omniflow_core.errors import ErrorInfo
from omniflow_roles.harness import results
from omniflow_roles.harness.segment_graphs import SegmentGraph
from omniflow_roles.harness.sink import MAX_TEXT_BYTES, Fields, ResultSink, check_size

_PLAIN_BYTES = 64
"""What a value counts for whose bytes are not counted."""


class SegmentSteps:
    """Events of one run of a segment, collected until `flush`."""

    __slots__ = ("_frame", "_graph", "_is_loud", "_sink", "_step", "_written_bytes")

    def __init__(self, sink: ResultSink, graph: SegmentGraph) -> None:
        self._sink = sink
        self._graph = graph
        self._is_loud = False
        self._renew()

    def started(self, command: RunInner) -> None:
        """An activation runs or waits."""
        event = self._step.events.add(inner_activation_id=command.inner_id)
        event.started.node = command.node
        event.started.input_group = command.group
        event.started.parent_activation_id = command.parent_id
        event.started.parent_ordinal = command.parent_ordinal

    def yielded(self, inner_id: int, node: str, ordinal: int, outputs: Outputs) -> tuple[int, int]:
        """One output; returns its bytes, and those of its payloads that no frame carries. Raises what `encode` raises, and
        INVALID_OUTPUT for what is too large to be sent."""
        fields, stored_bytes = self._leaving(node, outputs)
        event = self._step.events.add(inner_activation_id=inner_id)
        # `yield` is a word of Python, so the field is reached by its name as a string.
        return self._fill(getattr(event, "yield"), node, ordinal, outputs, fields, stored_bytes)

    def answered(self, inner_id: int, node: str, ordinal: int, outputs: Outputs, context: Context) -> tuple[int, int]:
        """The only output of an activation, and its end; returns and raises what `yielded` does."""
        fields, stored_bytes = self._leaving(node, outputs)
        done = self._step.events.add(inner_activation_id=inner_id).completed
        results.fill_completed(done, ordinal + 1, context)
        return self._fill(done.last_yield, node, ordinal, outputs, fields, stored_bytes)

    def completed(self, inner_id: int, yield_count: int, context: Context) -> None:
        """An activation ended well."""
        event = self._step.events.add(inner_activation_id=inner_id)
        results.fill_completed(event.completed, yield_count, context)

    def failed(self, inner_id: int, error: ErrorInfo, is_retryable: bool) -> None:
        """An activation failed."""
        event = self._step.events.add(inner_activation_id=inner_id)
        results.fill_failed(event.failed, error, is_retryable)

    def flush(self) -> None:
        """Queues what was collected."""
        if not self._step.events:
            return
        data = self._frame.SerializeToString()
        pump = self._sink.link.pump
        if self._is_loud:
            self._is_loud = False
            pump.send(data)
        else:
            pump.append(data)
        self._written_bytes += len(data)
        if self._written_bytes > results.RENEW_BYTES:
            self._renew()
        else:
            del self._step.events[:]

    def _leaving(self, node: str, outputs: Outputs) -> tuple[Fields, int]:
        """Messages of what leaves the segment, and the bytes of their payloads that went to the store."""
        exits = self._graph.exits.get(node)
        if exits is None:
            return (), 0
        fields, stored_bytes = self._sink.encoded((name, value) for name, value in outputs.items() if name in exits)
        size_bytes = sum(message.ByteSize() for _, message in fields)
        if size_bytes > MAX_TEXT_BYTES:
            check_size(node, fields, size_bytes)
        return fields, stored_bytes

    def _fill(
        self,
        message: role_execution_service_pb2.ActivationYield,
        node: str,
        ordinal: int,
        outputs: Outputs,
        fields: Fields,
        stored_bytes: int,
    ) -> tuple[int, int]:
        message.ordinal = ordinal
        for name, value in fields:
            message.fields[name].CopyFrom(value)
            self._is_loud = True
        for name in self._graph.inside.get(node, ()):
            if name in outputs:
                size_bytes, payload_bytes = _inside_size(outputs[name])
                message.inside_fields.append(name)
                message.inside_bytes += size_bytes
                message.inside_stored_bytes += payload_bytes
        message.SetInParent()
        return message.ByteSize() + message.inside_bytes, stored_bytes + message.inside_stored_bytes

    def _renew(self) -> None:
        """A message never gives memory back while it lives, so it is replaced after some bytes."""
        self._frame = role_execution_service_pb2.ExecuteResponse()
        self._step = self._frame.results.add(handle=self._sink.handle).segment_step
        self._written_bytes = 0


def _inside_size(value: Value) -> tuple[int, int]:
    """What a value that stays here counts for, and its payload when that counts as stored.

    Cheap rather than exact: it keeps a producer from running far ahead of its receivers, and both sides take it from here.
    """
    if type(value) is str:
        return len(value), 0
    data = _payload(value)
    if data is None:
        return _PLAIN_BYTES, 0
    size_bytes = memoryview(data).nbytes
    return (size_bytes, 0) if size_bytes <= INLINE_LIMIT else (_PLAIN_BYTES, size_bytes)


def _payload(value: Value) -> Buffer | None:
    if isinstance(value, Tensor | Media):
        return value.data
    if isinstance(value, Action):
        return value.values.data
    return value if isinstance(value, bytes | bytearray | memoryview) else None
