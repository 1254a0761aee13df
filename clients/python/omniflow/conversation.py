"""Several calls over one bidirectional stream.

    async with client.converse() as conversation:
        call = await conversation.start("assistant", text="hi", open_inputs=["audio"])
        await call.push("audio", Audio(piece, "audio/L16;rate=16000"), last=True)
        async for event in call: ...

    start, push, cancel -> _Lane, a queue per call -> pump: one writer, lanes in turn, what is queued in one frame
    frame -> reader: events by call key -> _Lane.ready -> ConversationCall

A slow reader of one call does not hold up the others: each call has a window of event bytes that the client grants and
renews (`Credit`). A lost stream is opened again and its calls are resumed. A call that was given values since its start
cannot be: nothing acknowledges them, so it ends with CONNECTION_LOST rather than risking a lost or doubled value.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import grpc
import grpc.aio

from omniflow.assembly import EventAssembler
from omniflow.calls import cancelled, gave_up, is_resumable, lost
from omniflow.codec.error import error_from_rpc
from omniflow.events import Accepted, Event
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.requests import InputValue, PreparedCall, Upload, encode_input, prepare_call, takes_call
from omniflow.results import CallResult, collect
from omniflow.transport import CANCEL_TIMEOUT_S, FINISH_TIMEOUT_S, Backoff, BidiRpc, Connection
from omniflow_core.errors import OmniFlowError, Reason

FRAME_BYTES = 512 * 1024
"""A frame takes no further message beyond this; one message is at most a chunk or a start with its inline inputs."""
QUEUE_BYTES = 1024 * 1024
"""`push` waits while a call has more than this to send."""
WINDOW_BYTES = 16 * 1024 * 1024
"""Events of one call that may wait for their reader."""

_Message = graph_service_pb2.ConverseMessage


class ConversationCall:
    """A call of a conversation: iterate its events, push values, answer tool calls, cancel.

    The iteration ends with `Finished` or raises OmniFlowError. It may be left and taken up again; a call ends early by
    `cancel`, by dropping this object, or with its conversation.
    """

    __slots__ = ("__weakref__", "_conversation", "_lane", "_ready")

    def __init__(self, conversation: Conversation, lane: _Lane) -> None:
        self._conversation = conversation
        self._lane = lane
        self._ready = lane.ready

    @property
    def key(self) -> str:
        """Key of the call, unique in its conversation."""
        return self._lane.key

    @property
    def call_id(self) -> str:
        """The server's identifier; empty before `Accepted`."""
        return self._lane.call_id

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._ready:
            return self._ready.popleft()
        return await self._lane.next()

    async def next_batch(self) -> list[Event]:
        """The events that are ready, after waiting for the first; empty at the end."""
        try:
            batch = [await self.__anext__()]
        except StopAsyncIteration:
            return []
        batch.extend(self._ready)
        self._ready.clear()
        return batch

    async def result(self) -> CallResult:
        """The collected outputs of what has not been iterated yet. Raises OmniFlowError when the call fails."""
        return await collect(self)

    async def push(self, field: str, value: InputValue = None, *, last: bool = False) -> None:
        """Adds a value to a streaming input; `last` closes the input. None with `last` only closes it.

        Returns when the value is queued, and waits while much is. Raises OmniFlowError when the call has ended.
        """
        await self._lane.push(field, value, is_last=last)

    async def tool_result(self, tool_call_id: str, value: InputValue) -> None:
        """Answers a `ToolCall`."""
        await self._lane.answer(tool_call_id, value)

    async def cancel(self, reason: str = "") -> None:
        """Cancels the call; its iteration still ends, by raising CALL_CANCELLED. Harmless when it has ended."""
        self._lane.cancel(reason)

    async def aclose(self) -> None:
        """Cancels the call and forgets it."""
        self._lane.leave("the caller left the call")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        lane = getattr(self, "_lane", None)
        if lane is not None and lane.is_live:
            lane.leave_soon("the caller dropped the call")


