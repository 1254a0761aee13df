"""Which replicas there are: registrations, leases, and who is told of changes.

    registered here         leases by this process's clock, kept alive here
    adopted                 registered with another control plane, or found by discovery: whoever adopted it forgets it

State only: the servicer translates messages, `ReplicaDirectory` shares registrations with other control planes, the
dispatcher opens streams to replicas, a timer of the process calls `expire`. A replica is its (role, replica_id); a new
incarnation replaces the old one at once and for good.
"""

from __future__ import annotations

import math
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from omniflow.role.v1 import replica_pb2
from omniflow_core.errors import OmniFlowError, Reason

ReplicaKey = tuple[str, str]
REPLACED_KEPT = 16
"""Incarnations of one replica that are remembered as replaced."""


@dataclass(slots=True, kw_only=True)
class Registration:
    """One replica with its lease. `expire_s` is on the caller's monotonic clock."""

    replica: replica_pb2.Replica
    lease_id: str
    expire_s: float
    load: replica_pb2.ReplicaLoad
    drain_grace_s: float | None = None
    has_stream: bool = False
    """A stream to the replica is open. Its heartbeats are better proof of life than the lease, which may then run out."""
    is_adopted: bool = False
    """Not registered here."""
    replaced: deque[str] = field(default_factory=lambda: deque(maxlen=REPLACED_KEPT))
    """Earlier incarnations."""

    @property
    def key(self) -> ReplicaKey:
        return (self.replica.role, self.replica.replica_id)

    @property
    def is_ready(self) -> bool:
        return self.replica.state == replica_pb2.REPLICA_STATE_READY and self.drain_grace_s is None


