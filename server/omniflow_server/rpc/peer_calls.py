"""Calls of a conversation that other control planes own: one ConverseCall stream to each owner, for all of them.

    client ──ConverseCall──▶ this process ──ConverseCall──▶ owner A     messages and events go through as they are
                                          ──ConverseCall──▶ owner B

Keys are the client's own, and unique in its stream, so they are so in each of these.

    a call of which nothing was heard    its owner went, or refused it because it is none any more: placed again, with all
                                         that the client has said to it
    a call that was heard of             its owner went: OWNER_LOST, in its one terminal event
                                         only the connection broke: the client's stream breaks too, and it resumes its calls
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
import grpc.aio

from omniflow.codec.error import error_from_rpc, status_from_proto
from omniflow.graph.v1 import graph_event_pb2
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.rpc_errors import ServicerContext
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_server.control.membership import now_s
from omniflow_server.data.metadata.port import Owner
from omniflow_server.rpc.event_stream import EventStream
from omniflow_server.rpc.forwarding import (
    NOT_SAID,
    PLACE_S,
    BrokenConnectionError,
    Forwarding,
    OwnerGoneError,
    is_terminal,
    owner_gone,
    terminal,
)

UNSENT_LIMIT = 1024
"""Messages that may wait for one owner; a call that goes on sending then is ended."""
KEPT_BYTES = 8 * 1024 * 1024
"""Of a call's messages, to place it again with; one that has said more by then is lost with its owner."""


class Starter(Protocol):
    """The conversation, as its passed on calls see it."""

    def start_again(self, messages: list[pb.ConverseMessage], owner: Owner, begin_s: float) -> None:
        """The owner has not taken the call: it is placed again, and told all of the messages."""

    def ended(self, key: str) -> None:
        """The call has had its terminal event."""


@dataclass(slots=True, eq=False)
class _Route:
    """The stream to one owner."""

    owner: Owner
    call: Any
    to_send: asyncio.Queue[pb.ConverseCallRequest] = field(default_factory=asyncio.Queue)
    calls: dict[str, _PassedOn] = field(default_factory=dict)
    ended_here: set[str] = field(default_factory=set)
    """Keys of calls that were ended from here: what the owner still says of them is dropped, up to their end."""
    tasks: tuple[asyncio.Task[None], ...] = ()

    def close(self) -> None:
        self.call.cancel()
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()


@dataclass(slots=True, eq=False)
class _PassedOn:
    """A call with its owner."""

    route: _Route
    sequence: int
    """Of its last event."""
    begin_s: float
    said: list[pb.ConverseMessage] | None
    """What the client has said to it, for as long as nothing was heard of it; None when it cannot be placed again."""
    said_bytes: int = 0


