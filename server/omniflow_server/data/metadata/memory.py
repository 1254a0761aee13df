"""The metadata store of a control plane that is alone: the rules of the port, in the memory of one process.

Several lives may share one `MemoryStore`, as tests do. What it knows goes with it. It decides what the scripts of the real
store decide, in the same order, and never suspends: a caller that awaits it keeps the loop.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from omniflow_server.data.metadata import refusals
from omniflow_server.data.metadata.expiring import Expiring
from omniflow_server.data.metadata.port import (
    KEPT_CHANGES,
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
from omniflow_server.data.metadata.times import whole_ms, whole_us


@dataclass(slots=True)
class _Life:
    owner: Owner
    lease_end_ms: int


@dataclass(slots=True)
class _Replica:
    row: ReplicaRow
    lease_end_ms: int
    revision: int
    replaced: tuple[str, ...] = ()
    """Incarnations that came before, newest last."""


@dataclass(slots=True)
class _Rows:
    """All that is known; a wipe is a new one."""

    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    counter: int = 0
    last_tick_ms: int | None = None
    resumed_ms: int = 0
    """When a pause was noticed last."""
    ttl_ms: int = 0
    """Of owners' leases, as the last of them had it."""
    lives: dict[int, _Life] = field(default_factory=dict)
    """By epoch, which is the order of opening."""
    replicas: dict[ReplicaName, _Replica] = field(default_factory=dict)
    removed: dict[ReplicaName, int] = field(default_factory=dict)
    """Revision of the removal, oldest first."""
    trimmed_revision: int = 0
    """Of the newest removal that is not remembered any more."""
    replica_revision: int = 0
    sessions: Expiring[SessionName, SessionLease] = field(default_factory=Expiring)
    requests: Expiring[tuple[str, str], RequestRow] = field(default_factory=Expiring)
    graphs: dict[str, GraphRow] = field(default_factory=dict)
    graph_revision: int = 0


