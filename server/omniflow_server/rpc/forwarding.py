"""RPCs that another control plane must answer, passed on to it: one hop, bytes as they are.

    client ──▶ this process ──▶ the owner of the call or session
                 │  the owner ends before it has said anything: the call is placed again
                 │  it ends later: the caller is told OWNER_LOST, in the one terminal event
                 └─ its connection breaks while it lives: the caller's stream breaks too, and is resumed by the client

What an owner refuses because it is none any more (STALE_OWNER), drains, or cannot reach the store, counts as not said.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import grpc.aio

from omniflow.codec.error import error_from_rpc, status_to_proto
from omniflow.graph.v1 import graph_event_pb2
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.rpc_errors import ServicerContext, abort
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_server.control.membership import Membership, now_s
from omniflow_server.control.placement import Elsewhere, Here, Placement
from omniflow_server.data.metadata.port import Owner
from omniflow_server.rpc.peers import Peers
from omniflow_server.rpc.principal import TENANT_KEY, tenant_of

FORWARDED_KEY = "x-omniflow-forwarded"
SERVICE = "omniflow.graph.v1.GraphService"
PLACE_S = 30.0
"""How long a place is looked for: an owner that drains keeps its sessions until their calls have ended."""
GONE_WAIT_S = 2.5
"""How long an owner whose connection broke may take to be known as gone: its lease, and a tick."""
LOOK_AGAIN_S = 0.05
BROKEN = "the connection to the control plane that owns the call broke; try again"
NOT_SAID = frozenset({Reason.STALE_OWNER, Reason.DRAINING, Reason.STORE_UNAVAILABLE, Reason.CONNECTION_LOST})


def is_forwarded(context: ServicerContext) -> bool:
    """Another control plane passes the RPC on."""
    return any(key == FORWARDED_KEY for key, _ in context.invocation_metadata() or ())


class NotSaidError(Exception):
    """The other process has not taken the call: it may be placed again."""

    def __init__(self, error: OmniFlowError) -> None:
        super().__init__(error.message)
        self.error = error


class Forwarding:
    """Answers RPCs by the owner's answers."""

    def __init__(self, placement: Placement, membership: Membership, peers: Peers) -> None:
        self._placement = placement
        self._membership = membership
        self._peers = peers
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_idle(self, timeout_s: float) -> None:
        """Returns when no caller waits for another control plane, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    def hold(self) -> None:
        """A caller waits for another control plane: a drain waits for that."""
        self._active += 1
        self._idle.clear()

    def let_go(self) -> None:
        """One of them has been answered."""
        self._active -= 1
        if not self._active:
            self._idle.set()

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        self.hold()
        try:
            yield
        finally:
            self.let_go()

    async def placed(
        self,
        request: pb.StreamCallRequest | pb.RunCallRequest,
        context: ServicerContext,
        here: Callable[[Here], Awaitable[Any]],
        elsewhere: Callable[[Owner], Awaitable[Any]],
    ) -> Any:
        """Runs a new call where it belongs. Looks again while its owner changes."""
        tenant, forwarded = tenant_of(context), is_forwarded(context)
        deadline_s = now_s() + PLACE_S
        while True:
            found = await self._placement.find(request.graph, request.call, tenant, is_forwarded=forwarded)
            try:
                if isinstance(found, Here):
                    return await self._accepted(found, request, tenant, here)
                give_identifier(request.call)
                return await elsewhere(found.owner)
            except NotSaidError as refused:
                if forwarded or now_s() > deadline_s:
                    raise refused.error from None
            await self.look_again_later(found)

    async def look_again_later(self, found: Here | Elsewhere) -> None:
        """A moment for an owner to change; not longer than it lives."""
        epoch = found.owner.epoch if isinstance(found, Elsewhere) else self._membership.epoch
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_S):
                await self._membership.wait_gone(epoch)

    async def _accepted(
        self,
        found: Here,
        request: pb.StreamCallRequest | pb.RunCallRequest,
        tenant: str,
        here: Callable[[Here], Awaitable[Any]],
    ) -> Any:
        try:
            return await here(found)
        except NotAcceptedError as refused:
            await self._placement.refused(found, request.call, tenant)
            if refused.error.reason is Reason.DRAINING:
                raise NotSaidError(refused.error) from None  # the drain began meanwhile: somebody else takes it
            raise refused.error from None

    # --- unary --------------------------------------------------------------------------------------------------------

    async def unary(self, owner: Owner, method: str, request: Any, context: ServicerContext) -> bytes:
        """The owner's answer. Raises what it states, and NotSaidError when it has not answered at all."""
        with self._waiting():
            return await self._unary(owner, method, request, context)

    async def _unary(self, owner: Owner, method: str, request: Any, context: ServicerContext) -> bytes:
        rpc: Any = self._peers.channel(owner).unary_unary(f"/{SERVICE}/{method}")
        call = rpc(request.SerializeToString(), metadata=_metadata(context), timeout=context.time_remaining())
        answer = asyncio.ensure_future(_result(call))
        gone = asyncio.ensure_future(self._membership.wait_gone(owner.epoch))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise NotSaidError(owner_gone(owner))
            return answer.result()
        finally:
            for task in (answer, gone):
                task.cancel()
            call.cancel()

    async def all(self, method: str, request: Any, context: ServicerContext) -> list[bytes]:
        """The answers of all the others that give one."""
        if is_forwarded(context):
            return []
        owners = [owner for epoch, owner in sorted(self._membership.owners.items()) if epoch != self._membership.epoch]
        answers = await asyncio.gather(
            *(self.unary(owner, method, request, context) for owner in owners), return_exceptions=True
        )
        return [answer for answer in answers if isinstance(answer, bytes)]

    def conversation(self, owner: Owner, context: ServicerContext) -> Any:
        """A ConverseCall to the owner, with messages in and bytes out."""
        rpc: Any = self._peers.channel(owner).stream_stream(
            f"/{SERVICE}/ConverseCall", request_serializer=pb.ConverseCallRequest.SerializeToString
        )
        return rpc(metadata=_metadata(context))

    # --- streams ------------------------------------------------------------------------------------------------------

    async def stream(self, owner: Owner, method: str, request: Any, context: ServicerContext) -> None:
        """Writes the owner's events to the caller. Raises NotSaidError when there was none, and what the owner states."""
        with self._waiting():
            await self._stream(owner, method, request, context)

    async def _stream(self, owner: Owner, method: str, request: Any, context: ServicerContext) -> None:
        rpc: Any = self._peers.channel(owner).unary_stream(f"/{SERVICE}/{method}")
        call = rpc(request.SerializeToString(), metadata=_metadata(context), timeout=context.time_remaining())
        last: graph_event_pb2.GraphEvent | None = None
        try:
            async for message in self.until_gone(call, owner):
                last = last_numbered(message) or last
                await context.write(message)
            return
        except grpc.aio.AioRpcError as broken:
            error = error_from_rpc(broken)
        except OwnerGoneError:
            error = OmniFlowError(Reason.CONNECTION_LOST, owner_gone(owner).message, is_stated=False)
        finally:
            call.cancel()
        if last is None and error.reason in NOT_SAID:
            raise NotSaidError(error)
        if error.is_stated:
            raise error
        await self._end_broken(last, owner, context)

    async def until_gone(self, call: Any, owner: Owner) -> AsyncIterator[bytes]:
        """Messages of a stream for as long as its owner lives: one that stands still would keep its callers waiting."""
        gone = asyncio.ensure_future(self._membership.wait_gone(owner.epoch))
        reading: asyncio.Future[Any] | None = None
        try:
            while True:
                reading = asyncio.ensure_future(call.read())
                await asyncio.wait((reading, gone), return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    raise OwnerGoneError
                message = reading.result()
                if message is grpc.aio.EOF:
                    return
                yield message
        finally:
            gone.cancel()
            if reading is not None:
                reading.cancel()

    async def _end_broken(
        self, last: graph_event_pb2.GraphEvent | None, owner: Owner, context: ServicerContext
    ) -> None:
        """The end of a stream that broke off; nothing more for a caller who has had the terminal event."""
        if last is not None and is_terminal(last):
            return
        await self.abort_unless_gone(owner, context)
        lost = owner_gone(owner).info
        sequence, key = (last.sequence, last.call_key) if last is not None else (0, "")
        await context.write(terminal(lost, sequence + 1, key))
        await abort(context, lost)

    async def abort_unless_gone(self, owner: Owner, context: ServicerContext) -> None:
        """Returns when the life has ended. While it lives only the connection to it is broken: the caller tries again."""
        if not await self.is_gone(owner):
            await context.abort(grpc.StatusCode.UNAVAILABLE, BROKEN)

    async def is_gone(self, owner: Owner) -> bool:
        """Whether the life ends within the time in which its end would be known."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GONE_WAIT_S):
                await self._membership.wait_gone(owner.epoch)
        return owner.epoch not in self._membership.owners


class NotAcceptedError(Exception):
    """This process has refused a call after it was placed here."""

    def __init__(self, error: OmniFlowError) -> None:
        super().__init__(error.message)
        self.error = error


class BrokenConnectionError(ConnectionError):
    """The connection to an owner that lives has broken under calls that were heard of."""


class OwnerGoneError(ConnectionError):
    """The life that was asked has ended."""


async def _result(call: Any) -> bytes:
    try:
        answer: bytes = await call
    except grpc.aio.AioRpcError as broken:
        error = error_from_rpc(broken)
        if error.reason in NOT_SAID:
            raise NotSaidError(error) from None
        raise error from None
    return answer


def _metadata(context: ServicerContext) -> tuple[tuple[str, str], ...]:
    return ((TENANT_KEY, tenant_of(context)), (FORWARDED_KEY, "1"))


def give_identifier(call: pb.CallSpec) -> None:
    """A call that is passed on has a request id: by that the store knows whether its owner had taken it when it went."""
    call.request_id = call.request_id or str(uuid.uuid4())


def is_terminal(event: graph_event_pb2.GraphEvent) -> bool:
    return event.WhichOneof("event") in ("finished", "failed")


def last_numbered(message: bytes) -> graph_event_pb2.GraphEvent | None:
    """The last event of a message that is one of the call's log; heartbeats are not."""
    events = pb.StreamCallResponse.FromString(message).events
    return next((event for event in reversed(events) if event.sequence), None)


def terminal(error: ErrorInfo, sequence: int, call_key: str) -> bytes:
    """The last event of a call that nobody owns any more, as a message."""
    event = graph_event_pb2.GraphEvent(sequence=sequence, call_key=call_key)
    event.failed.status.CopyFrom(status_to_proto(error))
    return pb.StreamCallResponse(events=(event,)).SerializeToString()


def owner_gone(owner: Owner) -> OmniFlowError:
    """The error of a call whose control plane has gone."""
    return OmniFlowError(
        Reason.OWNER_LOST,
        f"The control plane {owner.owner_id} that owned the call is gone.",
        metadata={"control_id": owner.owner_id},
    )