class PeerCalls:
    """The calls of one conversation that are owned elsewhere. `close` ends their streams; the owners detach the calls."""

    def __init__(self, forwarding: Forwarding, context: ServicerContext, stream: EventStream, starter: Starter) -> None:
        self._forwarding = forwarding
        self._context = context
        self._stream = stream
        self._starter = starter
        self._routes: dict[int, _Route] = {}
        self._by_key: dict[str, _PassedOn] = {}

    def __contains__(self, key: str) -> bool:
        """The call of the key is owned elsewhere, and has not ended."""
        return key in self._by_key

    def begin(self, owner: Owner, message: pb.ConverseMessage, *, begin_s: float | None = None) -> None:
        """Starts or resumes a call with its owner."""
        route = self._routes.get(owner.epoch) or self._open(owner)
        if message.call_key in route.ended_here:
            raise OmniFlowError.of(
                _too_much()
            )  # the earlier call of the key has not ended there: which one would speak?
        is_start = message.HasField("start")
        passed = _PassedOn(
            route=route,
            sequence=0 if is_start else message.resume.after_sequence,
            begin_s=now_s() if begin_s is None else begin_s,
            said=[] if is_start else None,
        )
        self._by_key[message.call_key] = route.calls[message.call_key] = passed
        self._stream.hold()
        self._forwarding.hold()
        self._say(passed, message)

    def send(self, message: pb.ConverseMessage) -> None:
        """Passes a message on to the owner of its call."""
        passed = self._by_key[message.call_key]
        if passed.route.to_send.qsize() < UNSENT_LIMIT or message.HasField("cancel"):
            self._say(passed, message)
            return
        self._say(passed, pb.ConverseMessage(call_key=message.call_key, cancel=pb.Cancel(reason="too much waits")))
        passed.route.ended_here.add(message.call_key)
        self._end(message.call_key, _too_much())

    async def close(self) -> None:
        """Ends the streams to the owners."""
        routes = tuple(self._routes.values())
        for route in routes:
            route.close()
        tasks = [task for route in routes for task in route.tasks]
        if tasks:
            await asyncio.wait(tasks)
        for key in tuple(self._by_key):
            self._forget(key)

    def _say(self, passed: _PassedOn, message: pb.ConverseMessage) -> None:
        if passed.said is not None:
            passed.said.append(message)
            passed.said_bytes += message.ByteSize()
            if passed.said_bytes > KEPT_BYTES:
                passed.said = None
        passed.route.to_send.put_nowait(pb.ConverseCallRequest(messages=(message,)))

    def _open(self, owner: Owner) -> _Route:
        route = self._routes[owner.epoch] = _Route(owner, self._forwarding.conversation(owner, self._context))
        route.tasks = (asyncio.ensure_future(self._write(route)), asyncio.ensure_future(self._read(route)))
        return route

    async def _write(self, route: _Route) -> None:
        try:
            while True:
                message = await route.to_send.get()
                await route.call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream has ended, and the reading side knows why

    async def _read(self, route: _Route) -> None:
        error: OmniFlowError | None = None
        try:
            async for frame in self._forwarding.until_gone(route.call, route.owner):
                self._stream.send_frame(self._heard(route, frame))
                await self._stream.wait_written()
        except grpc.aio.AioRpcError as broken:
            error = error_from_rpc(broken)
        except OwnerGoneError:
            pass
        del self._routes[route.owner.epoch]
        route.close()
        if route.calls:
            await self._end_broken(route, error)

    async def _end_broken(self, route: _Route, error: OmniFlowError | None) -> None:
        """The owner's stream has ended under its calls."""
        if error is not None and error.is_stated and error.reason not in NOT_SAID:
            self._stream.fail(error)
            return
        self._place_unheard_again(route)
        if not route.calls:
            return
        if not await self._forwarding.is_gone(route.owner):
            self._stream.fail(BrokenConnectionError())
            return
        for key in tuple(route.calls):
            self._end(key, owner_gone(route.owner).info)

    def _place_unheard_again(self, route: _Route) -> None:
        for key, passed in tuple(route.calls.items()):
            if passed.said is not None and now_s() - passed.begin_s < PLACE_S:
                self._forget(key)
                self._starter.start_again(passed.said, route.owner, passed.begin_s)

    def _heard(self, route: _Route, frame: bytes) -> bytes:
        """Notes the events of a frame; without those of calls that are placed again."""
        message = pb.ConverseCallResponse.FromString(frame)
        kept = [event for event in message.events if not self._is_dropped(route, event)]
        for event in kept:
            passed = route.calls.get(event.call_key)
            if passed is None:
                continue
            passed.said = None
            passed.sequence = event.sequence or passed.sequence
            if is_terminal(event):
                self._forget(event.call_key)
                self._starter.ended(event.call_key)
        return frame if len(kept) == len(message.events) else pb.ConverseCallResponse(events=kept).SerializeToString()

    def _is_dropped(self, route: _Route, event: graph_event_pb2.GraphEvent) -> bool:
        """The client is not told: of a call that was ended here, and of a refusal after which the call is placed again."""
        if event.call_key in route.ended_here:
            if is_terminal(event):
                route.ended_here.discard(event.call_key)
            return True
        return self._is_placed_again(route, event)

    def _is_placed_again(self, route: _Route, event: graph_event_pb2.GraphEvent) -> bool:
        """The owner refuses a start because it is none, or none any more."""
        passed = route.calls.get(event.call_key)
        if passed is None or passed.said is None or not event.HasField("failed"):
            return False
        if status_from_proto(event.failed.status).reason not in NOT_SAID or now_s() - passed.begin_s >= PLACE_S:
            return False
        self._forget(event.call_key)
        self._starter.start_again(passed.said, route.owner, passed.begin_s)
        return True

    def _end(self, key: str, error: ErrorInfo) -> None:
        """The one terminal event of a call comes from here."""
        passed = self._by_key[key]
        self._stream.send_frame(terminal(error, passed.sequence + 1, key))
        self._forget(key)
        self._starter.ended(key)

    def _forget(self, key: str) -> None:
        passed = self._by_key.pop(key)
        del passed.route.calls[key]
        self._stream.let_go()
        self._forwarding.let_go()


def _too_much() -> ErrorInfo:
    return ErrorInfo(
        reason=Reason.BUFFER_FULL,
        message=f"More than {UNSENT_LIMIT} messages wait for the control plane that owns the call.",
        retry_after_s=1.0,
    )
