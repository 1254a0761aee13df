"""One call of a conversation, apart from the stream that carries it.

    push, tool_result, cancel -> Lane: a queue -> next_message, which the carrier asks for when it may write
    take, which the carrier calls with each event -> Lane: what is ready -> ConversationCall, what the user holds

A slow reader does not hold up the other calls of the stream: each lane has a window of event bytes that it grants and
renews (`Credit`). When the stream is lost, the carrier detaches the lane and attaches it to the next one, where the call
is resumed. A call that was given values since its start cannot be: nothing acknowledges them, so it ends with
CONNECTION_LOST rather than risking a lost or doubled value.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from omniflow.assembly import EventAssembler
from omniflow.calls import cancelled, lost
from omniflow.events import Accepted, Event
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.handle import CallHandle
from omniflow.requests import InputValue, PreparedCall, Upload, encode_input
from omniflow.results import CallResult, collect
from omniflow_core.errors import OmniFlowError, Reason

QUEUE_BYTES = 1024 * 1024
"""`push` waits while a call has more than this to send."""

_Message = graph_service_pb2.ConverseMessage


class Carrier(Protocol):
    """What a lane knows of its conversation."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that everything here runs on."""

    def wants_to_send(self, lane: Lane) -> None:
        """The lane has messages queued."""

    def forget(self, lane: Lane) -> None:
        """The lane has ended."""

    def cancel_in_background(self, lane: Lane, reason: str) -> asyncio.Task[None] | None:
        """Cancels the lane's call on a path of its own."""


class ConversationCall(CallHandle["Lane"]):
    """A call of a conversation: iterate its events, push values, answer tool calls, cancel.

    The iteration ends with `Finished` or raises OmniFlowError. It may be left and taken up again; a call ends early by
    `cancel`, by dropping this object, or with its conversation.
    """

    __slots__ = ()

    _drop_reason = "the caller dropped the call"

    @property
    def key(self) -> str:
        """Key of the call, unique in its conversation."""
        return self._source.key

    async def __anext__(self) -> Event:
        if self._ready:
            return self._ready.popleft()
        return await self._source.next()

    async def result(self) -> CallResult:
        """The collected outputs of what has not been iterated yet. Raises OmniFlowError when the call fails."""
        return await collect(self)

    async def push(self, field: str, value: InputValue = None, *, last: bool = False) -> None:
        """Adds a value to a streaming input; `last` closes the input. None with `last` only closes it.

        Returns when the value is queued, and waits while much is. Raises OmniFlowError when the call has ended.
        """
        await self._source.push(field, value, is_last=last)

    async def tool_result(self, tool_call_id: str, value: InputValue) -> None:
        """Answers a `ToolCall`."""
        await self._source.answer(tool_call_id, value)

    async def cancel(self, reason: str = "") -> None:
        """Cancels the call; its iteration still ends, by raising CALL_CANCELLED. Harmless when it has ended."""
        self._source.cancel(reason)

    async def aclose(self) -> None:
        """Cancels the call and forgets it."""
        self._source.leave("the caller left the call")