class _Lane:
    """A conversation's side of one call."""

    def __init__(self, conversation: Conversation, key: str, prepared: PreparedCall, window_bytes: int) -> None:
        self.key = key
        self.prepared = prepared
        self.ready: deque[Event] = deque()
        self.is_live = True
        """Neither ended nor left."""
        self.is_sending = False
        """In the conversation's list of lanes that have messages queued."""
        self.has_begun = False
        """The start was given to a stream, so the server may know the call."""
        self._conversation = conversation
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
            self._waiter = self._conversation.loop.create_future()
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
            self._conversation.cancel_in_background(self, f"the client gave up: {error.reason}")
            self.end(error)
            return
        if self._assembler.is_ended:
            failure = self._assembler.failure
            if failure is not None and failure.reason is Reason.EVENTS_TRIMMED:
                self._conversation.cancel_in_background(self, "the client cannot resume")  # it still runs, for nobody
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
        self._conversation.forget(self)
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
        self._conversation.wants_to_send(self)

    def detach(self) -> None:
        """The stream broke: a call whose values may be lost ends."""
        self._opening = None
        if self._has_sent_addition:
            self._conversation.cancel_in_background(self, "the connection broke while values were pushed")
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
        self._conversation.wants_to_send(self)

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
        self._conversation.wants_to_send(self)

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
        return self._conversation.cancel_in_background(self, reason)

    def leave_soon(self, reason: str) -> None:
        """`leave` from any thread, for finalizers."""
        if not self._conversation.loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in between
                self._conversation.loop.call_soon_threadsafe(self.leave, reason)


