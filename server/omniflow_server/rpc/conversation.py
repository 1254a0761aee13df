"""ConverseCall: several calls on one stream, told apart by client-chosen keys.

A message that cannot be taken fails the call that it is meant for. Only a message that names two calls at once, by a key in
use, ends the stream. Nothing here waits for a call, so a cancel is never behind the inputs of another.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import grpc

from omniflow.codec.error import status_to_proto
from omniflow.graph.v1 import graph_event_pb2
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.rpc_errors import ServicerContext
from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_server.control.call import Call
from omniflow_server.control.calls import CallTable
from omniflow_server.control.event_log import LogReader
from omniflow_server.control.membership import now_s
from omniflow_server.control.placement import Elsewhere, Here, Placement
from omniflow_server.data.metadata.port import Owner
from omniflow_server.rpc.event_stream import EventStream
from omniflow_server.rpc.forwarding import (
    BROKEN,
    LOOK_AGAIN_S,
    PLACE_S,
    BrokenConnectionError,
    Forwarding,
    give_identifier,
    is_forwarded,
)
from omniflow_server.rpc.peer_calls import PeerCalls
from omniflow_server.rpc.principal import tenant_of
from omniflow_server.rpc.validate import validate

PAST_KEYS = 1024
"""Keys of past calls that a conversation remembers."""
UNPLACED_LIMIT = 1024
"""Messages that wait for the place of their call; more end it."""
_TOO_MUCH = f"more than {UNPLACED_LIMIT} messages came before the call had a place"


class Conversation:
    """One ConverseCall stream: several calls by client-chosen keys."""

    def __init__(
        self, calls: CallTable, placement: Placement, forwarding: Forwarding, context: ServicerContext
    ) -> None:
        self._calls = calls
        self._placement = placement
        self._tenant = tenant_of(context)
        self._is_forwarded = is_forwarded(context)
        self._stream = EventStream(context, calls, is_shared=True)
        self._context = context
        self._forwarding = forwarding
        self._peers = PeerCalls(forwarding, context, self._stream, self)
        self._placing: dict[str, list[tuple[pb.ConverseMessage, str]]] = {}
        """Calls whose place is being looked for, with the messages that follow their start."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._by_key: dict[str, tuple[Call, LogReader]] = {}
        self._past: OrderedDict[str, None] = OrderedDict()
        """Keys whose call has ended or was refused: what was sent on their behalf meanwhile is dropped."""
        self._on_message: Mapping[str, Callable[[pb.ConverseMessage, str], None]] = {
            "start": self._start,
            "resume": self._resume,
            "input": self._input,
            "chunk": self._chunk,
            "cancel": self._cancel,
            "credit": self._credit,
            "tool_result": self._tool_result,
        }

    async def run(self, requests: Any) -> None:
        """Until the client has closed its side and every call has ended."""
        reading = asyncio.ensure_future(self._read(requests))
        try:
            await self._stream.run()
        except BrokenConnectionError:
            await self._context.abort(grpc.StatusCode.UNAVAILABLE, BROKEN)
        finally:
            reading.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.wait((reading, *self._tasks))
            await self._peers.close()

    async def _read(self, requests: Any) -> None:
        try:
            async for request in requests:
                for index, message in enumerate(request.messages):
                    self._take(message, f"messages[{index}]")
                await self._stream.wait_sent()
        except Exception as error:
            self._stream.fail(error)
        else:
            self._stream.finish()

    def _take(self, message: pb.ConverseMessage, path: str) -> None:
        """A message that cannot be taken fails its own call, never other calls; the stream only when no call is meant."""
        kind = message.WhichOneof("message")
        if kind in ("start", "resume"):
            self._check_free(message.call_key, f"{path}.{kind}")
            self._past.pop(message.call_key, None)
        elif message.call_key in self._past:
            return
        elif message.call_key in self._placing:
            self._keep(message, path)
            return
        self._take_now(message, kind, path)

    def _keep(self, message: pb.ConverseMessage, path: str) -> None:
        """For when its call has a place."""
        waiting = self._placing[message.call_key]
        waiting.append((message, path))
        if len(waiting) > UNPLACED_LIMIT and not message.HasField("cancel"):
            waiting[:] = [(pb.ConverseMessage(call_key=message.call_key, cancel=pb.Cancel(reason=_TOO_MUCH)), path)]

    def _take_now(self, message: pb.ConverseMessage, kind: str | None, path: str) -> None:
        if message.call_key in self._peers:
            self._peers.send(message)  # its owner checks it, and ends the call if it must
            return
        try:
            validate(message, f"{path}.")
            if kind is None:
                raise invalid_field(f"{path}.message", "no kind of message is set")
            self._on_message[kind](message, f"{path}.{kind}")
        except _AmbiguousKeyError:
            raise
        except OmniFlowError as error:
            self._refuse(message, kind, error)

    def _refuse(self, message: pb.ConverseMessage, kind: str | None, error: OmniFlowError) -> None:
        key = message.call_key
        known = self._by_key.get(key)
        if known is not None and kind not in ("start", "resume"):
            known[0].cancel_with(error.info)
            return
        self._leave(key)
        event = graph_event_pb2.GraphEvent(call_key=key, sequence=message.resume.after_sequence + 1)
        event.failed.status.CopyFrom(status_to_proto(error.info))
        self._stream.send(event)

    def _leave(self, key: str) -> None:
        self._past[key] = None
        if len(self._past) > PAST_KEYS:
            self._past.popitem(last=False)

    def _start(self, message: pb.ConverseMessage, path: str) -> None:
        start = message.start
        if start.call.call_key not in ("", message.call_key):
            raise invalid_field(f"{path}.call.call_key", "it differs from the message's call_key")
        start.call.call_key = message.call_key
        placed = self._placement.at_once(start.graph, start.call, self._tenant)
        if placed is None:
            self._look_for_place(message, path)
        else:
            self._accept(message, placed)

    def _look_for_place(self, message: pb.ConverseMessage, path: str) -> None:
        """The store must be asked; meanwhile the messages of other calls are taken, and those of this one wait."""
        self._placing[message.call_key] = []
        self._spawn(self._place(message, path, now_s()))

    def _spawn(self, placing: Coroutine[Any, Any, None]) -> None:
        self._stream.hold()
        task = asyncio.ensure_future(placing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _place(self, message: pb.ConverseMessage, path: str, begin_s: float) -> None:
        key = message.call_key
        try:
            while True:
                if await self._try_place(message, begin_s):
                    break
                await asyncio.sleep(LOOK_AGAIN_S)
        except OmniFlowError as error:
            self._refuse(message, "start", error)
        finally:
            waiting = self._placing.pop(key)
            self._stream.let_go()
        for following, following_path in waiting:
            if key not in self._past:
                self._take_now(following, following.WhichOneof("message"), following_path)

    async def _try_place(self, message: pb.ConverseMessage, begin_s: float) -> bool:
        """Gives the call its place. False when this process has begun to drain meanwhile, and somebody else takes it."""
        start = message.start
        placed = await self._placement.find(start.graph, start.call, self._tenant, is_forwarded=self._is_forwarded)
        if isinstance(placed, Elsewhere):
            give_identifier(start.call)
            self._peers.begin(placed.owner, message, begin_s=begin_s)
            return True
        try:
            self._accept(message, placed)
        except OmniFlowError as error:
            await self._placement.refused(placed, start.call, self._tenant)
            if error.reason is Reason.DRAINING and not self._is_forwarded and now_s() - begin_s < PLACE_S:
                return False
            raise
        return True

    # --- Starter ------------------------------------------------------------------------------------------------------

    def start_again(self, messages: list[pb.ConverseMessage], owner: Owner, begin_s: float) -> None:
        """An owner has not taken the call: it is placed again, and told all of the messages."""
        start, *following = messages
        self._placing[start.call_key] = [(message, "messages[0]") for message in following]
        self._spawn(self._place_later(start, owner, begin_s))

    async def _place_later(self, message: pb.ConverseMessage, owner: Owner, begin_s: float) -> None:
        await self._forwarding.look_again_later(Elsewhere(owner=owner))
        await self._place(message, "messages[0]", begin_s)

    def ended(self, key: str) -> None:
        """A call that was passed on has ended: what is still said to it is late."""
        self._leave(key)

    def _accept(self, message: pb.ConverseMessage, placed: Here) -> None:
        start = message.start
        call, is_replayed = self._calls.accept(
            start.graph, start.call, tenant=self._tenant, call_id=placed.call_id, fence=placed.fence
        )
        for key in [key for key, (_, reader) in self._by_key.items() if reader.is_done]:
            del self._by_key[key]
            self._leave(key)
        self._by_key[message.call_key] = (call, self._stream.attach(call, is_replayed=is_replayed))

    def _check_free(self, key: str, path: str) -> None:
        known = self._by_key.get(key)
        is_open = known is not None and not known[1].is_done  # the client may not have seen its end yet
        if is_open or key in self._placing or key in self._peers:
            raise _AmbiguousKeyError(
                Reason.PROTOCOL_VIOLATION, f"{path}: key {key!r} belongs to a call of this stream that has not ended."
            )

    def _resume(self, message: pb.ConverseMessage, path: str) -> None:
        call_id = self._calls.id_in_token(message.resume.resume_token, tenant=self._tenant)
        owner = None if self._is_forwarded else self._placement.owner_of(call_id)
        if owner is not None:
            self._peers.begin(owner, message)
            return
        call = self._calls.resume(message.resume.resume_token, tenant=self._tenant)
        if call.spec.call_key != message.call_key:  # its events carry the key that it was started under
            raise invalid_field(f"{path}.resume_token", f"the call was started under key {call.spec.call_key!r}")
        reader = self._stream.attach(call, after_sequence=message.resume.after_sequence)
        self._by_key[message.call_key] = (call, reader)

    def _input(self, message: pb.ConverseMessage, path: str) -> None:
        call = self._call(message)
        if call.takes_input:  # its end may have crossed the input on the way
            self._calls.push_input(call.call_id, message.input, tenant=self._tenant, path=path)

    def _chunk(self, message: pb.ConverseMessage, path: str) -> None:
        call = self._call(message)
        if call.takes_input:
            self._calls.add_chunk(call.call_id, message.chunk, tenant=self._tenant, path=path)

    def _cancel(self, message: pb.ConverseMessage, path: str) -> None:
        call = self._call(message)
        self._calls.cancel(call_id=call.call_id, request_id="", tenant=self._tenant, reason=message.cancel.reason)

    def _credit(self, message: pb.ConverseMessage, path: str) -> None:
        self._call(message)
        reader = self._by_key[message.call_key][1]
        reader.credit_bytes = (reader.credit_bytes or 0) + message.credit.size_bytes
        if reader.has_more and not reader.is_done:
            reader.notify()

    def _tool_result(self, message: pb.ConverseMessage, path: str) -> None:
        self._call(message)
        raise no_tool_call(f"{path}.tool_call_id", message.tool_result.tool_call_id)

    def _call(self, message: pb.ConverseMessage) -> Call:
        known = self._by_key.get(message.call_key)
        if known is None:
            raise OmniFlowError(
                Reason.PROTOCOL_VIOLATION, f"No call was started under key {message.call_key!r} on this stream."
            )
        return known[0]


class _AmbiguousKeyError(OmniFlowError):
    """Two calls under one key: events could not be told apart, so the stream ends."""


def no_tool_call(path: str, tool_call_id: str) -> OmniFlowError:
    """A tool result that nobody asked for."""
    return invalid_field(path, f"the call has not asked for a tool under {tool_call_id!r}")
