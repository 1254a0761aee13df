"""Control planes that share one metadata store, in the test's loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

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
