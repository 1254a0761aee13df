"""Where one activation's results go: frames on its link, large payloads to the value store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from omniflow.interface import Context, Outputs
from omniflow.large_values import ValueStore, encode
from omniflow_core.errors import ErrorInfo
from omniflow_roles.harness import results
from omniflow_roles.harness.pump import WriterPump


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

    __slots__ = ("_call_id", "_frames", "_handle", "_link", "_send", "_store")

    def __init__(self, handle: int, call_id: str, link: LinkEnd, store: ValueStore) -> None:
        self._handle = handle
        self._call_id = call_id
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
        self._send(frame)
        return len(frame) + stored_bytes

    def progress(self, completed: int, total: int, message: str) -> None:
        self._send(results.progress(self._handle, completed, total, message))

    def completed(self, yield_count: int, context: Context) -> None:
        self._send(results.completed(self._handle, yield_count, context))
        self._link.ended(self._handle)

    def failed(self, error: ErrorInfo, is_retryable: bool) -> None:
        self._send(results.failed(self._handle, error, is_retryable))
        self._link.ended(self._handle)
