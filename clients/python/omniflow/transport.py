"""The connection below a client: one channel with its stubs, the work that outlives a call, the one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import grpc
import grpc.aio

from omniflow.graph.v1 import graph_service_pb2, graph_service_pb2_grpc
from omniflow.workflow.v1 import workflow_service_pb2_grpc
from omniflow_core.errors import OmniFlowError, Reason

CANCEL_RETRY_S = 0.05
CANCEL_TIMEOUT_S = 2.0
"""How long a cancel that a caller waits for may take; the call's detach_grace ends it anyway."""
FINISH_TIMEOUT_S = 1.0
"""How long an RPC may take to end after the terminal event before it is cancelled."""

CHANNEL_OPTIONS: Mapping[str, int | str] = {
    # A peer that is dead or stands still is noticed within 15 s, also while a call is silent, and one of several control
    # planes is then asked in its place. Our server allows pings every 5 s.
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 5_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.http2.max_pings_without_data": 0,
    # The library's own 1 s to 120 s would eat most of the time that a call may take to resume.
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 2_000,
    # So long an attempt to connect may take, by default 20 s: then the next address of the target has its turn.
    "grpc.min_reconnect_backoff_ms": 5_000,
    # A connection of its own per client: others do not share its backoff or its flow-control window.
    "grpc.use_local_subchannel_pool": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client connects."""

    target: str
    tenant: str = "default"
    credentials: grpc.ChannelCredentials | None = None
    """None: no encryption."""
    metadata: tuple[tuple[str, str], ...] = ()
    """Sent with every RPC, such as an authorization."""
    resume_timeout_s: float = 30.0
    channel_options: Mapping[str, int | str] = field(default_factory=dict)
    """Added to and overriding `CHANNEL_OPTIONS`."""


class Closeable(Protocol):
    """Something that ends with the connection."""

    def abandon(self, reason: str) -> None:
        """Stop at once; whatever has to be awaited goes to `Connection.background`."""


class Background:
    """Owner of tasks that outlive the call that started them; `drain` awaits them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs work that handles its own errors."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self, timeout_s: float) -> None:
        """Waits for the tasks, and cancels those that take longer."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class Connection:
    """An open channel. Made by `Client.__aenter__`; everything a client does goes through it."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self.background = Background()
        self.live: set[Closeable] = set()
        """Calls and conversations that have not ended."""
        self.is_closed = False

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        claim_loop()
        try:
            self.channel = _open_channel(self.options)
        except BaseException:
            release_loop(self.loop)
            raise
        # Generated stubs have no types.
        self.graphs: Any = graph_service_pb2_grpc.GraphServiceStub(self.channel)
        self.workflows: Any = workflow_service_pb2_grpc.WorkflowServiceStub(self.channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_closed = True
        try:
            for item in list(self.live):
                item.abandon("the client was closed")
            await self.background.drain(CANCEL_TIMEOUT_S)
        finally:
            try:
                await self.channel.close()
            finally:
                release_loop(self.loop)

    def metadata(self, session: str = "") -> tuple[tuple[str, str], ...]:
        """Request metadata; the session lets a proxy route its calls to one place."""
        base = (("x-omniflow-tenant", self.options.tenant), *self.options.metadata)
        return (*base, ("x-omniflow-session", session)) if session else base

    def check_open(self) -> None:
        """Raises RuntimeError when the client was closed."""
        if self.is_closed:
            raise RuntimeError("the client is closed; make calls inside its `async with` block")

    async def cancel_call(self, *, call_id: str, request_id: str, reason: str) -> None:
        """Cancels a call that nobody waits for any more; errors are passed over, since its grace ends it too.

        The connection may just have broken, which is why it is cancelled: it waits for the next one.
        """
        request = graph_service_pb2.CancelCallRequest(call_id=call_id, request_id=request_id, reason=reason)
        deadline_s = self.loop.time() + CANCEL_TIMEOUT_S
        while (left_s := deadline_s - self.loop.time()) > 0:
            try:
                await self.graphs.CancelCall(request, metadata=self.metadata(), timeout=left_s, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    await asyncio.sleep(CANCEL_RETRY_S)
                    continue
            return


def _open_channel(options: ClientOptions) -> grpc.aio.Channel:
    merged = {**CHANNEL_OPTIONS, **_local_options(options.target), **options.channel_options}
    arguments: Sequence[tuple[str, Any]] = list(merged.items())
    if options.credentials is None:
        return grpc.aio.insecure_channel(options.target, options=arguments)
    return grpc.aio.secure_channel(options.target, options.credentials, options=arguments)


def _local_options(target: str) -> Mapping[str, int]:
    """A proxy from the environment never leads to this machine's own loopback."""
    is_local = target.startswith(("127.", "localhost:", "[::1]", "unix:", "ipv4:127.", "ipv6:[::1]"))
    return {"grpc.enable_http_proxy": 0} if is_local else {}


class BidiRpc:
    """A bidirectional RPC that keeps the status that its server gave.

    In grpc.aio a write that fails because the RPC has just ended replaces the status by INTERNAL (grpc/grpc#36066), so
    a refused upload would look like a fault of the platform. The first status is the true one.
    """

    def __init__(self, rpc: Any) -> None:
        self._rpc = rpc
        self._status: grpc.aio.AioRpcError | None = None
        rpc.add_done_callback(self._ended)

    def _ended(self, rpc: Any) -> None:
        if self._status is None:
            self._status = grpc.aio.AioRpcError(
                _result_of(rpc.code()),
                grpc.aio.Metadata(),
                _result_of(rpc.trailing_metadata()),
                details=_result_of(rpc.details()),
            )

    async def read(self) -> Any:
        """The next message, or grpc.aio.EOF. Raises the RPC's first status."""
        try:
            return await self._rpc.read()
        except grpc.RpcError as error:
            first = self._status or error
            if first.code() is grpc.StatusCode.OK:
                return grpc.aio.EOF
            raise first from None

    async def write(self, request: Any) -> bool:
        """Whether the message was taken; False when the RPC has ended, and `read` tells why."""
        try:
            await self._rpc.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            return False
        return True

    async def done_writing(self) -> None:
        """No more messages."""
        with contextlib.suppress(Exception):  # of grpc's internals, when the RPC has just ended; `read` tells why
            await self._rpc.done_writing()

    def cancel(self) -> bool:
        """Ends the RPC on this side."""
        return bool(self._rpc.cancel())


def _result_of(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError("an RPC that has ended has no status")


_RNG = random.Random()  # spreads clients in time, hides nothing


class Backoff:
    """Delays between attempts to reconnect: doubling, jittered, until the time since the last sign of life is up."""

    FIRST_S = 0.05
    MAX_S = 2.0

    def __init__(self, *, now_s: float, timeout_s: float, rng: random.Random = _RNG) -> None:
        self.timeout_s = timeout_s
        self._deadline_s = now_s + timeout_s
        self._ceiling_s = self.FIRST_S
        self._rng = rng
        self.attempts = 0

    def next_delay_s(self, now_s: float, at_least_s: float = 0.0) -> float | None:
        """The delay before the next attempt; None when no time is left. `at_least_s` is the server's own hint."""
        # Half of the delay is drawn, so that clients that lost one server do not come back as one.
        delay_s = max(self._ceiling_s * (0.5 + self._rng.random() / 2), at_least_s)
        self._ceiling_s = min(self._ceiling_s * 2, self.MAX_S)
        self.attempts += 1
        return delay_s if now_s + delay_s <= self._deadline_s else None


class _LoopOwner:
    """The event loop that uses grpc.aio in this process.

    grpc.aio has one poller for the whole process: with loops in several threads it wakes the wrong one
    (BlockingIOError, stalls). So there is one loop at a time, and a second one is refused where it starts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._holders = 0

    def claim(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._loop is not loop:
                if self._loop is not None and not self._loop.is_closed():
                    raise second_loop("a client is open")
                self._loop, self._holders = loop, 0
            self._holders += 1

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._loop is loop:
                self._holders -= 1
                if self._holders == 0:
                    self._loop = None


_loop_owner = _LoopOwner()


def claim_loop() -> None:
    """Makes the running loop the process's grpc.aio loop. Raises OmniFlowError when another one is."""
    _loop_owner.claim(asyncio.get_running_loop())


def release_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Undoes one `claim_loop`."""
    _loop_owner.release(loop)


def second_loop(what: str) -> OmniFlowError:
    """The refusal of a second event loop; `what` says what the first one does."""
    return OmniFlowError(
        Reason.PROTOCOL_VIOLATION,
        f"{what} on another event loop of this process, and grpc.aio works with one loop per process: "
        "use the asynchronous client on that loop, or another process",
        is_stated=False,
    )
