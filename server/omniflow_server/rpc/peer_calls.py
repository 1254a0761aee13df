"""Calls of a conversation that other control planes own: one ConverseCall stream to each owner, for all of them.

    client ──ConverseCall──▶ this process ──ConverseCall──▶ owner A     messages and events go through as they are
                                          ──ConverseCall──▶ owner B

Keys are the client's own, and unique in its stream, so they are so in each of these. What happens to an owner ends its calls
here with OWNER_LOST, each in its one terminal event.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from omniflow.codec.error import error_from_rpc
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.rpc_errors import ServicerContext
from omniflow_server.data.metadata.port import Owner
from omniflow_server.rpc.event_stream import EventStream
from omniflow_server.rpc.forwarding import Forwarding, OwnerGoneError, owner_gone, terminal


@dataclass(slots=True, eq=False)
class _Route:
    """The stream to one owner."""

    owner: Owner
    call: Any
    to_send: asyncio.Queue[pb.ConverseCallRequest | None] = field(default_factory=asyncio.Queue)
    sequences: dict[str, int] = field(default_factory=dict)
    """Of the last event of each call that has not ended."""
    tasks: tuple[asyncio.Task[None], ...] = ()


class PeerCalls:
    """The calls of one conversation that are owned elsewhere. `close` ends their streams; the owners detach the calls."""

    def __init__(self, forwarding: Forwarding, context: ServicerContext, stream: EventStream) -> None:
        self._forwarding = forwarding
        self._context = context
        self._stream = stream
        self._routes: dict[int, _Route] = {}
        self._by_key: dict[str, _Route] = {}

    def __contains__(self, key: str) -> bool:
        """The call of the key is owned elsewhere, and has not ended."""
        return key in self._by_key

    def begin(self, owner: Owner, message: pb.ConverseMessage) -> None:
        """Starts or resumes a call with its owner."""
        route = self._routes.get(owner.epoch) or self._open(owner)
        self._by_key[message.call_key] = route
        route.sequences[message.call_key] = message.resume.after_sequence if message.HasField("resume") else 0
        self._stream.hold()
        self._send(route, message)

    def send(self, message: pb.ConverseMessage) -> None:
        """Passes a message on to the owner of its call."""
        self._send(self._by_key[message.call_key], message)

    async def close(self) -> None:
        """Ends the streams to the owners."""
        for route in self._routes.values():
            route.call.cancel()
            for task in route.tasks:
                task.cancel()
        tasks = [task for route in self._routes.values() for task in route.tasks]
        if tasks:
            await asyncio.wait(tasks)

    def _send(self, route: _Route, message: pb.ConverseMessage) -> None:
        route.to_send.put_nowait(pb.ConverseCallRequest(messages=(message,)))

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
        error = owner_gone(route.owner)
        try:
            async for frame in self._forwarding.until_gone(route.call, route.owner):
                self._note(route, frame)
                self._stream.send_frame(frame)
                await self._stream.wait_written()
        except grpc.aio.AioRpcError as broken:
            stated = error_from_rpc(broken)
            error = stated if stated.is_stated else error
        except OwnerGoneError:
            pass
        self._routes.pop(route.owner.epoch, None)
        for key, sequence in tuple(route.sequences.items()):
            self._stream.send_frame(terminal(error.info, sequence + 1, key))
            self._ended(route, key)

    def _note(self, route: _Route, frame: bytes) -> None:
        for event in pb.ConverseCallResponse.FromString(frame).events:
            if event.call_key not in route.sequences:
                continue
            if event.WhichOneof("event") in ("finished", "failed"):
                self._ended(route, event.call_key)
            elif event.sequence:
                route.sequences[event.call_key] = event.sequence

    def _ended(self, route: _Route, key: str) -> None:
        del route.sequences[key]
        del self._by_key[key]
        self._stream.let_go()