class MemoryStore:
    """`MetadataStore` without a store. `clock` gives seconds since 1970, or since whenever a test says."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rows = _Rows()

    def wipe(self) -> None:
        """Forgets everything, as a store does that lost its disk."""
        self._rows = _Rows()

    # --- lives -------------------------------------------------------------------------------------------------------

    async def open_owner(self, owner: Owner, *, ttl_s: float) -> int:
        rows, now_ms = self._rows, self._now_ms()
        earlier = next((life.owner for life in rows.lives.values() if life.owner.owner_id == owner.owner_id), None)
        if earlier is not None and earlier.incarnation_id == owner.incarnation_id:
            epoch = earlier.epoch
        else:
            if earlier is not None:
                del rows.lives[earlier.epoch]
            epoch = self._next()
        rows.ttl_ms = whole_ms(ttl_s)
        if rows.last_tick_ms is None:
            rows.last_tick_ms = now_ms
        rows.lives[epoch] = _Life(dataclasses.replace(owner, epoch=epoch), now_ms + rows.ttl_ms)
        return epoch

    async def close_owner(self, epoch: int) -> None:
        self._rows.lives.pop(epoch, None)

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
        rows, now_ms = self._rows, self._now_ms()
        life = self._life(epoch)
        replica_ttl_ms = whole_ms(replica_ttl_s)
        unknown = [each.lease_id for each in renewals if not self._renew(each, now_ms + replica_ttl_ms)]
        rows.ttl_ms = whole_ms(ttl_s)
        self._notice_pause(now_ms)
        rows.last_tick_ms = now_ms
        life.lease_end_ms = now_ms + rows.ttl_ms
        life.owner = dataclasses.replace(life.owner, is_draining=is_draining)
        self._end_what_ran_out(now_ms, replica_ttl_ms)
        since = replica_revision if store_incarnation == rows.incarnation else 0
        return self._told(since, tuple(unknown))

    # --- replicas ----------------------------------------------------------------------------------------------------

    async def register_replica(self, epoch: int, row: ReplicaRow, *, ttl_s: float) -> None:
        self._life(epoch)
        before = self._rows.replicas.get(row.name)
        replaced = before.replaced if before else ()
        if before is not None and before.row.incarnation_id != row.incarnation_id:
            if row.incarnation_id in replaced:
                raise refusals.stale_incarnation(row, before.row.incarnation_id)
            replaced = (*replaced, before.row.incarnation_id)[-refusals.REMEMBERED_INCARNATIONS :]
        elif before is not None and row.drain_grace_s is None and row.state != refusals.READY:
            row = dataclasses.replace(row, drain_grace_s=before.row.drain_grace_s)
        lease_end_ms = self._now_ms() + whole_ms(ttl_s)
        self._rows.replicas[row.name] = _Replica(row, lease_end_ms, self._next_replica_revision(), replaced)
        self._rows.removed.pop(row.name, None)

    async def remove_replica(self, epoch: int, lease_id: str, name: ReplicaName) -> None:
        self._life(epoch)
        found = self._rows.replicas.get(name)
        if found is not None and found.row.lease_id == lease_id:
            self._remove_replica(name)

    async def drain_replica(self, epoch: int, name: ReplicaName, *, grace_s: float, state: int) -> None:
        self._life(epoch)
        found = self._rows.replicas.get(name)
        if found is None:
            raise refusals.unknown_replica(name)
        if (found.row.drain_grace_s, found.row.state) != (grace_s, state):
            found.row = dataclasses.replace(found.row, drain_grace_s=grace_s, state=state)
            found.revision = self._next_replica_revision()

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def claim_sessions(self, epoch: int, sessions: Sequence[SessionName], *, keep_s: float) -> list[SessionLease]:
        self._life(epoch)
        now_ms = self._now_ms()
        self._notice_pause(now_ms)
        return [self._claim(epoch, session, now_ms, whole_ms(keep_s)) for session in sessions]

    async def release_sessions(self, epoch: int, sessions: Sequence[SessionName]) -> None:
        self._life(epoch)
        now_ms = self._now_ms()
        for session in sessions:
            held = self._rows.sessions.get(session, now_ms)
            if held is not None and held.epoch == epoch:
                self._rows.sessions.remove(session)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def claim_requests(
        self, epoch: int, tenant_requests: Sequence[tuple[str, str, str, bytes]], *, keep_s: float
    ) -> list[RequestRow]:
        self._life(epoch)
        now_ms, keep_ms = self._now_ms(), whole_ms(keep_s)
        requests, found = self._rows.requests, []
        for tenant, request_id, call_id, digest in tenant_requests:
            row = requests.get((tenant, request_id), now_ms)
            row = row or RequestRow(call_id=call_id, epoch=epoch, digest=digest)
            if (row.epoch, row.call_id) == (epoch, call_id):
                requests.put((tenant, request_id), row, now_ms=now_ms, keep_ms=keep_ms)
            found.append(row)
        return found

    async def renew_requests(self, epoch: int, tenant_requests: Sequence[tuple[str, str]], *, keep_s: float) -> None:
        self._life(epoch)
        now_ms, keep_ms = self._now_ms(), whole_ms(keep_s)
        for name in tenant_requests:
            row = self._rows.requests.get(name, now_ms)
            if row is not None and row.epoch == epoch:
                self._rows.requests.put(name, row, now_ms=now_ms, keep_ms=keep_ms)

    async def release_requests(self, epoch: int, tenant_requests: Sequence[tuple[str, str, str]]) -> None:
        self._life(epoch)
        now_ms = self._now_ms()
        for tenant, request_id, call_id in tenant_requests:
            row = self._rows.requests.get((tenant, request_id), now_ms)
            if row is not None and (row.epoch, row.call_id) == (epoch, call_id):
                self._rows.requests.remove((tenant, request_id))

    async def find_request(self, tenant: str, request_id: str) -> RequestRow | None:
        return self._rows.requests.get((tenant, request_id), self._now_ms())

    # --- graphs ------------------------------------------------------------------------------------------------------

    async def put_graph(self, epoch: int, row: GraphRow) -> None:
        self._life(epoch)
        before = self._rows.graphs.get(row.name)
        if before == row:
            return
        version = before.version if before else 0
        if row.version != version + 1:
            raise refusals.graph_conflict(row, version)
        self._rows.graphs[row.name] = row
        self._rows.graph_revision = self._next()

    async def graphs(self) -> tuple[int, tuple[GraphRow, ...]]:
        rows = self._rows
        return rows.graph_revision, tuple(rows.graphs[name] for name in sorted(rows.graphs))

    # --- for tests and people ----------------------------------------------------------------------------------------

    async def key_count(self) -> int:
        """Rows that are kept, for want of keys."""
        rows, now_ms = self._rows, self._now_ms()
        counts = (len(rows.lives), len(rows.replicas), len(rows.removed), len(rows.graphs))
        return sum(counts) + rows.sessions.sweep(now_ms) + rows.requests.sweep(now_ms)

    async def close(self) -> None:
        """Nothing to end."""

    # --- the rules ---------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return whole_us(self._clock()) // 1000

    def _next(self) -> int:
        """A number above all that this store, or one before a wipe, has given out."""
        self._rows.counter = max(self._rows.counter + 1, whole_us(self._clock()))
        return self._rows.counter

    def _next_replica_revision(self) -> int:
        self._rows.replica_revision = self._next()
        return self._rows.replica_revision

    def _life(self, epoch: int) -> _Life:
        life = self._rows.lives.get(epoch)
        if life is None:
            raise refusals.stale_owner(epoch)
        return life

    def _notice_pause(self, now_ms: int) -> None:
        rows = self._rows
        if rows.last_tick_ms is not None and now_ms - rows.last_tick_ms > whole_ms(PAUSE_S):
            rows.resumed_ms = rows.last_tick_ms = now_ms

    def _has_run_out(self, lease_end_ms: int, now_ms: int, ttl_ms: int) -> bool:
        return lease_end_ms <= now_ms and self._rows.resumed_ms + ttl_ms <= now_ms

    def _end_what_ran_out(self, now_ms: int, replica_ttl_ms: int) -> None:
        rows = self._rows
        for epoch, life in tuple(rows.lives.items()):
            if self._has_run_out(life.lease_end_ms, now_ms, rows.ttl_ms):
                del rows.lives[epoch]
        for name, replica in tuple(rows.replicas.items()):
            if self._has_run_out(replica.lease_end_ms, now_ms, replica_ttl_ms):
                self._remove_replica(name)

    def _renew(self, renewal: Renewal, lease_end_ms: int) -> bool:
        found = self._rows.replicas.get((renewal.role, renewal.replica_id))
        if found is None or found.row.lease_id != renewal.lease_id:
            return False
        if found.row.state != renewal.state:
            found.revision = self._next_replica_revision()
        found.row = dataclasses.replace(found.row, state=renewal.state, load=renewal.load)
        found.lease_end_ms = lease_end_ms
        return True

    def _remove_replica(self, name: ReplicaName) -> None:
        rows = self._rows
        del rows.replicas[name]
        rows.removed[name] = self._next_replica_revision()
        if len(rows.removed) > KEPT_CHANGES:
            rows.trimmed_revision = rows.removed.pop(next(iter(rows.removed)))

    def _told(self, since: int, unknown_leases: tuple[str, ...]) -> Tick:
        rows = self._rows
        is_snapshot = since == 0 or since < rows.trimmed_revision or since > rows.replica_revision
        after = 0 if is_snapshot else since
        return Tick(
            owners=tuple(life.owner for life in rows.lives.values()),
            store_incarnation=rows.incarnation,
            replica_revision=rows.replica_revision,
            is_snapshot=is_snapshot,
            changed=tuple(found.row for _, found in sorted(rows.replicas.items()) if found.revision > after),
            removed=() if is_snapshot else tuple(sorted(n for n, revision in rows.removed.items() if revision > after)),
            unknown_leases=unknown_leases,
            graph_revision=rows.graph_revision,
        )

    def _claim(self, epoch: int, session: SessionName, now_ms: int, keep_ms: int) -> SessionLease:
        rows = self._rows
        held = rows.sessions.get(session, now_ms)
        if held is not None and held.epoch != epoch and self._lives(held.epoch, now_ms):
            return held
        if held is None or held.epoch != epoch:
            held = SessionLease(epoch=epoch, fence=self._next())
        rows.sessions.put(session, held, now_ms=now_ms, keep_ms=keep_ms)
        return held

    def _lives(self, epoch: int, now_ms: int) -> bool:
        """Ends the life when its lease has run out: who loses a session must know that it lost everything."""
        life = self._rows.lives.get(epoch)
        if life is not None and self._has_run_out(life.lease_end_ms, now_ms, self._rows.ttl_ms):
            del self._rows.lives[epoch]
            return False
        return life is not None
