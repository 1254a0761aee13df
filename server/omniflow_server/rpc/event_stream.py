"""Event streams to clients: the queued events of any number of calls, packed into as few messages as they fit.

A stream is one task that writes; readers wake it. What is queued goes out at once, nothing is delayed to batch but a call's
acceptance.
"""

from __future__ import annotations

import asyncio
from collections import deque

from omniflow.codec.error import status_to_proto
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.rpc_errors import ServicerContext
from omniflow_core.errors import OmniFlowError
from omniflow_server.control.call import Call
from omniflow_server.control.calls import CallTable
from omniflow_server.control.event_log import LogReader
from omniflow_server.control.frames import fragment

MESSAGE_BYTES = 256 * 1024
"""Events in one message: well under a client's default limit of 4 MiB, and short enough for others to get their turn."""
EXTRA_LIMIT = 256
"""Events outside of any log that may wait to be written."""
DEFAULT_HEARTBEAT_S = 15.0
_COMPANY_S = 0.005
"""A new call's acceptance waits so long for a first value to travel with: a message costs more than most short calls."""


class _Attached:
    """One call on the stream."""

    __slots__ = ("call", "heartbeat_s", "is_replayed", "is_waiting", "next_heartbeat_s", "reader")

    def __init__(self, call: Call, is_replayed: bool) -> None:
        self.call = call
        self.is_replayed = is_replayed
        self.is_waiting = False
        self.reader: LogReader | None = None
        interval = call.spec.heartbeat_interval
        self.heartbeat_s = (
            interval.ToMilliseconds() / 1000 if call.spec.HasField("heartbeat_interval") else DEFAULT_HEARTBEAT_S
        )
        self.next_heartbeat_s = 0.0


