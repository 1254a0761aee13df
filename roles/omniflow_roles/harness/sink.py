"""Where one activation's results go: frames on its link, large payloads to the value store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from omniflow.common.v1 import value_pb2
from omniflow.interface import Context, Outputs
from omniflow.internal_rpc import MAX_YIELD_BYTES
from omniflow.large_values import ValueStore, encode
from omniflow.role.v1 import role_execution_service_pb2
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_roles.harness import results
from omniflow_roles.harness.pump import WriterPump

MAX_TEXT_BYTES = 1024 * 1024
"""Of one text value, as the contract says."""


class LinkEnd(Protocol):
    """What a sink needs of its link."""

    @property
    def pump(self) -> WriterPump: ...
    def ended(self, handle: int) -> None:
        """The activation has reported its last result."""

    def retained(self, call_id: str) -> None:
        """A value of the call is kept in the store."""


class ResultSink:
    """Implements `omniflow.activation.Sink` for one activation of an Execute stream."""

    __slots__ = ("_call_id", "_frames", "_handle", "_link", "_node", "_send", "_store")

    def __init__(
        self, handle: int, activation: role_execution_service_pb2.ActivationRef, link: LinkEnd, store: ValueStore
    ) -> None:
        self._handle = handle
        self._call_id = activation.call_id
        self._node = activation.node
        self._link = link
        self._store = store
        self._send: Callable[[bytes], None] = link.pump.send
        self._frames = results.YieldFrames(handle)

    def accepted(self) -> None:
        """Only queued: the link wakes the pump when the whole frame of commands is taken in, so that what runs at once
        reports in the same message."""
        self._link.pump.append(results.accepted(self._handle))

    def yielded(self, ordinal: int, outputs: Outputs) -> int:
        stored_bytes = 0
        fields = []
        for name, value in outputs.items():
            message, size = encode(value, self._call_id, self._store)
            fields.append((name, message))
            stored_bytes += size
        if stored_bytes:
            self._link.retained(self._call_id)
        frame = self._frames.frame(ordinal, fields)
        if len(frame) > MAX_TEXT_BYTES:
            self._check_size(fields, len(frame))
        self._send(frame)
        return len(frame) + stored_bytes

    def _check_size(self, fields: Sequence[tuple[str, value_pb2.Value]], frame_bytes: int) -> None:
        """Raises INVALID_OUTPUT for what no message may carry: it would end the stream, and with it everybody's work."""
        for name, message in fields:
            if message.WhichOneof("kind") == "text" and len(message.text.encode()) > MAX_TEXT_BYTES:
                self._refuse(
                    name, f"a text of {len(message.text.encode())} bytes; at most {MAX_TEXT_BYTES} are allowed"
                )
        if frame_bytes > MAX_YIELD_BYTES:
            name, message = max(fields, key=lambda field: field[1].ByteSize())
            self._refuse(
                name,
                f"{message.ByteSize()} bytes outside of payloads in a yield of {frame_bytes}; a yield may have at most "
                f"{MAX_YIELD_BYTES}",
            )

    def _refuse(self, output: str, what: str) -> NoReturn:
        raise OmniFlowError(
            Reason.INVALID_OUTPUT,
            f"node {self._node!r} gave for its output {output!r} {what}; give it in several yields",
            metadata={"node": self._node, "output": output},
        )

    def progress(self, completed: int, total: int, message: str) -> None:
        self._send(results.progress(self._handle, completed, total, message))

    def completed(self, yield_count: int, context: Context) -> None:
        self._send(results.completed(self._handle, yield_count, context))
        self._link.ended(self._handle)

    def failed(self, error: ErrorInfo, is_retryable: bool) -> None:
        self._send(results.failed(self._handle, error, is_retryable))
        self._link.ended(self._handle)
