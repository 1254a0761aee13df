"""Control planes that share one metadata store, in the test's loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import grpc
import grpc.aio

from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.role.v1 import replica_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.compose import ControlPlane
from omniflow_server.control import membership
from omniflow_server.control.registry import Registration
from omniflow_server.data.metadata.memory import MemoryStore
from tests.roles.running import eventually
from tests.server.control.planes import channel_to, plane
from tests.server.control.scripted_role import ScriptedRole
from tests.server.rpc.client import GraphClient
from tests.server.rpc.interfaces import INTERFACES, graphs
from tests.support.interfaces import Gate

LEASE_S = 0.4
TICK_S = 0.05
SESSION = "sessions/s"


@dataclass
class Line:
    """One process's way to the store, which a test can cut."""

    store: MemoryStore
    is_cut: bool = False
    asked: list[str] = field(default_factory=list)
    """Methods, in the order of the calls."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        async def ask(*arguments: Any, **options: Any) -> Any:
            self.asked.append(name)
            if self.is_cut:
                raise OmniFlowError(Reason.STORE_UNAVAILABLE, "the line is cut", retry_after_s=0.05)
            return await method(*arguments, **options)

        return ask


class Held:
    """Answers of the store that are on their way: it has done its work, and the process does not know yet."""

    def __init__(self, line: Line, method: str, when: Callable[[Any], object]) -> None:
        self._line = line
        self._method = method
        self._when = when
        self._released = asyncio.Event()
        self.count = 0
        setattr(line, method, self._ask)

    async def _ask(self, *arguments: Any, **options: Any) -> Any:
        answer = await getattr(self._line.store, self._method)(*arguments, **options)
        if self._when(answer):
            self.count += 1
            await self._released.wait()
        return answer

    async def wait(self, count: int = 1) -> None:
        """Returns when so many are held."""
        await eventually(lambda: self.count >= count)

    def resume(self) -> None:
        """Later answers arrive at once; those that are held stay so."""
        vars(self._line).pop(self._method, None)

    def release(self) -> None:
        """All arrive."""
        self.resume()
        self._released.set()


def hold(line: Line, method: str, *, when: Callable[[Any], object] = lambda _: True) -> Held:
    """Holds the store's answers to this method, or those of them that are meant."""
    return Held(line, method, when)


@dataclass
class Member:
    """One control plane, and a client of it."""

    plane: ControlPlane
    client: GraphClient
    line: Line

    @property
    def epoch(self) -> int:
        return self.plane.membership.epoch

    async def register(self, role: ScriptedRole) -> Registration:
        """Takes a replica in, as its message comes: a copy of what it knows of itself."""
        copy = replica_pb2.Replica()
        copy.CopyFrom(role.replica)
        return await self.plane.directory.register(copy)

    def owns(self, call_id: str) -> bool:
        """The identifier names its present life."""
        return int(call_id.rpartition("-")[2], 16) == self.epoch

    def end_life(self) -> None:
        """The store takes it for dead; it hears so with its next tick."""
        self.line.store._rows.lives.pop(self.epoch)

    @contextlib.asynccontextmanager
    async def without_connections(self) -> AsyncIterator[None]:
        """Whatever it passes on finds nobody who listens. It knows the others as before."""
        async with channel_to("unix:nobody-listens.sock") as nowhere:
            with mock.patch.object(self.plane.forwarding._peers, "channel", return_value=nowhere):
                yield


async def own(member: Member, session: str = SESSION) -> None:
    """Makes the session that member's."""
    answer = await member.client.run("count", inputs={"text": "1"}, session=session)
    assert member.owns(answer.call_id)


async def gone(member: Member, *others: Member) -> None:
    """Cuts a member off, until its life has ended for the others."""
    epoch = member.epoch
    member.line.is_cut = True
    await eventually(lambda: not any(epoch in other.plane.membership.owners for other in others))


async def tick(*members: Member, count: int = 3) -> None:
    """So many ticks of each, one after another: what they bring has come."""
    for _ in range(count):
        for member in members:
            await member.plane.membership.tick()


class OwnersStream:
    """The stream to an owner, which a test can break or stop from taking messages."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._broken = asyncio.Event()
        self.takes = asyncio.Event()
        self.is_stuck = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def break_connection(self) -> None:
        self._broken.set()

    async def write(self, request: pb.ConverseCallRequest) -> None:
        self.is_stuck = not self.takes.is_set()
        await self.takes.wait()
        await self._call.write(request)

    async def read(self) -> Any:
        reading, broken = asyncio.ensure_future(self._call.read()), asyncio.ensure_future(self._broken.wait())
        await asyncio.wait((reading, broken), return_when=asyncio.FIRST_COMPLETED)
        broken.cancel()
        if reading.done():
            return reading.result()
        reading.cancel()
        self._call.cancel()
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "Socket closed")


@contextlib.contextmanager
def owners_streams(member: Member, *, take: bool = True) -> Iterator[list[OwnersStream]]:
    """Those that the member's conversations open, in this order; whether they take messages from the first on."""
    made: list[OwnersStream] = []
    real = member.plane.forwarding.conversation

    def conversation(*arguments: Any) -> OwnersStream:
        made.append(OwnersStream(real(*arguments)))
        if take:
            made[-1].takes.set()
        return made[-1]

    with mock.patch.object(member.plane.forwarding, "conversation", conversation):
        yield made


@contextlib.asynccontextmanager
async def cluster(count: int = 2, **settings: Any) -> AsyncIterator[list[Member]]:
    """Control planes that know of each other."""
    Gate.reset()
    store = MemoryStore(time.time)
    options = {"owner_lease_ttl_s": LEASE_S, "resume_key": "ab" * 32, **settings}
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(mock.patch.object(membership, "TICK_S", TICK_S))
        members = []
        for number in range(count):
            line = Line(store)
            control = await stack.enter_async_context(
                plane(*INTERFACES, graphs=graphs(), metadata=line, control_id=f"control-{number}", **options)
            )
            channel = await stack.enter_async_context(channel_to(control.target))
            members.append(Member(control, GraphClient(channel), line))
        await eventually(lambda: all(len(member.plane.membership.owners) == count for member in members))
        yield members
