"""One call as a stream of events: reading, resuming after a lost connection, and cancelling when the reader leaves.

    EventStream (what the user holds)  ->  _CallRun (what the connection holds)  ->  the RPC of the moment

The stream is a thin handle over the run, which cancels the call when the handle is dropped. The RPC that carries the
events changes:

    StreamCall | ConverseCall (uploads) --lost--> ResumeCall(token, last sequence) --lost--> ResumeCall ... until the
    terminal event, or until the connection has been silent for `resume_timeout_s`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol, Self

import grpc
import grpc.aio

from omniflow.assembly import EventAssembler
from omniflow.codec.error import error_from_rpc
from omniflow.events import Event
from omniflow.graph.v1 import graph_service_pb2
from omniflow.handle import CallHandle
from omniflow.requests import PreparedCall
from omniflow.transport import FINISH_TIMEOUT_S, Backoff, BidiRpc, Connection
from omniflow_core.errors import Code, OmniFlowError, Reason

_CALL_KEY = "call"
"""Key of the only call of an upload's conversation."""


class _EventRpc(Protocol):
    """A running RPC that carries events."""

    async def read(self) -> Any:
        """The next message, or grpc.aio.EOF."""

    def cancel(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a call can be taken up again with `Client.resume`, also by another process."""

    resume_token: str
    after_sequence: int
    call_id: str


class EventStream(CallHandle["_CallRun"]):
    """Events of one call, in order. Iterate once; ends with `Finished`, or raises OmniFlowError.

        async for event in client.stream("assistant", text="hi"): ...
        async with client.stream("assistant", text="hi") as events: ...

    The call starts with the first step (or on entering). Leaving early cancels it: by `aclose`, by the end of the
    `async with`, by cancelling the task that waits for an event, or by dropping the stream.
    """

    __slots__ = ()

    _drop_reason = "the caller dropped the stream"

    @property
    def request_id(self) -> str:
        """The client's identifier; empty for a resumed call."""
        return self._source.request_id

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Where the call can be resumed without losing an event; None before `Accepted`.

        It is that of what has arrived: take the events that are ready before relying on it.
        """
        return self._source.checkpoint

    async def __anext__(self) -> Event:
        if self._ready:
            return self._ready.popleft()
        return await self._source.next()

    async def aclose(self) -> None:
        """Ends the stream, and cancels the call unless it has ended. Waits a short while for the server to confirm."""
        task = self._source.leave("the caller left the stream")
        if task is not None:
            await asyncio.shield(task)

    async def __aenter__(self) -> Self:
        self._source.open()
        return self


class _CallRun:
    """The running call below an `EventStream`."""

    def __init__(
        self,
        connection: Connection,
        *,
        prepared: PreparedCall | None,
        assembler: EventAssembler,
        resume_token: str = "",
        call_id: str = "",
        resume_timeout_s: float,
    ) -> None:
        self.ready: deque[Event] = deque()
        self._connection = connection
        self._prepared = prepared
        self._assembler = assembler
        self._given_token = resume_token
        self._given_call_id = call_id
        self._resume_timeout_s = resume_timeout_s
        self._rpc: _EventRpc | None = None
        self._upload: asyncio.Task[None] | None = None
        self._backoff: Backoff | None = None
        self._error: OmniFlowError | None = None
        self.is_live = False
        """Started, and neither ended nor abandoned."""
        self._is_over = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._connection.loop

    @property
    def call_id(self) -> str:
        accepted = self._assembler.accepted
        return accepted.call_id if accepted is not None else self._given_call_id

    @property
    def request_id(self) -> str:
        return self._prepared.request_id if self._prepared is not None else ""

    @property
    def _resume_token(self) -> str:
        accepted = self._assembler.accepted
        return accepted.resume_token if accepted is not None else self._given_token

    @property
    def checkpoint(self) -> Checkpoint | None:
        token = self._resume_token
        if not token:
            return None
        return Checkpoint(resume_token=token, after_sequence=self._assembler.checkpoint, call_id=self.call_id)

    # Reading.

    async def next(self) -> Event:
        """The next event. Raises StopAsyncIteration after the last one."""
        ready = self.ready
        try:
            while not ready:
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                if self._is_over:
                    raise StopAsyncIteration
                if self._assembler.is_ended:
                    await self._end()
                else:
                    await self._read()
        except asyncio.CancelledError:
            if self._is_over and not _is_being_cancelled():
                # Another task closed the stream or the client under this one.
                raise cancelled("the stream was closed while it was read") from None
            self.leave("the caller was cancelled")
            raise
        except OmniFlowError as error:
            self._fail(error)
            raise
        return ready.popleft()

    async def _read(self) -> None:
        try:
            frame = await self.open().read()
        except grpc.RpcError as error:
            await self._recover(error_from_rpc(error))
            return
        if frame is grpc.aio.EOF:
            await self._recover(lost("the stream ended without a terminal event"))
            return
        self._backoff = None
        take, ready = self._assembler.take, self.ready
        try:
            for event in frame.events:
                take(event, ready)
        except OmniFlowError as error:
            error.is_stated = False
            self._error = error  # raised after the events before it

    async def _end(self) -> None:
        """After the terminal event: lets the RPC end, and raises the call's error if it failed."""
        self._leave()
        if self._upload is not None and not self._upload.done():
            self._drop_rpc()  # the call ended without wanting the rest of its inputs
        rpc, self._rpc = self._rpc, None
        if rpc is not None:
            await finish_rpc(rpc)
        if self._assembler.failure is not None:
            raise self._assembler.failure

    def _fail(self, error: OmniFlowError) -> None:
        """The stream ends with an error; a call that may still run is cancelled."""
        if self.call_id:
            error.add_note(f"call {self.call_id}")
        if error is self._assembler.failure or (error.is_stated and error.reason is not Reason.EVENTS_TRIMMED):
            self._leave()
            self._drop_rpc()
        else:
            self.leave(f"the client gave up: {error.reason}")

    # RPCs.

    def open(self) -> _EventRpc:
        """The RPC of the moment; started if there is none."""
        if self._rpc is None:
            self._connection.check_open()
            self.is_live = True
            self._connection.live.add(self)
            self._rpc = self._start() if self._must_start else self._resume()
        return self._rpc

    @property
    def _must_start(self) -> bool:
        """No call is known to run, or it may lack a part of its inputs: they are sent (again) with the same request id.

        Uploads are not acknowledged, and the tail of what was written can be lost with its connection. The first event
        after Accepted shows that they arrived: a call is started when its inputs are complete.
        """
        if self._prepared is None or not self._resume_token:
            return self._prepared is not None
        return bool(self._prepared.uploads) and self._assembler.last_sequence <= 1

    def _start(self) -> _EventRpc:
        prepared, connection = self._prepared, self._connection
        assert prepared is not None
        metadata = connection.metadata(prepared.session)
        if not prepared.uploads:
            stream: _EventRpc = connection.graphs.StreamCall(prepared.request(), metadata=metadata)
            return stream
        rpc = BidiRpc(connection.graphs.ConverseCall(metadata=metadata))
        self._upload = connection.background.start(self._send_uploads(rpc, prepared))
        return rpc

    async def _send_uploads(self, rpc: BidiRpc, prepared: PreparedCall) -> None:
        for message in prepared.messages(prepared.spec.call_key or _CALL_KEY):
            if not await rpc.write(graph_service_pb2.ConverseCallRequest(messages=[message])):
                return
        await rpc.done_writing()

    def _resume(self) -> _EventRpc:
        request = graph_service_pb2.ResumeCallRequest(
            resume_token=self._resume_token, after_sequence=self._assembler.last_sequence
        )
        session = self._prepared.session if self._prepared is not None else ""
        rpc: _EventRpc = self._connection.graphs.ResumeCall(request, metadata=self._connection.metadata(session))
        return rpc

    async def _recover(self, error: OmniFlowError) -> None:
        """Waits until it is time to open the next RPC. Raises when the error is final or the time is used up."""
        self._drop_rpc()
        if not is_resumable(error, is_accepted=bool(self._resume_token)):
            raise error
        now_s = self.loop.time()
        if self._backoff is None:
            self._backoff = Backoff(now_s=now_s, timeout_s=self._resume_timeout_s)
        delay_s = self._backoff.next_delay_s(now_s, error.info.retry_after_s or 0.0)
        if delay_s is None:
            raise gave_up(error, self._backoff)
        await asyncio.sleep(delay_s)

    def _drop_rpc(self) -> None:
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.cancel()
        rpc, self._rpc = self._rpc, None
        if rpc is not None:
            rpc.cancel()

    # Leaving.

    def _leave(self) -> None:
        self._is_over = True
        self.is_live = False
        self._connection.live.discard(self)

    def abandon(self, reason: str) -> None:
        """Ends the run under its reader, who is told so."""
        if self.is_live:
            self.leave(reason)
            self._error = cancelled(reason)

    def leave(self, reason: str) -> asyncio.Task[None] | None:
        """Ends the run now and cancels the call in the background; harmless when it has ended."""
        must_cancel = self.is_live and not self._assembler.is_ended
        self._leave()
        self._drop_rpc()
        self.ready.clear()
        if not must_cancel or not (self.call_id or self.request_id):
            return None
        return self._connection.background.start(
            self._connection.cancel_call(call_id=self.call_id, request_id=self.request_id, reason=reason)
        )


def start_call(connection: Connection, prepared: PreparedCall) -> EventStream:
    """A stream that starts the call with its first step."""
    if prepared.spec.open_inputs:
        raise ValueError("open_inputs needs a conversation: client.converse()")
    timeout_s = prepared.resume_timeout_s
    if timeout_s is None:
        timeout_s = connection.options.resume_timeout_s
        if prepared.timeout_s is not None:  # nobody waits longer for the connection than for the call
            timeout_s = min(timeout_s, prepared.timeout_s)
    return EventStream(
        _CallRun(
            connection,
            prepared=prepared,
            assembler=EventAssembler(as_pieces=prepared.is_chunked),
            resume_timeout_s=timeout_s,
        )
    )


def resume_call(connection: Connection, checkpoint: Checkpoint, *, chunks: bool) -> EventStream:
    """A stream that goes on after a checkpoint."""
    return EventStream(
        _CallRun(
            connection,
            prepared=None,
            assembler=EventAssembler(after_sequence=checkpoint.after_sequence, as_pieces=chunks),
            resume_token=checkpoint.resume_token,
            call_id=checkpoint.call_id,
            resume_timeout_s=connection.options.resume_timeout_s,
        )
    )


async def finish_rpc(rpc: _EventRpc) -> None:
    """Lets an RPC whose last event was read end by itself, so that the server does not see it as cancelled."""
    try:
        async with asyncio.timeout(FINISH_TIMEOUT_S):
            while await rpc.read() is not grpc.aio.EOF:
                pass
    except (grpc.RpcError, TimeoutError):
        rpc.cancel()


def is_resumable(error: OmniFlowError, *, is_accepted: bool) -> bool:
    """Whether another RPC may get further: the connection broke, or its server is being replaced.

    The platform states every error of its own. So what ends the stream of an accepted call without one is something on
    the way (a proxy's limit, a reset, a dying process) whatever its code; before that it may be no server of ours.
    """
    if error.is_stated:
        return error.reason in (Reason.DRAINING, Reason.STORE_UNAVAILABLE)
    if error.code in (Code.UNAVAILABLE, Code.CANCELLED):  # the latter of a server that stops: nobody here has cancelled
        return True
    return is_accepted and error.info.metadata.get("grpc_code") in ("INTERNAL", "UNKNOWN")


def gave_up(error: OmniFlowError, backoff: Backoff) -> OmniFlowError:
    """The error of a call whose connection did not come back in time."""
    return OmniFlowError(
        error.reason,
        f"{error.message} (gave up after {backoff.attempts} attempts in {backoff.timeout_s:g} s)",
        metadata={**error.info.metadata, "attempts": str(backoff.attempts)},
        retry_after_s=error.info.retry_after_s,
        is_stated=error.is_stated,
    )


def lost(message: str) -> OmniFlowError:
    """The error that a client infers from a connection that ended too early."""
    return OmniFlowError(Reason.CONNECTION_LOST, message, is_stated=False)


def cancelled(message: str) -> OmniFlowError:
    """The error of a reader whose call was ended by this very client."""
    return OmniFlowError(Reason.CALL_CANCELLED, message, is_stated=False)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