class Conversation:
    """A stream that carries several calls, one after another or side by side. Use `async with client.converse()`.

    Leaving the block cancels the calls that have not ended.
    """

    def __init__(self, connection: Connection, *, session: str = "", window_bytes: int = WINDOW_BYTES) -> None:
        self._connection = connection
        self._session = session
        self._window_bytes = window_bytes
        self._lanes: dict[str, _Lane] = {}
        self._sending: deque[_Lane] = deque()
        self._has_messages = asyncio.Event()
        self._has_calls = asyncio.Event()
        self._is_closing = False
        self._error: OmniFlowError | None = None
        self._keys = itertools.count(1)
        self._backoff: Backoff | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_connected = False

    async def __aenter__(self) -> Self:
        self._connection.check_open()
        self._connection.live.add(self)
        self._task = self._connection.background.start(self._serve())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cancels = [lane.leave("the caller left the conversation") for lane in list(self._lanes.values())]
        self._connection.live.discard(self)
        self._is_closing = True
        self._has_messages.set()
        self._has_calls.set()
        pending = [task for task in cancels if task is not None]
        try:
            if pending:
                await asyncio.wait(pending, timeout=CANCEL_TIMEOUT_S)
            elif self._task is not None:
                await asyncio.wait([self._task], timeout=FINISH_TIMEOUT_S)
        finally:
            if self._task is not None:
                self._task.cancel()

    @takes_call(prepare_call)
    async def start(self, prepared: PreparedCall) -> ConversationCall:
        """Starts a call. Takes what `Client.stream` takes, `open_inputs` and `key` besides.

        Raises OmniFlowError when the conversation has failed, ValueError for a key that a running call has.
        """
        if self._error is not None:
            raise _copy(self._error)
        if self._task is None or self._is_closing:
            raise RuntimeError("start calls inside the conversation's `async with` block")
        key = prepared.spec.call_key or self._next_key()
        if key in self._lanes:
            raise ValueError(f"a running call of this conversation has the key {key!r}")
        lane = _Lane(self, key, prepared, self._window_bytes)
        self._lanes[key] = lane
        self._has_calls.set()
        if self.is_connected:
            lane.attach()
        return ConversationCall(self, lane)

    def _next_key(self) -> str:
        return next(key for key in (f"call-{number}" for number in self._keys) if key not in self._lanes)

    # For lanes.

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that everything here runs on."""
        return self._connection.loop

    def wants_to_send(self, lane: _Lane) -> None:
        """The lane has messages queued."""
        if not lane.is_sending:
            lane.is_sending = True
            self._sending.append(lane)
        self._has_messages.set()

    def forget(self, lane: _Lane) -> None:
        """The lane has ended."""
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def cancel_in_background(self, lane: _Lane, reason: str) -> asyncio.Task[None] | None:
        """Cancels the lane's call on a path of its own."""
        if not lane.has_begun:
            return None
        return self._connection.background.start(
            self._connection.cancel_call(call_id=lane.call_id, request_id=lane.prepared.request_id, reason=reason)
        )

    # The stream.

    async def _serve(self) -> None:
        """Keeps a stream open while there is a call, until the conversation is closed or fails."""
        while not self._is_closing and self._error is None:
            error = await self._serve_stream()
            if self._is_closing:
                return
            await self._recover(error)

    async def _serve_stream(self) -> OmniFlowError:
        """Carries the calls over one stream. Returns why it ended."""
        rpc = BidiRpc(self._connection.graphs.ConverseCall(metadata=self._connection.metadata(self._session)))
        self.is_connected = True
        try:
            for lane in list(self._lanes.values()):
                lane.attach()
            async with asyncio.TaskGroup() as tasks:
                pump = tasks.create_task(self._pump(rpc))
                error = await self._read(rpc)
                pump.cancel()
            return error
        finally:
            self.is_connected = False
            rpc.cancel()

    async def _read(self, rpc: BidiRpc) -> OmniFlowError:
        lanes = self._lanes
        try:
            while (frame := await rpc.read()) is not grpc.aio.EOF:
                self._backoff = None
                for event in frame.events:
                    lane = lanes.get(event.call_key)
                    if lane is not None:
                        lane.take(event)
        except grpc.RpcError as error:
            return error_from_rpc(error)
        return lost("the conversation's stream ended")

    async def _pump(self, rpc: BidiRpc) -> None:
        while True:
            frame = self._next_frame()
            if frame:
                if not await rpc.write(graph_service_pb2.ConverseCallRequest(messages=frame)):
                    return
            elif self._is_closing:
                await rpc.done_writing()
                return
            else:
                self._has_messages.clear()
                await self._has_messages.wait()

    def _next_frame(self) -> list[_Message]:
        """What is queued, up to a size; one message of each lane in turn."""
        frame: list[_Message] = []
        size_bytes = 0
        while self._sending and size_bytes < FRAME_BYTES:
            lane = self._sending[0]
            message = lane.next_message()
            if message is None:
                lane.is_sending = False
                self._sending.popleft()
            else:
                self._sending.rotate(-1)
                size_bytes += message.ByteSize()
                frame.append(message)
        return frame

    async def _recover(self, error: OmniFlowError) -> None:
        """Waits until it is time for the next stream, or ends what cannot go on."""
        for lane in list(self._lanes.values()):
            lane.detach()
        if not is_resumable(error, is_accepted=any(lane.call_id for lane in self._lanes.values())):
            self._error = error
            self._end_all(error)
            return
        delay_s = self._delay_s(error)
        if delay_s is None:
            assert self._backoff is not None
            self._end_all(gave_up(error, self._backoff))
        else:
            await asyncio.sleep(delay_s)
        while not self._lanes and not self._is_closing:
            self._backoff = None
            self._has_calls.clear()
            await self._has_calls.wait()

    def _delay_s(self, error: OmniFlowError) -> float | None:
        now_s = self.loop.time()
        if self._backoff is None:
            timeout_s = self._connection.options.resume_timeout_s
            self._backoff = Backoff(now_s=now_s, timeout_s=timeout_s)
        return self._backoff.next_delay_s(now_s, error.info.retry_after_s or 0.0)

    def _end_all(self, error: OmniFlowError) -> None:
        for lane in list(self._lanes.values()):
            self.cancel_in_background(lane, f"the client gave up: {error.reason}")
            lane.end(_copy(error))

    def abandon(self, reason: str) -> None:
        """Ends the calls under their readers, who are told so."""
        for lane in list(self._lanes.values()):
            self.cancel_in_background(lane, reason)
            lane.end(cancelled(reason))
        self._connection.live.discard(self)
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()


def _copy(error: OmniFlowError) -> OmniFlowError:
    """An exception of its own for each call: a raised one carries its traceback."""
    return OmniFlowError.of(error.info, is_stated=error.is_stated)
