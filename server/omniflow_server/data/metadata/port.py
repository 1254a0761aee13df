"""What the processes of a cluster agree on: who they are, which replicas there are, who owns a session or a request id, and
which graphs are installed.

Every write of a control plane carries the *epoch* of its life, a number that the store gives out once and never again, each
above all before. A life ends when it closes, when a newer process of the same identifier opens, or when others find that its
lease has run out. From then on the store refuses everything that it writes with STALE_OWNER, however late it comes.

    open_owner ──▶ epoch ──▶ tick, tick, tick …  ──▶ close_owner
                               │ renews the own lease and those of replicas, ends lives whose lease has run out,
                               └ returns the owners, and what has changed since the last tick

Leases run by the store's clock. While nobody ticked for longer than `PAUSE_S` the store itself was away, or everybody was:
then no lease ends before everybody had the time of a lease to come back.

Rows are opaque to the store. A row carries the revision of its format (`ROW_FORMAT`), so that processes of two versions can
work on one store: a reader leaves out rows of a format that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

ROW_FORMAT = 1
"""Format of the rows that this version writes."""
PAUSE_S = 1.0
"""Longer without a tick, and leases are made longer. Several intervals of ticks, less than a lease."""
MAX_ITEMS = 256
"""Items of one script; more are sent in several."""
KEPT_CHANGES = 1024
"""Removals of replicas that `tick` can list; who is further behind gets a snapshot."""

SessionName = tuple[str, str]
"""Tenant and session."""
ReplicaName = tuple[str, str]
"""Role and replica identifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One life of a control-plane process."""

    owner_id: str
    """Kept across restarts."""
    incarnation_id: str
    """New at each start."""
    endpoint: str
    """gRPC target of its internal services, for roles and other control planes."""
    epoch: int = 0
    """Given by `open_owner`."""
    is_draining: bool = False
    protocol_revisions: tuple[int, ...] = ()
    """Of omniflow.role.v1, that it speaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    """A registered replica. `payload` is its message; the store only looks at the other fields."""

    role: str
    replica_id: str
    incarnation_id: str
    payload: bytes
    lease_id: str
    state: int
    """Of the replica, as in its message; `payload` may lag behind."""
    load: bytes = b""
    """Its last report of load."""
    drain_grace_s: float | None = None
    """Set when somebody wants it drained."""
    registrar: int = 0
    """Epoch of the control plane that it is registered with."""

    @property
    def name(self) -> ReplicaName:
        return (self.role, self.replica_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What a replica has told the control plane that it is registered with since the last tick."""

    role: str
    replica_id: str
    lease_id: str
    state: int
    load: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What a control plane learns from a tick."""

    owners: tuple[Owner, ...]
    """All that live, by epoch."""
    store_incarnation: str
    """Another one than before: the store was wiped, and knows nothing of what it was told."""
    replica_revision: int
    is_snapshot: bool
    """`changed` is every replica there is, and what it does not list is gone."""
    changed: tuple[ReplicaRow, ...]
    """Replicas that changed after the asked revision, by name."""
    removed: tuple[ReplicaName, ...]
    """Replicas that went after the asked revision, by name."""
    unknown_leases: tuple[str, ...]
    """Lease identifiers of renewals that the store does not know: the replicas must register again."""
    graph_revision: int
    """Changes with every change of a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLease:
    """Who owns a session."""

    epoch: int
    """Of the owner."""
    fence: int
    """Above that of every earlier owner of any session, also before a wipe of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """What a request id stands for."""

    call_id: str
    epoch: int
    """Of the call's owner."""
    digest: bytes
    """Of the request's body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRow:
    """A graph with its kept revisions and shares. `payload` is opaque."""

    name: str
    version: int
    """Counts the changes of the row, from 1."""
    payload: bytes


class MetadataStore(Protocol):
    """The port. Every method raises STORE_UNAVAILABLE when the store does not answer in time, is full or cannot write to its
    disk; it may have done the work.

    Methods with an `epoch` raise STALE_OWNER when that life has ended, and change nothing then. All methods may be repeated:
    a repeat of what was done answers as the first time.
    """

    async def open_owner(self, owner: Owner, *, ttl_s: float) -> int:
        """Begins a life, and ends an earlier one of the same `owner_id` at once. Returns its epoch. The same incarnation
        again, while it lives, gets the same epoch, a new lease and the new row. Epochs, fences and revisions grow also over
        a wipe of the store, and stay below 2^53."""
        ...

    async def close_owner(self, epoch: int) -> None:
        """Ends a life in order: its sessions are free at once. Unknown epochs change nothing."""
        ...

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
        """Renews the own lease and those of `renewals`, ends what has run out, and tells what has changed.

        A lease ends when its time has passed in full, and not while the store or everybody was away. An owner whose lease
        has passed but whom nobody has ended renews it like any other. A renewal whose `state` or presence differs makes a
        new replica revision; a load alone does not, and is found in the row. `replica_revision` 0, or one of another store
        incarnation, or one too far behind, is answered with a snapshot.
        """
        ...

    async def register_replica(self, epoch: int, row: ReplicaRow, *, ttl_s: float) -> None:
        """Takes a replica in, in place of an earlier incarnation. Raises STALE_EPOCH for an incarnation that was replaced
        (metadata `incarnation_id`: by which); the last 16 of each live replica are remembered. A row of the same incarnation
        is replaced, with the new lease; a drain that was asked for stays when `row.drain_grace_s` is None and `row.state` is
        not ready (2)."""
        ...

    async def remove_replica(self, epoch: int, lease_id: str, name: ReplicaName) -> None:
        """Forgets a replica that leaves. Nothing when its lease is another one."""
        ...

    async def drain_replica(self, epoch: int, name: ReplicaName, *, grace_s: float, state: int) -> None:
        """Sets `drain_grace_s` and `state`. Raises UNKNOWN_RESOURCE when there is no such replica."""
        ...

    async def claim_sessions(self, epoch: int, sessions: Sequence[SessionName], *, keep_s: float) -> list[SessionLease]:
        """For each session its owner: the one that holds it while that lives, else the caller, under a new fence. An owner
        whose lease has run out is ended by the claim, and loses all its sessions with the one. Rows are kept for `keep_s`
        after the last claim by their owner."""
        ...

    async def release_sessions(self, epoch: int, sessions: Sequence[SessionName]) -> None:
        """Gives up what the caller holds of the sessions."""
        ...

    async def claim_requests(
        self, epoch: int, tenant_requests: Sequence[tuple[str, str, str, bytes]], *, keep_s: float
    ) -> list[RequestRow]:
        """Each item is (tenant, request id, call id, digest). For each the row that the request id has now: the caller's
        when there was none. Rows are kept for `keep_s` unless renewed; a repeat by the same life for the same call renews
        too, and leaves the digest as it is. The row of a life that has ended stays: what became of its call is not known."""
        ...

    async def renew_requests(self, epoch: int, tenant_requests: Sequence[tuple[str, str]], *, keep_s: float) -> None:
        """Keeps rows of the caller that are there for `keep_s` from now."""
        ...

    async def release_requests(self, epoch: int, tenant_requests: Sequence[tuple[str, str, str]]) -> None:
        """Takes back rows (tenant, request id, call id) of the caller's calls that have never begun."""
        ...

    async def find_request(self, tenant: str, request_id: str) -> RequestRow | None:
        """The row of a request id."""
        ...

    async def put_graph(self, epoch: int, row: GraphRow) -> None:
        """Writes version `row.version` of a graph over the one before it. Raises CONFLICT when that is not the current one
        (no row: version 0), with metadata `version`. The same row again changes nothing."""
        ...

    async def graphs(self) -> tuple[int, tuple[GraphRow, ...]]:
        """The graph revision, and every graph by name."""
        ...

    async def key_count(self) -> int:
        """Keys that the namespace has in the store. For tests and people; takes time with many."""
        ...

    async def close(self) -> None:
        """Ends connections. The store lives on."""
        ...
