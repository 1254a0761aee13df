"""Several calls over one bidirectional stream.

    async with client.converse() as conversation:
        call = await conversation.start("assistant", text="hi", open_inputs=["audio"])
        await call.push("audio", Audio(piece, "audio/L16;rate=16000"), last=True)
        async for event in call: ...

    start -> a Lane per call -> pump: one writer, lanes in turn, what is queued in one frame
    frame -> reader: events by call key -> the call's Lane

This is the stream: opening it, sharing it among its calls, opening it again when it is lost. What one call sends, receives
and does about a lost stream is its lane's.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from types import TracebackType
from typing import Self

import grpc
import grpc.aio

from omniflow.calls import cancelled, gave_up, is_resumable, lost
from omniflow.codec.error import error_from_rpc
from omniflow.graph.v1 import graph_service_pb2
from omniflow.lane import ConversationCall, Lane
from omniflow.requests import PreparedCall, prepare_call, takes_call
from omniflow.transport import CANCEL_TIMEOUT_S, FINISH_TIMEOUT_S, Backoff, BidiRpc, Connection
from omniflow_core.errors import OmniFlowError

__all__ = ["FRAME_BYTES", "WINDOW_BYTES", "Conversation", "ConversationCall"]

FRAME_BYTES = 512 * 1024
"""A frame takes no further message beyond this; one message is at most a chunk or a start with its inline inputs."""
WINDOW_BYTES = 16 * 1024 * 1024
"""Events of one call that may wait for their reader."""


class Conversation:
    """A stream that carries several calls, one after another or side by side. Use `async with client.converse()`.

    Leaving the block cancels the calls that have not ended.
    """

    def __init__(self, connection: Connection, *, session: str = "", window_bytes: int = WINDOW_BYTES) -> None:
        self._connection = connection
        self._session = session
        self._window_bytes = window_bytes
        self._lanes: dict[str, Lane] = {}
        self._sending: deque[Lane] = deque()
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
        lane = Lane(self, key, prepared, self._window_bytes)
        self._lanes[key] = lane
        self._has_calls.set()
        if self.is_connected:
            lane.attach()
        return ConversationCall(lane)

    def _next_key(self) -> str:
        return next(key for key in (f"call-{number}" for number in self._keys) if key not in self._lanes)

    # For lanes.

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that everything here runs on."""
        return self._connection.loop

    def wants_to_send(self, lane: Lane) -> None:
        """The lane has messages queued."""
        if not lane.is_sending:
            lane.is_sending = True
            self._sending.append(lane)
        self._has_messages.set()

    def forget(self, lane: Lane) -> None:
        """The lane has ended."""
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def cancel_in_background(self, lane: Lane, reason: str) -> asyncio.Task[None] | None:
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

    def _next_frame(self) -> list[graph_service_pb2.ConverseMessage]:
        """What is queued, up to a size; one message of each lane in turn."""
        frame: list[graph_service_pb2.ConverseMessage] = []
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