class EventStream:
    """Writes the events of attached calls to one RPC."""

    def __init__(self, context: ServicerContext, calls: CallTable, *, is_shared: bool = False) -> None:
        """`is_shared`: by calls that must not end each other."""
        self._context = context
        self._calls = calls
        self._is_shared = is_shared
        self._attached: dict[LogReader, _Attached] = {}
        self._ready: deque[_Attached] = deque()
        self._extra: list[bytes] = []
        self._sent = asyncio.Event()
        self._wake: asyncio.Future[None] | None = None
        self._is_closing = False
        self._held = 0
        """Calls whose events come from elsewhere, by `send_frame`."""
        self._failure: Exception | None = None

    def attach(self, call: Call, *, after_sequence: int = 0, is_replayed: bool = False) -> LogReader:
        """Streams a call's events after a sequence number. Raises EVENTS_TRIMMED."""
        attached = _Attached(call, is_replayed)
        attached.reader = reader = self._calls.attach(call, after_sequence, self._on_ready)
        attached.next_heartbeat_s = asyncio.get_running_loop().time() + attached.heartbeat_s
        self._attached[reader] = attached
        if after_sequence == 0 and not is_replayed and not reader.is_done:
            # So far it has only been accepted, and nobody waits for that as they wait for its first value.
            asyncio.get_running_loop().call_later(_COMPANY_S, self._on_late, reader)
        elif reader.has_more or reader.is_done:
            self._on_ready(reader)
        return reader

    def send(self, event: graph_event_pb2.GraphEvent) -> None:
        """Sends an event that belongs to no call's log: the refusal of a start."""
        self._extra.append(fragment(event))
        self._notify()

    def send_frame(self, frame: bytes) -> None:
        """Sends events of a call that another control plane owns, as they are."""
        self._extra.append(frame)
        self._notify()

    def hold(self) -> None:
        """A call whose events are sent from elsewhere keeps the stream open."""
        self._held += 1

    def let_go(self) -> None:
        """One of them has ended."""
        self._held -= 1
        self._notify()

    async def wait_written(self) -> None:
        """Returns when everything that was sent is on its way: a client that does not read holds its senders up."""
        while self._extra:
            self._sent.clear()
            await self._sent.wait()

    async def wait_sent(self) -> None:
        """Returns when what `send` queued is not too much: a client that does not read its refusals is read no further."""
        while len(self._extra) > EXTRA_LIMIT:
            self._sent.clear()
            await self._sent.wait()

    def finish(self) -> None:
        """No call will be attached any more: the stream ends with its last call."""
        self._is_closing = True
        self._notify()

    def fail(self, error: Exception) -> None:
        """Ends the stream itself with an error; its calls are detached, not cancelled."""
        self._failure = error
        self._notify()

    async def run(self) -> None:
        """Writes until every call has ended and `finish` was called. Detaches what is left when the RPC breaks."""
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(0)  # what the new call has started is written first: its caller waits for that
            while True:
                message = self._collect()
                if self._failure is not None:
                    raise self._failure
                if message:
                    await self._context.write(message)
                elif self._is_closing and not self._attached and not self._held:
                    return
                else:
                    await self._wait(loop)
        finally:
            for reader, attached in self._attached.items():
                self._calls.detach(attached.call, reader)
            self._attached.clear()

    def _on_late(self, reader: LogReader) -> None:
        if reader in self._attached and reader.has_more:
            self._on_ready(reader)

    def _on_ready(self, reader: LogReader) -> None:
        attached = self._attached[reader]
        if not attached.is_waiting:
            attached.is_waiting = True
            self._ready.append(attached)
            self._notify()

    def _notify(self) -> None:
        wake = self._wake
        if wake is not None and not wake.done():
            wake.set_result(None)

    def _collect(self) -> bytes:
        """What is queued, up to the size of a message; calls take turns."""
        parts, self._extra = self._extra, []
        self._sent.set()
        size = 0
        now_s = asyncio.get_running_loop().time()
        while self._ready and size < MESSAGE_BYTES:
            attached = self._ready.popleft()
            attached.is_waiting = False
            reader = attached.reader
            assert reader is not None
            is_first = reader.sequence == 0
            attached.next_heartbeat_s = now_s + attached.heartbeat_s
            try:
                fragments = reader.take(MESSAGE_BYTES - size)
            except OmniFlowError as error:
                self._leave_behind(attached, error)
                continue
            if is_first and attached.is_replayed and fragments:
                fragments[0] = _replayed(fragments[0])
            parts.extend(fragments)
            size += sum(map(len, fragments))
            if reader.is_done:
                self._detach(attached)
            elif reader.has_more:
                self._on_ready(reader)
        return b"".join(parts)

    def _detach(self, attached: _Attached) -> None:
        assert attached.reader is not None
        del self._attached[attached.reader]
        self._calls.detach(attached.call, attached.reader)

    def _leave_behind(self, attached: _Attached, error: OmniFlowError) -> None:
        """Another stream of the call has read ahead, and what this one has not read is no longer kept."""
        self._detach(attached)
        if not self._is_shared:
            self.fail(error)
            return
        event = graph_event_pb2.GraphEvent(call_key=attached.call.spec.call_key)
        event.failed.status.CopyFrom(status_to_proto(error.info))
        self._extra.append(fragment(event))

    async def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Until something is ready; calls that were silent for their heartbeat interval get a heartbeat."""
        now_s = loop.time()
        due_s = min((a.next_heartbeat_s for a in self._attached.values()), default=now_s + 3600)
        self._wake = loop.create_future()
        timer = loop.call_at(due_s, self._notify)
        try:
            await self._wake
        finally:
            timer.cancel()
            self._wake = None
        now_s = loop.time()
        for attached in self._attached.values():
            if now_s >= attached.next_heartbeat_s and not attached.is_waiting:
                attached.next_heartbeat_s = now_s + attached.heartbeat_s
                self._extra.append(_heartbeat(attached.call))


def _heartbeat(call: Call) -> bytes:
    event = graph_event_pb2.GraphEvent(call_key=call.spec.call_key, heartbeat=graph_event_pb2.Heartbeat())
    return fragment(event)


def _replayed(accepted: bytes) -> bytes:
    """The first event of a call for a client that joins it."""
    event = graph_service_pb2.StreamCallResponse.FromString(accepted).events[0]
    event.accepted.is_replayed = True
    return fragment(event)
