"""Registrations of replicas, shared with the other control planes through the metadata store.

    replica ──register, keep alive──▶ this process ──▶ Registry ──▶ dispatcher
                                          │ written through, renewed with each tick
                                          ▼
                                    metadata store ──tick──▶ the other processes: adopt, forget

A replica registers with one control plane; all dial it. What changes here is known here at once, and to the others with
their next tick. The store decides between two lives of one replica, so that all control planes go with the same.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from omniflow.role.v1 import replica_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.membership import Membership
from omniflow_server.control.registry import Registration, Registry, ReplicaKey
from omniflow_server.data.metadata.port import MetadataStore, Renewal, ReplicaRow, Tick

log = logging.getLogger(__name__)


class ReplicaDirectory:
    """The registry's way in for replicas, and its way to the other control planes. A `Member` of the membership."""

    def __init__(self, registry: Registry, store: MetadataStore, membership: Membership) -> None:
        self._registry = registry
        self._store = store
        self._membership = membership
        self._reported: dict[str, Registration] = {}
        """Registered here, by lease, and heard of since the last tick."""
        self._adopted: dict[ReplicaKey, str] = {}
        """Leases of replicas that the store has told of; it knows nothing of those that discovery has found."""
        membership.join(self)

    @property
    def registries(self) -> list[str]:
        """Where replicas can register: here first."""
        return [self._membership.own.endpoint, *(owner.endpoint for owner in self._membership.peers())]

    async def register(self, replica: replica_pb2.Replica) -> Registration:
        """Takes a replica in. Raises STALE_EPOCH for a life that was replaced, here or elsewhere."""
        lease_id = secrets.token_urlsafe(18)
        try:
            # The store first: it knows lives that are not known here yet, and decides between two.
            await self._store.register_replica(
                self._membership.epoch,
                _row(replica, lease_id, self._membership.epoch),
                ttl_s=self._registry.lease_ttl_s,
            )
        except OmniFlowError as error:
            if error.reason is Reason.STALE_EPOCH:
                raise
            # The replica is here and works. Its lease is unknown to the store, so it is soon asked to register again.
            log.warning(
                "%s/%s is not known to other control planes yet: %s", replica.role, replica.replica_id, error.message
            )
        registration = self._registry.register(replica, time.monotonic(), lease_id=lease_id)
        self._reported[registration.lease_id] = registration
        return registration

    def keep_alive(
        self, lease_id: str, state: replica_pb2.ReplicaState, load: replica_pb2.ReplicaLoad
    ) -> Registration | None:
        """Extends a lease; None when it is unknown, and the replica must register again."""
        known = self._registry.by_lease(lease_id)
        if known is None or known.is_adopted:  # in the second case it has registered elsewhere since
            return None
        state_before = known.replica.state
        self._registry.keep_alive(lease_id, state, load, time.monotonic())
        self._reported[lease_id] = known
        if known.replica.state != state_before:
            self._membership.tick_soon()
        return known

    async def drain(self, role: str, replica_id: str, grace_s: float) -> None:
        """Takes a replica out of use, wherever it is registered. Raises UNKNOWN_RESOURCE."""
        self._registry.drain(role, replica_id, grace_s)
        if self._is_found_here(role, replica_id):
            return  # the others have found it by themselves
        await self._store.drain_replica(
            self._membership.epoch,
            (role, replica_id),
            grace_s=grace_s,
            state=replica_pb2.REPLICA_STATE_DRAINING,
        )

    def _is_found_here(self, role: str, replica_id: str) -> bool:
        """Neither registered here nor told of by the store."""
        known = self._registry.find(role, replica_id)
        return known is not None and known.is_adopted and self._adopted.get(known.key) != known.lease_id

    async def deregister(self, lease_id: str) -> None:
        """Forgets a replica that leaves; repeats are harmless."""
        registration = self._registry.by_lease(lease_id)
        self._registry.deregister(lease_id)
        self._reported.pop(lease_id, None)
        if registration is not None:
            await self._store.remove_replica(self._membership.epoch, lease_id, registration.key)

    # --- with each tick -----------------------------------------------------------------------------------------------

    def renewals(self) -> Sequence[Renewal]:
        """What replicas have said since the last tick."""
        reported, self._reported = self._reported, {}
        return [
            Renewal(
                role=registration.replica.role,
                replica_id=registration.replica.replica_id,
                lease_id=lease_id,
                state=registration.replica.state,
                load=registration.load.SerializeToString(),
            )
            for lease_id, registration in reported.items()
            if self._registry.by_lease(lease_id) is registration
        ]

    def take(self, tick: Tick) -> None:
        """Takes in what others have registered, and what is gone."""
        for lease_id in tick.unknown_leases:
            self._registry.end_lease(lease_id)
        for row in tick.changed:
            self._adopt(row)
        gone = set(tick.removed)
        if tick.is_snapshot:
            listed = {row.name for row in tick.changed}
            gone = self._adopted.keys() - listed
        for key in gone:
            lease_id, known = self._adopted.pop(key, ""), self._registry.find(*key)
            if known is not None and known.lease_id == lease_id:
                self._registry.forget(*key)

    def _adopt(self, row: ReplicaRow) -> None:
        own = self._registry.by_lease(row.lease_id)
        if own is not None and not own.is_adopted:
            if row.drain_grace_s is not None and own.drain_grace_s is None:
                self._registry.drain(row.role, row.replica_id, row.drain_grace_s)
            return  # registered here: known at first hand
        try:
            replica = replica_pb2.Replica.FromString(row.payload)
        except DecodeError:
            log.warning("the row of replica %s/%s cannot be read; it is left out", row.role, row.replica_id)
            return
        replica.state = row.state  # type: ignore[assignment]
        self._adopted[row.name] = row.lease_id
        self._registry.adopt(replica, lease_id=row.lease_id, drain_grace_s=row.drain_grace_s)


def _row(replica: replica_pb2.Replica, lease_id: str, registrar: int) -> ReplicaRow:
    return ReplicaRow(
        role=replica.role,
        replica_id=replica.replica_id,
        incarnation_id=replica.incarnation_id,
        payload=replica.SerializeToString(),
        lease_id=lease_id,
        state=replica.state,
        registrar=registrar,
    )
