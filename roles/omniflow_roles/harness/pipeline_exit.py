"""The outlet of a pipeline's last stage: its yields are results on the control plane's link, under a handle of theirs.

    ExecuteResult {handle of the exit, yield {ordinal, fields, path}}    ordinals count all that leaves the run

The exit outlives its activations, as the next one goes on with its numbers: until the control plane cancels the handle, the
call ends, or the link does. Its window is the one that holds producers back: a yield that it has let go is delivered, also
when the control plane has not acknowledged it, which it only does at half of this window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from omniflow.interface import Outputs
from omniflow.large_values import ValueStore
from omniflow.send_window import SendWindow
from omniflow.wire import sized, varint
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_roles.harness.inputs import StartActivation
from omniflow_roles.harness.pipeline import Item, PipelineRun, StageSink
from omniflow_roles.harness.sink import MAX_TEXT_BYTES, LinkEnd, ResultSink, check_size

# Fields of the contract, each with its wire type.
_RESULTS = b"\x0a"  # ExecuteResponse.results = 1, length-delimited
_HANDLE = b"\x08"  # ExecuteResult.handle = 1, varint
_YIELD = b"\x22"  # ExecuteResult.yield = 4, length-delimited
_ORDINAL = b"\x08"  # ActivationYield.ordinal = 1, varint
_FIELDS = b"\x12"  # ActivationYield.fields = 2, length-delimited
_PATH = b"\x3a"  # ActivationYield.origin_path = 7, packed
_KEY = b"\x0a"  # of a map
_VALUE = b"\x12"  # of a map


class ExitLink(LinkEnd, Protocol):
    """What an exit needs of the link with the control plane."""

    def open_exit(self, handle: int, end: PipelineExit) -> None:
        """What comes under the handle concerns the exit. Raises PROTOCOL_VIOLATION for one that is 0 or in use."""

    def close_exit(self, handle: int) -> None:
        """The handle names nothing any more. Repeats change nothing."""


class PipelineExit:
    """Implements `Outlet`."""

    is_lasting = True

    def __init__(
        self,
        start: StartActivation,
        run: PipelineRun,
        link: ExitLink,
        store: ValueStore,
        on_over: Callable[[PipelineRun], None],
    ) -> None:
        """`start` is any of the stage. Raises PROTOCOL_VIOLATION for a handle that cannot be."""
        message = start.pipeline.exit
        self._run = run
        self._link = link
        self._node = start.activation.node
        self._handle = message.handle
        self._fields = frozenset(message.fields)
        self._keys = {name: sized(_KEY, name.encode()) for name in message.fields}
        self._window = SendWindow(message.yield_window, start.byte_credit)
        self._sink = ResultSink(message.handle, start.activation, link, store)
        self._prefix = _HANDLE + varint(message.handle) + _YIELD
        self._on_over = on_over
        link.open_exit(message.handle, self)

    @property
    def has_room(self) -> bool:
        return self._window.is_open

    def item(self, sink: StageSink, ordinal: int, outputs: Outputs) -> Item | None:
        """Raises what `ResultSink.yielded` raises."""
        given = [(name, value) for name, value in outputs.items() if name in self._fields]
        if not given:
            return None
        fields, stored_bytes = self._sink.encoded(given)
        parts = [
            sized(_FIELDS, self._keys[name] + sized(_VALUE, message.SerializeToString())) for name, message in fields
        ]
        parts.append(sized(_PATH, sink.path + varint(ordinal)))
        body = b"".join(parts)
        if len(body) > MAX_TEXT_BYTES:
            check_size(self._node, fields, len(body))
        return Item(sink, ordinal, body, stored_bytes)

    def send(self, item: Item) -> None:
        content = _ORDINAL + varint(self._window.next_ordinal) + item.body
        self._window.sent(item.size_bytes)
        self._link.pump.send(sized(_RESULTS, self._prefix + varint(len(content)) + content))
        item.sink.exited(item.ordinal)

    def drop(self, item: Item) -> None:
        """Its payloads are kept until the call is released, as those are that have left."""

    def acknowledge(self, next_ordinal: int) -> None:
        """The control plane has the yields below the ordinal."""
        self._window.ack(next_ordinal)
        self._run.pump()

    def cancel(self, reason: str) -> None:
        """Nothing more is to leave."""
        self._end(ErrorInfo(reason=Reason.CALL_CANCELLED, message=reason or "the pipeline was cancelled"))

    def lose(self) -> None:
        """The link has ended."""
        self._run.is_broken = True
        message = f"Node {self._node!r} lost the control plane that its outputs go to."
        self._end(ErrorInfo(reason=Reason.REPLICA_LOST, message=message, metadata={"node": self._node}))

    def close(self) -> None:
        self._link.close_exit(self._handle)

    def _end(self, error: ErrorInfo) -> None:
        self._run.stop(error)
        self._on_over(self._run)
