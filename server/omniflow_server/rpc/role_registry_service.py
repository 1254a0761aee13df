"""RoleRegistryService: translates between its messages and the registry, its directory and the membership."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from omniflow.internal_rpc import PROTOCOL_REVISION
from omniflow.role.v1 import role_registry_service_pb2 as pb
from omniflow.role.v1 import role_registry_service_pb2_grpc as pb_grpc
from omniflow.rpc_errors import ServicerContext
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.membership import Membership
from omniflow_server.control.registry import Registration, Registry
from omniflow_server.control.replica_directory import ReplicaDirectory
from omniflow_server.data.metadata.port import Owner
from omniflow_server.rpc.paging import page
from omniflow_server.rpc.validate import validate

DEFAULT_DRAIN_GRACE_S = 30.0
SEPARATOR = "\0"


class RoleRegistryServicer(pb_grpc.RoleRegistryServiceServicer):
    """The methods."""

    def __init__(self, registry: Registry, directory: ReplicaDirectory, membership: Membership) -> None:
        self._registry = registry
        self._directory = directory
        self._membership = membership

    async def RegisterReplica(
        self, request: pb.RegisterReplicaRequest, context: ServicerContext
    ) -> pb.RegisterReplicaResponse:
        validate(request)
        revisions = request.replica.protocol_revisions
        if PROTOCOL_REVISION not in revisions:
            raise OmniFlowError(
                Reason.UNIMPLEMENTED,
                f"Replica speaks protocol revisions {list(revisions)}, this control plane speaks {PROTOCOL_REVISION}.",
            )
        registration = await self._directory.register(request.replica)
        return pb.RegisterReplicaResponse(
            lease_id=registration.lease_id,
            lease_ttl=_duration(self._registry.lease_ttl_s),
            protocol_revision=PROTOCOL_REVISION,
            registries=self._directory.registries,
        )

    async def KeepAlive(self, requests: Any, context: ServicerContext) -> AsyncIterator[pb.KeepAliveResponse]:
        told: list[str] = []
        async for request in requests:
            validate(request)
            response = self._keep_alive(request)
            registries = self._directory.registries
            if registries != told:
                told = registries
                response.registries.extend(told)
            yield response

    def _keep_alive(self, request: pb.KeepAliveRequest) -> pb.KeepAliveResponse:
        registration = self._directory.keep_alive(request.lease_id, request.state, request.load)
        if registration is None:
            return pb.KeepAliveResponse(reregister=pb.ReregisterDirective())
        expire = timestamp_pb2.Timestamp()
        expire.FromNanoseconds(int((time.time() + self._registry.lease_ttl_s) * 1e9))
        response = pb.KeepAliveResponse(lease_expire_time=expire)
        if registration.drain_grace_s is not None:
            response.drain.grace.CopyFrom(_duration(registration.drain_grace_s))
        return response

    async def DeregisterReplica(
        self, request: pb.DeregisterReplicaRequest, context: ServicerContext
    ) -> pb.DeregisterReplicaResponse:
        validate(request)
        await self._directory.deregister(request.lease_id)
        return pb.DeregisterReplicaResponse()

    async def DrainReplica(self, request: pb.DrainReplicaRequest, context: ServicerContext) -> pb.DrainReplicaResponse:
        validate(request)
        grace_s = request.grace.ToMilliseconds() / 1000 if request.HasField("grace") else DEFAULT_DRAIN_GRACE_S
        await self._directory.drain(request.role, request.replica_id, grace_s)
        return pb.DrainReplicaResponse()

    async def ListReplicas(self, request: pb.ListReplicasRequest, context: ServicerContext) -> pb.ListReplicasResponse:
        validate(request)
        known = {SEPARATOR.join(r.key): r for r in self._registry.replicas(request.role)}
        keys, next_token = page(sorted(known), request.page_size, request.page_token)
        return pb.ListReplicasResponse(replicas=[known[key].replica for key in keys], next_page_token=next_token)

    async def WatchReplicas(
        self, request: pb.WatchReplicasRequest, context: ServicerContext
    ) -> AsyncIterator[pb.WatchReplicasResponse]:
        """Changes are not kept, so a revision other than the current one is answered with a snapshot."""
        validate(request)
        changes: asyncio.Queue[tuple[int, Registration]] = asyncio.Queue()
        unsubscribe = self._registry.subscribe(lambda r: changes.put_nowait((self._registry.revision, r)))
        try:
            if not request.after_revision or request.after_revision != self._registry.revision:
                yield pb.WatchReplicasResponse(
                    revision=self._registry.revision,
                    is_snapshot=True,
                    replicas=[r.replica for r in self._registry.replicas(request.role)],
                )
            while True:
                revision, registration = await changes.get()
                if request.role in ("", registration.replica.role):
                    yield pb.WatchReplicasResponse(revision=revision, replicas=[registration.replica])
        finally:
            unsubscribe()

    async def ListControlPlanes(
        self, request: pb.ListControlPlanesRequest, context: ServicerContext
    ) -> pb.ListControlPlanesResponse:
        owners = sorted(self._membership.owners.values(), key=lambda owner: (owner.owner_id, owner.epoch))
        return pb.ListControlPlanesResponse(control_planes=map(_control_plane, owners))


def _control_plane(owner: Owner) -> pb.ControlPlane:
    return pb.ControlPlane(
        control_id=owner.owner_id,
        incarnation_id=owner.incarnation_id,
        epoch=owner.epoch,
        endpoint=owner.endpoint,
        is_draining=owner.is_draining,
        protocol_revisions=owner.protocol_revisions,
    )


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMicroseconds(round(seconds * 1e6))
    return duration
