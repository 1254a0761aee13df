"""Where one activation's results go: frames on its link, large payloads to the value store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from omniflow.common.v1 import value_pb2
from omniflow.interface import Context, Outputs
from omniflow.internal_rpc import MAX_YIELD_BYTES
from omniflow.large_values import ValueStore, encode
from omniflow.links.outbox import Outbox
from omniflow.role.v1 import role_execution_service_pb2
from omniflow.values import Value
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_roles.harness import results

MAX_TEXT_BYTES = 1024 * 1024
"""Of one text value, as the contract says."""

Fields = Sequence[tuple[str, value_pb2.Value]]
"""Messages of a yield's values, by output field."""


class LinkEnd(Protocol):
    """What a sink needs of its link."""

    @property
    def pump(self) -> Outbox: ...
    def accepted(self, sink: ResultSink) -> None:
        """The activation was taken in; the peer is told soon, unless another result tells it first."""

    def ended(self, handle: int) -> None:
        """The activation has reported its last result."""

    def retained(self, call_id: str) -> None:
        """A value of the call is kept in the store."""


class ResultSink:
    """Implements `omniflow.activation.Sink` for one activation of an Execute stream."""

    __slots__ = ("_frames", "_node", "_send", "call_id", "handle", "has_reported", "link", "store")

    def __init__(
        self, handle: int, activation: role_execution_service_pb2.ActivationRef, link: LinkEnd, store: ValueStore
    ) -> None:
        self.handle = handle
        self.call_id = activation.call_id
        self.link = link
        self.store = store
        self._node = activation.node
        self._send: Callable[[bytes], None] = link.pump.send
        self._frames: results.YieldFrames | None = None
        self.has_reported = False
        """A result was given that says that the activation was accepted."""

    def accepted(self, *, is_told: bool) -> None:
        """`is_told`: by a result of its own, ahead of all others; else the first yield or the end may say it too."""
        if is_told:
            self.has_reported = True
            self.link.pump.append(results.accepted(self.handle))
        else:
            self.link.accepted(self)

    def yielded(self, ordinal: int, outputs: Outputs) -> int:
        fields, stored_bytes = self.encoded(outputs.items())
        frames = self._frames
        if frames is None:
            frames = self._frames = results.YieldFrames(self.handle)
        frame = frames.frame(ordinal, fields)
        if len(frame) > MAX_TEXT_BYTES:
            check_size(self._node, fields, len(frame))
        self.has_reported = True
        self._send(frame)
        return len(frame) + stored_bytes

    def encoded(self, outputs: Iterable[tuple[str, Value]]) -> tuple[Fields, int]:
        """Messages of values, and the bytes of their payloads that went to the store."""
        stored_bytes = 0
        fields = []
        for name, value in outputs:
            message, size = encode(value, self.call_id, self.store)
            fields.append((name, message))
            stored_bytes += size
        if stored_bytes:
            self.link.retained(self.call_id)
        return fields, stored_bytes

    def progress(self, completed: int, total: int, message: str) -> None:
        if not self.has_reported:
            self.accepted(is_told=True)
        self._send(results.progress(self.handle, completed, total, message))

    def answered(self, ordinal: int, outputs: Outputs, context: Context) -> None:
        fields, _ = self.encoded(outputs.items())
        frame = results.answered(self.handle, ordinal, fields, context)
        if len(frame) > MAX_TEXT_BYTES:
            check_size(self._node, fields, len(frame))
        self._end(frame)

    def completed(self, yield_count: int, context: Context) -> None:
        self._end(results.completed(self.handle, yield_count, context))

    def pipeline_completed(self, totals: results.PipelineTotals) -> None:
        """In place of `completed`, when the yields went on by themselves."""
        self._end(results.pipeline_completed(self.handle, totals))

    def failed(self, error: ErrorInfo, is_retryable: bool) -> None:
        self._end(results.failed(self.handle, error, is_retryable))

    def refused(self, error: ErrorInfo, is_retryable: bool) -> None:
        """In place of all others: the activation is not taken in."""
        self._end(results.refused(self.handle, error, is_retryable))

    def _end(self, frame: bytes) -> None:
        self.has_reported = True
        self._send(frame)
        self.link.ended(self.handle)


def check_size(node: str, fields: Fields, frame_bytes: int) -> None:
    """Raises INVALID_OUTPUT for a yield that no message may carry: it would end the stream, and with it everybody's work."""
    for name, message in fields:
        if message.WhichOneof("kind") == "text" and len(message.text.encode()) > MAX_TEXT_BYTES:
            what = f"a text of {len(message.text.encode())} bytes; at most {MAX_TEXT_BYTES} are allowed"
            raise _refusal(node, name, what)
    if frame_bytes > MAX_YIELD_BYTES:
        name, message = max(fields, key=lambda field: field[1].ByteSize())
        raise _refusal(
            node,
            name,
            f"{message.ByteSize()} bytes outside of payloads in a yield of {frame_bytes}; a yield may have at most "
            f"{MAX_YIELD_BYTES}",
        )


def _refusal(node: str, output: str, what: str) -> OmniFlowError:
    return OmniFlowError(
        Reason.INVALID_OUTPUT,
        f"node {node!r} gave for its output {output!r} {what}; give it in several yields",
        metadata={"node": node, "output": output},
    )
