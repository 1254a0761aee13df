"""The metadata store in Valkey or Redis: every method is scripts, which decide under the rules of the port.

It knows which keys a script needs, how rows are written and how much one script may do. Time is the store's own, so that
leases of many hosts run by one clock; only tests give another. All keys of a namespace share a hash tag, for a script may
only use keys of one slot. Redis Cluster is out of reach today: it would hold a whole namespace on one node, and this client
does not look for the node.

    {omniflow:<namespace>}:meta              numbers that grow, when the last tick was, incarnation of the store
    {omniflow:<namespace>}:leases, owners    epoch -> end of the lease; epoch -> row
    {omniflow:<namespace>}:replica:*         facts, rows, leases, revisions, removed: by name
    {omniflow:<namespace>}:session:<tenant length>:<tenant>:<session>       "<epoch> <fence>", with a time to live
    {omniflow:<namespace>}:request:<tenant length>:<tenant>:<request id>    epoch, call id and digest, with a time to live
    {omniflow:<namespace>}:graphs, graph:versions                           by name
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.tasks import BackgroundTasks
from omniflow_server.data.metadata import refusals, rows
from omniflow_server.data.metadata.connection import Command, Connection, Reply
from omniflow_server.data.metadata.pipeline import Pipeline
from omniflow_server.data.metadata.port import (
    KEPT_CHANGES,
    MAX_ITEMS,
    PAUSE_S,
    GraphRow,
    Owner,
    Renewal,
    ReplicaName,
    ReplicaRow,
    RequestRow,
    SessionLease,
    SessionName,
    Tick,
)
from omniflow_server.data.metadata.scripts import all_scripts
from omniflow_server.data.metadata.times import whole_ms, whole_us

T = TypeVar("T")

_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SCAN_COUNT = b"1000"
_PAUSE_MS = b"%d" % whole_ms(PAUSE_S)
_KEPT_CHANGES = b"%d" % KEPT_CHANGES
_MAX_ITEMS = b"%d" % MAX_ITEMS


class ValkeyStore:
    """`MetadataStore` over one connection. `start` before anything else, `close` at the end.

    `clock`: seconds by which leases run, in place of the store's own time.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str,
        address: str,
        timeout_s: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._prefix = _prefix(namespace)
        self._clock = clock
        self._connection = connection
        self._scripts = all_scripts()
        self._pipeline = Pipeline(connection, self._scripts.values(), address=address, timeout_s=timeout_s)
        self._tasks = BackgroundTasks()
        self._life_keys = self._keys("meta", "leases", "owners")
        self._replica_keys = self._life_keys + self._keys(
            "replica:facts", "replica:rows", "replica:leases", "replica:revisions", "replica:removed"
        )
        self._graph_keys = self._life_keys + self._keys("graphs", "graph:versions")

    async def start(self) -> None:
        """Begins to connect. What is called before there is a connection waits for it."""
        self._tasks.create_task(self._pipeline.run())

    async def close(self) -> None:
        await self._tasks.__aexit__(None, None, None)
        await self._connection.disconnect(nowait=True)

    # --- lives -------------------------------------------------------------------------------------------------------

    async def open_owner(self, owner: Owner, *, ttl_s: float) -> int:
        reply = await self._run(
            "open_owner",
            self._life_keys,
            0,
            _ms(ttl_s),
            owner.owner_id.encode(),
            owner.incarnation_id.encode(),
            _flag(owner.is_draining),
            rows.row_of_owner(owner),
            secrets.token_hex(8).encode(),
        )
        return int(reply[1])

    async def close_owner(self, epoch: int) -> None:
        await self._run("close_owner", self._life_keys, epoch)

    async def tick(
        self,
        epoch: int,
        *,
        ttl_s: float,
        is_draining: bool,
        renewals: Sequence[Renewal],
        replica_ttl_s: float,
        replica_revision: int,
        store_incarnation: str,
    ) -> Tick:
        renewing = [
            self._script("renew_replicas", self._replica_keys, epoch, _ms(replica_ttl_s), *_words(some))
            for some in (_chunks(renewals) if renewals else ())
        ]
        ticking = self._script(
            "tick",
            self._replica_keys,
            epoch,
            *(_ms(ttl_s), _flag(is_draining), _ms(replica_ttl_s), _PAUSE_MS, _KEPT_CHANGES, _MAX_ITEMS),
        )
        since = (b"%d" % replica_revision, store_incarnation.encode())
        reading = self._script("read_replicas", self._replica_keys, epoch, *since, b"", _MAX_ITEMS)
        *renewed, ticked, page = await self._call(epoch, *renewing, ticking, reading)
        while ticked[1] == b"1":
            ticked, page = await self._call(epoch, ticking, reading)
        pages = [page]
        while cursor := pages[-1][3]:
            reading = self._script("read_replicas", self._replica_keys, epoch, *since, cursor, _MAX_ITEMS)
            pages += await self._call(epoch, reading)
        return _tick(ticked, pages, unknown=[lease_id for reply in renewed for lease_id in reply[1:]])

    # --- replicas ----------------------------------------------------------------------------------------------------

    async def register_replica(self, epoch: int, row: ReplicaRow, *, ttl_s: float) -> None:
        reply = await self._run(
            "register_replica",
            self._replica_keys,
            epoch,
            _ms(ttl_s),
            *(rows.text_of_name(row.name), row.lease_id.encode(), b"%d" % row.state, row.load),
            *(rows.text_of_drain(row.drain_grace_s), row.incarnation_id.encode(), rows.row_of_replica(row)),
            *(b"%d" % refusals.READY, b"%d" % refusals.REMEMBERED_INCARNATIONS),
        )
        if reply[0] == b"REPLACED":
            raise refusals.stale_incarnation(row, reply[1].decode())

    async def remove_replica(self, epoch: int, lease_id: str, name: ReplicaName) -> None:
        words = (rows.text_of_name(name), lease_id.encode(), _KEPT_CHANGES)
        await self._run("remove_replica", self._replica_keys, epoch, *words)

    async def drain_replica(self, epoch: int, name: ReplicaName, *, grace_s: float, state: int) -> None:
        words = (rows.text_of_name(name), rows.text_of_drain(grace_s), b"%d" % state)
        reply = await self._run("drain_replica", self._replica_keys, epoch, *words)
        if reply[0] == b"UNKNOWN":
            raise refusals.unknown_replica(name)

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def claim_sessions(self, epoch: int, sessions: Sequence[SessionName], *, keep_s: float) -> list[SessionLease]:
        keep_ms = _ms(keep_s)
        replies = await self._call(
            epoch,
            *(
                self._script("claim_sessions", self._session_keys(some), epoch, keep_ms, _PAUSE_MS)
                for some in _chunks(sessions)
            ),
        )
        return [lease for reply in replies for lease in _leases(reply[1])]

    async def release_sessions(self, epoch: int, sessions: Sequence[SessionName]) -> None:
        commands = (self._script("release_sessions", self._session_keys(some), epoch) for some in _chunks(sessions))
        await self._call(epoch, *commands)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def claim_requests(
        self, epoch: int, tenant_requests: Sequence[tuple[str, str, str, bytes]], *, keep_s: float
    ) -> list[RequestRow]:
        keep_ms = _ms(keep_s)
        commands = []
        for some in _chunks(tenant_requests):
            words = [word for _, _, call_id, digest in some for word in (call_id.encode(), digest)]
            keys = self._request_keys([each[:2] for each in some])
            commands.append(self._script("claim_requests", keys, epoch, keep_ms, *words))
        return [rows.request_of(value) for reply in await self._call(epoch, *commands) for value in reply[1:]]

    async def renew_requests(self, epoch: int, tenant_requests: Sequence[tuple[str, str]], *, keep_s: float) -> None:
        commands = (
            self._script("renew_requests", self._request_keys(some), epoch, _ms(keep_s))
            for some in _chunks(tenant_requests)
        )
        await self._call(epoch, *commands)

    async def release_requests(self, epoch: int, tenant_requests: Sequence[tuple[str, str, str]]) -> None:
        commands = []
        for some in _chunks(tenant_requests):
            keys = self._request_keys([each[:2] for each in some])
            commands.append(self._script("release_requests", keys, epoch, *(each[2].encode() for each in some)))
        await self._call(epoch, *commands)

    async def find_request(self, tenant: str, request_id: str) -> RequestRow | None:
        (value,) = await self._pipeline.call((b"GET", self._item_key(b"request", tenant, request_id)))
        return None if value is None else rows.request_of(value)

    # --- graphs ------------------------------------------------------------------------------------------------------

    async def put_graph(self, epoch: int, row: GraphRow) -> None:
        words = (row.name.encode(), b"%d" % row.version, rows.row_of_graph(row))
        reply = await self._run("put_graph", self._graph_keys, epoch, *words)
        if reply[0] == b"CONFLICT":
            raise refusals.graph_conflict(row, int(reply[1]))

    async def graphs(self) -> tuple[int, tuple[GraphRow, ...]]:
        reply = await self._run("read_graphs", self._graph_keys, 0)
        found = (rows.graph_of(*triple) for triple in _groups(reply[2:], 3))
        return int(reply[1]), tuple(sorted((row for row in found if row is not None), key=lambda row: row.name))

    # --- for tests and people ----------------------------------------------------------------------------------------

    async def key_count(self) -> int:
        keys: set[bytes] = set()  # a scan may name a key twice
        cursor = b"0"
        while True:
            words = (b"SCAN", cursor, b"MATCH", self._prefix + b"*", b"COUNT", _SCAN_COUNT)
            ((cursor, some),) = await self._pipeline.call(words)
            keys.update(some)
            if cursor == b"0":
                return len(keys)

    # --- commands ----------------------------------------------------------------------------------------------------

    def _keys(self, *names: str) -> tuple[bytes, ...]:
        return tuple(self._prefix + name.encode() for name in names)

    def _item_key(self, kind: bytes, tenant: str, name: str) -> bytes:
        """With the length of the tenant, so that no two pairs are alike."""
        return b"%b%b:%d:%b:%b" % (self._prefix, kind, len(owner := tenant.encode()), owner, name.encode())

    def _session_keys(self, sessions: Sequence[SessionName]) -> tuple[bytes, ...]:
        return (*self._life_keys, *(self._item_key(b"session", *session) for session in sessions))

    def _request_keys(self, requests: Sequence[Sequence[str]]) -> tuple[bytes, ...]:
        return (*self._life_keys, *(self._item_key(b"request", *request) for request in requests))

    def _script(self, name: str, keys: Sequence[bytes], epoch: int, *words: bytes) -> Command:
        now = b"0" if self._clock is None else b"%d" % whole_us(self._clock())
        return (b"EVALSHA", self._scripts[name].digest, b"%d" % len(keys), *keys, now, b"%d" % epoch, *words)

    async def _run(self, name: str, keys: Sequence[bytes], epoch: int, *words: bytes) -> Sequence[Reply]:
        (reply,) = await self._call(epoch, self._script(name, keys, epoch, *words))
        return reply

    async def _call(self, epoch: int, *commands: Command) -> list[Sequence[Reply]]:
        replies = await self._pipeline.call(*commands)
        if any(reply[0] == b"STALE_OWNER" for reply in replies):
            raise refusals.stale_owner(epoch)
        return replies