class Lane:
    """A conversation's side of one call."""

    def __init__(self, carrier: Carrier, key: str, prepared: PreparedCall, window_bytes: int) -> None:
        self.key = key
        self.prepared = prepared
        self.ready: deque[Event] = deque()
        self.is_live = True
        """Neither ended nor left."""
        self.is_sending = False
        """In the conversation's list of lanes that have messages queued."""
        self.has_begun = False
        """The start was given to a stream, so the server may know the call."""
        self._carrier = carrier
        self._assembler = EventAssembler(as_pieces=prepared.is_chunked)
        self._window_bytes = window_bytes
        self._unrenewed_bytes = 0
        self._queued_bytes = 0
        self._opening: Iterator[_Message] | None = None
        """What the stream of the moment needs first."""
        self._is_open_on_stream = False
        self._urgent: deque[_Message] = deque()
        self._additions: deque[Iterator[_Message]] = deque()
        self._cancel: _Message | None = None
        self._has_sent_start = False
        self._has_sent_addition = False
        self._transfer_ids = itertools.count(len(prepared.uploads) + 1)
        self._error: OmniFlowError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._has_room = asyncio.Event()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._carrier.loop

    @property
    def call_id(self) -> str:
        return self._assembler.accepted.call_id if self._assembler.accepted is not None else ""

    @property
    def last_sequence(self) -> int:
        return self._assembler.last_sequence

    # Events in.

    async def next(self) -> Event:
        """The next event. Raises StopAsyncIteration after the last one, or the call's error instead of it."""
        while not self.ready:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if not self.is_live:
                raise StopAsyncIteration
            self._renew_credit()
            self._waiter = self.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.ready.popleft()

    def take(self, event: graph_event_pb2.GraphEvent) -> None:
        """Takes an event from the stream."""
        self._unrenewed_bytes += event.ByteSize()
        try:
            self._assembler.take(event, self.ready)
        except OmniFlowError as error:
            error.is_stated = False
            self._carrier.cancel_in_background(self, f"the client gave up: {error.reason}")
            self.end(error)
            return
        if self._assembler.is_ended:
            failure = self._assembler.failure
            if failure is not None and failure.reason is Reason.EVENTS_TRIMMED:
                self._carrier.cancel_in_background(self, "the client cannot resume")  # it still runs, for nobody
            self.end(failure)
        elif not self.ready:
            self._renew_credit()  # only pieces of a value so far, whose reader may be waiting
        self.wake()

    def end(self, error: OmniFlowError | None) -> None:
        """Nothing comes after what is ready but this error."""
        if error is not None and self.call_id:
            error.add_note(f"call {self.call_id}")
        self._error = error
        self._close()

    def _close(self) -> None:
        self.is_live = False
        self._opening = None
        self._urgent.clear()
        self._additions.clear()
        self._has_room.set()
        self._carrier.forget(self)
        self.wake()

    def wake(self) -> None:
        """Lets the reader look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _renew_credit(self) -> None:
        if self._unrenewed_bytes * 2 >= self._window_bytes:
            self._send_now(self._credit(self._unrenewed_bytes))
            self._unrenewed_bytes = 0

    # Messages out.

    def attach(self) -> None:
        """Prepares what a new stream needs first to carry the call: its start, or its resumption."""
        accepted = self._assembler.accepted
        # As in a stream of one call: the first event after Accepted shows that the uploads arrived.
        may_lack_inputs = not self._has_sent_start or (bool(self.prepared.uploads) and self.last_sequence <= 1)
        self._opening = self._start() if accepted is None or may_lack_inputs else self._resume(accepted)
        self._is_open_on_stream = False
        self._unrenewed_bytes = 0
        self._urgent.clear()
        if self._cancel is not None:
            self._urgent.append(self._cancel)
        self._carrier.wants_to_send(self)

    def detach(self) -> None:
        """The stream broke: a call whose values may be lost ends."""
        self._opening = None
        if self._has_sent_addition:
            self._carrier.cancel_in_background(self, "the connection broke while values were pushed")
            self.end(
                lost("the connection broke, and the values pushed on it may not have arrived; start the call again")
            )

    def next_message(self) -> _Message | None:
        """The next message to send; None when nothing is queued."""
        if self._opening is not None:
            if self._urgent and self._is_open_on_stream:
                return self._urgent.popleft()
            message = next(self._opening, None)
            if message is not None:
                self._is_open_on_stream = self.has_begun = True
                return message
            self._opening = None
        if self._urgent:
            return self._urgent.popleft()
        while self._additions:
            message = next(self._additions[0], None)
            if message is not None:
                self._has_sent_addition = True
                return message
            self._additions.popleft()
        return None

    def _start(self) -> Iterator[_Message]:
        self._has_sent_start = False
        messages = self.prepared.messages(self.key)
        yield next(messages)
        yield self._credit(self._window_bytes)
        yield from messages
        self._has_sent_start = True

    def _resume(self, accepted: Accepted) -> Iterator[_Message]:
        resume = graph_service_pb2.ResumeCallRequest(
            resume_token=accepted.resume_token, after_sequence=self.last_sequence
        )
        yield _Message(call_key=self.key, resume=resume)
        yield self._credit(self._window_bytes)

    def _credit(self, size_bytes: int) -> _Message:
        return _Message(call_key=self.key, credit=graph_service_pb2.Credit(size_bytes=size_bytes))

    async def push(self, field: str, value: InputValue, *, is_last: bool) -> None:
        """Adds a value of a streaming input."""
        addition = graph_service_pb2.StreamInput(field=field, is_last=is_last)
        upload = None
        if value is not None:
            message, upload = encode_input(value, field, next(self._transfer_ids))
            addition.value.CopyFrom(message)
        elif not is_last:
            raise TypeError("push needs a value, or last=True")
        await self._add(_Message(call_key=self.key, input=addition), upload)

    async def answer(self, tool_call_id: str, value: InputValue) -> None:
        """Adds a tool's result."""
        message, upload = encode_input(value, "tool_result", next(self._transfer_ids))
        result = graph_service_pb2.ToolResult(tool_call_id=tool_call_id, value=message)
        await self._add(_Message(call_key=self.key, tool_result=result), upload)

    async def _add(self, message: _Message, upload: Upload | None) -> None:
        while self.is_live and self._queued_bytes > QUEUE_BYTES:
            self._has_room.clear()
            await self._has_room.wait()
        if not self.is_live:
            raise OmniFlowError(Reason.CALL_ENDED, "the call has ended; it takes no more input", is_stated=False)
        self._additions.append(self._addition(message, upload))
        self._carrier.wants_to_send(self)

    def _addition(self, message: _Message, upload: Upload | None) -> Iterator[_Message]:
        size_bytes = message.ByteSize() + (len(upload.data) if upload is not None else 0)
        self._queued_bytes += size_bytes

        def messages() -> Iterator[_Message]:
            yield message
            for chunk in upload.chunks() if upload is not None else ():
                yield _Message(call_key=self.key, chunk=chunk)
            self._queued_bytes -= size_bytes
            self._has_room.set()

        return messages()

    def _send_now(self, message: _Message) -> None:
        self._urgent.append(message)
        self._carrier.wants_to_send(self)

    # Ending early.

    def cancel(self, reason: str) -> None:
        """Asks the server to end the call."""
        if not self.is_live:
            return
        if not self.has_begun:
            self.end(cancelled("the call was cancelled before it was sent"))
        elif self._cancel is None:
            self._cancel = _Message(call_key=self.key, cancel=graph_service_pb2.Cancel(reason=reason))
            self._send_now(self._cancel)

    def leave(self, reason: str) -> asyncio.Task[None] | None:
        """Forgets the call and cancels it on a path of its own."""
        if not self.is_live:
            return None
        self._close()
        return self._carrier.cancel_in_background(self, reason)
