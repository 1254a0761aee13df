"""What every metadata store is tested in: a world with a clock, a store, further clients of it, and a way to wipe it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from hiredis import ReplyError

from omniflow_server.data.metadata.embedded import url_of
from omniflow_server.data.metadata.memory import MemoryStore
from omniflow_server.data.metadata.port import MetadataStore, Owner, Renewal, ReplicaRow, Tick
from omniflow_server.data.metadata.server import connection_of
from omniflow_server.data.metadata.valkey import ValkeyStore
from tests.support.clock import ManualClock
from tests.support.processes import wait_until

TTL_S = 1.5
REPLICA_TTL_S = 3.0
KEEP_S = 60.0
SHORT_S = 0.03
"""Real time that rows of a real store are kept for in tests that outlive them."""
TIMEOUT_S = 5.0


class World(Protocol):
    """One store and its time."""

    clock: ManualClock

    @property
    def store(self) -> MetadataStore: ...

    async def other_client(self) -> MetadataStore:
        """A client of the same store."""
        ...

    async def wipe(self) -> None:
        """The store forgets everything; a millisecond passes, as no store is wiped in less."""
        ...

    async def rows_run_out(self, keep_s: float) -> None:
        """Returns when sessions and requests that were kept for `keep_s` are gone."""
        ...


class MemoryWorld:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)

    async def other_client(self) -> MetadataStore:
        return self.store

    async def wipe(self) -> None:
        self.clock.advance(0.001)
        self.store.wipe()

    async def rows_run_out(self, keep_s: float) -> None:
        self.clock.advance(keep_s)


class ValkeyWorld:
    """A namespace of its own in a real server. Rows' lives are real time; leases run by the clock."""

    def __init__(self, socket: Path, stack: contextlib.AsyncExitStack) -> None:
        self.clock = ManualClock()
        self.namespace = uuid.uuid4().hex
        self._socket = socket
        self._stack = stack

    async def enter(self) -> None:
        self.store = await self.other_client()

    async def other_client(self) -> ValkeyStore:
        store = ValkeyStore(
            connection_of(url_of(self._socket)),
            namespace=self.namespace,
            address="the server of the tests",
            timeout_s=TIMEOUT_S,
            clock=self.clock,
        )
        await store.start()
        self._stack.push_async_callback(store.close)
        return store

    def key(self, name: str) -> str:
        return f"{{omniflow:{self.namespace}}}:{name}"

    async def raw(self, *words: Any) -> Any:
        """A command, past the store."""
        return await ask(url_of(self._socket), *words)

    async def item_keys(self) -> list[str]:
        """Keys of sessions and requests."""
        return [
            key.decode() for kind in ("session", "request") for key in await self.raw("KEYS", self.key(f"{kind}:*"))
        ]

    async def wipe(self) -> None:
        self.clock.advance(0.001)
        await self.raw("FLUSHALL")

    async def rows_run_out(self, keep_s: float) -> None:
        async def are_gone() -> bool:
            return not await self.item_keys()

        await wait_until(are_gone, keep_s + 5.0)


@contextlib.asynccontextmanager
async def valkey_world(socket: Path) -> AsyncIterator[ValkeyWorld]:
    async with contextlib.AsyncExitStack() as stack:
        world = ValkeyWorld(socket, stack)
        await world.enter()
        yield world


async def ask(url: str, *words: Any) -> Any:
    """One command on a connection of its own. Raises ReplyError."""
    connection = connection_of(url)
    await connection.connect()
    try:
        await connection.send_command(*words)
        reply = await connection.read_response()
    finally:
        await connection.disconnect()
    if isinstance(reply, ReplyError):
        raise reply
    return reply


def owner(owner_id: str, incarnation: str = "1", *, is_draining: bool = False) -> Owner:
    return Owner(
        owner_id=owner_id,
        incarnation_id=f"{owner_id}-{incarnation}",
        endpoint=f"unix:/run/{owner_id}.sock",
        is_draining=is_draining,
        protocol_revisions=(1, 2),
    )


async def opened(store: MetadataStore, owner_id: str, incarnation: str = "1") -> int:
    return await store.open_owner(owner(owner_id, incarnation), ttl_s=TTL_S)


async def ticked(
    store: MetadataStore,
    epoch: int,
    *,
    renewals: Sequence[Renewal] = (),
    since: Tick | None = None,
    is_draining: bool = False,
) -> Tick:
    return await store.tick(
        epoch,
        ttl_s=TTL_S,
        is_draining=is_draining,
        renewals=renewals,
        replica_ttl_s=REPLICA_TTL_S,
        replica_revision=since.replica_revision if since else 0,
        store_incarnation=since.store_incarnation if since else "",
    )


def replica(replica_id: str = "0", *, incarnation: str = "i1", **changes: Any) -> ReplicaRow:
    values: dict[str, Any] = {
        "role": "llm",
        "replica_id": replica_id,
        "incarnation_id": incarnation,
        "payload": b"\x00\nwhat it can do \xff",
        "lease_id": f"lease-{replica_id}-{incarnation}",
        "state": 2,
        "load": b"\x08\x01",
        "registrar": 7,
    }
    return ReplicaRow(**(values | changes))


def renewal(row: ReplicaRow, *, state: int = 2, load: bytes = b"\x08\x01", lease_id: str = "") -> Renewal:
    return Renewal(role=row.role, replica_id=row.replica_id, lease_id=lease_id or row.lease_id, state=state, load=load)