class Registry:
    """Replicas by role and identifier. `on_change` is called after each change with the registration."""

    def __init__(self, *, lease_ttl_s: float) -> None:
        self.lease_ttl_s = lease_ttl_s
        self.revision = 0
        self._by_key: dict[ReplicaKey, Registration] = {}
        self._by_lease: dict[str, Registration] = {}
        self._listeners: list[Callable[[Registration], None]] = []

    def subscribe(self, listener: Callable[[Registration], None]) -> Callable[[], None]:
        """Calls `listener` after each change; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def replicas(self, role: str = "") -> list[Registration]:
        """Registrations by role and identifier."""
        return [self._by_key[key] for key in sorted(self._by_key) if role in ("", key[0])]

    def find(self, role: str, replica_id: str) -> Registration | None:
        return self._by_key.get((role, replica_id))

    def by_lease(self, lease_id: str) -> Registration | None:
        return self._by_lease.get(lease_id)

    def end_lease(self, lease_id: str) -> None:
        """The lease is good no more: its replica is asked to register again, and stays known for a lease at most."""
        registration = self._by_lease.get(lease_id)
        if registration is not None and not registration.is_adopted:
            del self._by_lease[lease_id]
            registration.lease_id = secrets.token_urlsafe(18)
            self._by_lease[registration.lease_id] = registration

    def register(self, replica: replica_pb2.Replica, now_s: float, *, lease_id: str = "") -> Registration:
        """Takes a replica in, in place of an earlier incarnation. The same one again gets a new lease.

        Raises STALE_EPOCH for one that was replaced: two processes with one name would take turns.
        """
        key = (replica.role, replica.replica_id)
        old = self._by_key.get(key)
        if old is not None:
            _check_not_replaced(replica, old)
            del self._by_lease[old.lease_id]
        registration = self._by_key[key] = self._registration_of(replica, old, now_s, lease_id)
        self._by_lease[registration.lease_id] = registration
        self._changed(registration)
        return registration

    def keep_alive(
        self, lease_id: str, state: replica_pb2.ReplicaState, load: replica_pb2.ReplicaLoad, now_s: float
    ) -> Registration | None:
        """Extends a lease; None when it is unknown and the replica must register again."""
        registration = self._by_lease.get(lease_id)
        if registration is None:
            return None
        registration.expire_s = now_s + self.lease_ttl_s
        registration.load = load
        if registration.drain_grace_s is not None and state == replica_pb2.REPLICA_STATE_READY:
            return registration  # it has not taken the directive in yet
        if state not in (replica_pb2.REPLICA_STATE_UNSPECIFIED, registration.replica.state):
            registration.replica.state = state
            self._changed(registration)
        return registration

    def drain(self, role: str, replica_id: str, grace_s: float) -> None:
        """Takes a replica out of use; its keep-alive stream carries the directive."""
        registration = self._by_key.get((role, replica_id))
        if registration is None:
            raise OmniFlowError(Reason.UNKNOWN_RESOURCE, f"There is no replica {replica_id!r} of role {role!r}.")
        registration.drain_grace_s = grace_s
        registration.replica.state = replica_pb2.REPLICA_STATE_DRAINING
        self._changed(registration)

    def adopt(self, replica: replica_pb2.Replica, *, lease_id: str, drain_grace_s: float | None) -> Registration:
        """Takes in what somebody else knows of a replica. It stays until it is forgotten, or registers here."""
        known = self._by_key.get((replica.role, replica.replica_id))
        if known is None or known.replica.incarnation_id != replica.incarnation_id:
            made = self._registration_of(replica, known, 0.0)
            if known is not None:
                del self._by_lease[known.lease_id]
            if replica.incarnation_id in made.replaced:  # whoever adopts it knows better than this process did
                made.replaced.remove(replica.incarnation_id)
            self._by_key[made.key] = known = made
        elif (known.lease_id, known.replica.state, known.drain_grace_s) == (lease_id, replica.state, drain_grace_s):
            known.expire_s = math.inf if known.is_adopted else known.expire_s
            return known
        else:
            del self._by_lease[known.lease_id]
            known.replica = replica
        known.lease_id, known.drain_grace_s = lease_id, drain_grace_s
        known.is_adopted, known.expire_s = True, math.inf
        self._by_lease[lease_id] = known
        self._changed(known)
        return known

    def forget(self, role: str, replica_id: str) -> None:
        """An adopted replica is known no more. One with a stream is kept until that ends, whatever others say of it."""
        known = self._by_key.get((role, replica_id))
        if known is not None and known.is_adopted:
            known.expire_s = 0.0
            if not known.has_stream:
                self._remove(known)

    def deregister(self, lease_id: str) -> None:
        """Forgets a replica; repeats are harmless."""
        registration = self._by_lease.get(lease_id)
        if registration is not None:
            self._remove(registration)

    def expire(self, now_s: float) -> None:
        """Forgets replicas whose lease has run out and that have no stream either."""
        for registration in [r for r in self._by_key.values() if r.expire_s <= now_s and not r.has_stream]:
            self._remove(registration)

    def extend_all(self, seconds: float) -> None:
        """Makes every lease longer: by the time that this process stood still and heard nobody."""
        for registration in self._by_key.values():
            if not registration.is_adopted:
                registration.expire_s += seconds

    def _registration_of(
        self, replica: replica_pb2.Replica, old: Registration | None, now_s: float, lease_id: str = ""
    ) -> Registration:
        """A new registration, or the old one under a new lease: who holds it sees the change, and its stream goes on."""
        lease_id, expire_s = lease_id or secrets.token_urlsafe(18), now_s + self.lease_ttl_s
        if old is not None and old.replica.incarnation_id == replica.incarnation_id:
            old.replica, old.lease_id, old.expire_s, old.drain_grace_s = replica, lease_id, expire_s, None
            old.is_adopted = False
            return old
        made = Registration(replica=replica, lease_id=lease_id, expire_s=expire_s, load=replica_pb2.ReplicaLoad())
        if old is not None:
            made.replaced = old.replaced
            made.replaced.append(old.replica.incarnation_id)
            self._lose(old)
        return made

    def _remove(self, registration: Registration) -> None:
        del self._by_key[registration.key]
        del self._by_lease[registration.lease_id]
        self._lose(registration)

    def _lose(self, registration: Registration) -> None:
        registration.replica.state = replica_pb2.REPLICA_STATE_LOST
        self._changed(registration)

    def _changed(self, registration: Registration) -> None:
        self.revision += 1
        for listener in tuple(self._listeners):
            listener(registration)


def _check_not_replaced(replica: replica_pb2.Replica, current: Registration) -> None:
    if replica.incarnation_id in current.replaced:
        raise OmniFlowError(
            Reason.STALE_EPOCH,
            f"Another process has registered as replica {replica.replica_id!r} of role {replica.role!r} since; give each "
            "process a replica_id of its own.",
            metadata={"incarnation_id": current.replica.incarnation_id},
        )