def _prefix(namespace: str) -> bytes:
    # A brace would end the hash tag, and * or [ in it would match the keys of others.
    if not _NAMESPACE.fullmatch(namespace):
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"control.metadata_namespace is {namespace!r}: use 1 to 64 letters, digits, dots, dashes and underscores",
        )
    return b"{omniflow:%b}:" % namespace.encode()


def _ms(seconds: float) -> bytes:
    return b"%d" % whole_ms(seconds)


def _flag(is_set: bool) -> bytes:
    return b"1" if is_set else b"0"


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many as one script may do; one without any for no items, for the script also tells whether the caller lives."""
    return (items[start : start + MAX_ITEMS] for start in range(0, max(1, len(items)), MAX_ITEMS))


def _groups(reply: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (reply[start : start + size] for start in range(0, len(reply), size))


def _words(renewals: Sequence[Renewal]) -> Iterator[bytes]:
    for each in renewals:
        yield from (
            rows.text_of_name((each.role, each.replica_id)),
            each.lease_id.encode(),
            b"%d" % each.state,
            each.load,
        )


def _leases(values: bytes) -> Iterator[SessionLease]:
    numbers = values.split()
    return (
        SessionLease(epoch=int(epoch), fence=int(fence))
        for epoch, fence in zip(numbers[::2], numbers[1::2], strict=True)
    )


def _tick(ticked: Sequence[bytes], pages: Sequence[Sequence[bytes]], unknown: Sequence[bytes]) -> Tick:
    """`pages` are read one after the other: what changed in between is told again by the next tick, for the revision is that
    of the first page."""
    first = pages[0]
    changed: dict[ReplicaName, ReplicaRow | None] = {}
    for page in pages:
        for facts in _groups(page[5 + int(page[4]) :], 7):
            changed[rows.replica_name_of(facts[0])] = rows.replica_of(*facts)
    removed = {rows.replica_name_of(name) for name in first[5 : 5 + int(first[4])]} - changed.keys()
    owners = (rows.owner_of(*owner) for owner in _groups(ticked[4:], 3))
    return Tick(
        owners=tuple(sorted((owner for owner in owners if owner is not None), key=lambda owner: owner.epoch)),
        store_incarnation=ticked[2].decode(),
        replica_revision=int(first[1]),
        is_snapshot=first[2] == b"1",
        changed=tuple(row for _, row in sorted(changed.items(), key=lambda item: item[0]) if row is not None),
        removed=tuple(sorted(removed)),
        unknown_leases=tuple(lease_id.decode() for lease_id in unknown),
        graph_revision=int(ticked[3]),
    )
