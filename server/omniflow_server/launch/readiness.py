"""Asking the control plane which replicas take work and whether the graph is served."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from omniflow.role.v1 import replica_pb2, role_registry_service_pb2, role_registry_service_pb2_grpc

_LOOK_TIMEOUT_S = 2.0
_PAGE_SIZE = 1000
# gRPC waits a second after the first failed connect; a control plane is up within half of that.
_CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A replica as the control plane knows it."""

    role: str
    replica_id: str
    process_id: int
    state: str
    """The name of the proto enum, such as "READY"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one look saw. A control plane that does not answer shows no replica and serves nothing."""

    is_answering: bool = False
    is_serving: bool = False
    """The graph's health is SERVING."""
    replicas: tuple[Replica, ...] = ()

    def is_ready(self, role: str, replica_id: str, process_id: int) -> bool:
        """Whether this very process takes work: the entry of its predecessor may still be listed."""
        return any(
            (r.role, r.replica_id, r.process_id, r.state) == (role, replica_id, process_id, "READY")
            for r in self.replicas
        )


class Readiness(Protocol):
    """Where a supervisor looks."""

    async def look(self) -> Observation:
        """One look; never raises for a control plane that is away."""


class ControlPlaneReadiness:
    """Looks by gRPC. `async with` opens and closes the channels."""

    def __init__(self, *, target: str, internal_target: str, graph: str) -> None:
        self._target, self._internal_target, self._graph = target, internal_target, graph

    async def __aenter__(self) -> Self:
        self._public = grpc.aio.insecure_channel(self._target, options=_CHANNEL_OPTIONS)
        self._internal = grpc.aio.insecure_channel(self._internal_target, options=_CHANNEL_OPTIONS)
        self._health = health_pb2_grpc.HealthStub(self._public)
        self._registry = role_registry_service_pb2_grpc.RoleRegistryServiceStub(self._internal)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._public.close()
        await self._internal.close()

    async def look(self) -> Observation:
        """Replicas and health, side by side."""
        replicas, is_serving = await asyncio.gather(self._list_replicas(), self._is_serving())
        return Observation(is_answering=replicas is not None, is_serving=is_serving, replicas=replicas or ())

    async def _list_replicas(self) -> tuple[Replica, ...] | None:
        request = role_registry_service_pb2.ListReplicasRequest(page_size=_PAGE_SIZE)
        found: list[Replica] = []
        try:
            while True:
                answer = await self._registry.ListReplicas(request, timeout=_LOOK_TIMEOUT_S)
                found.extend(_replica(message) for message in answer.replicas)
                if not answer.next_page_token:
                    return tuple(found)
                request.page_token = answer.next_page_token
        except grpc.RpcError:
            return None

    async def _is_serving(self) -> bool:
        try:
            answer = await self._health.Check(
                health_pb2.HealthCheckRequest(service=self._graph), timeout=_LOOK_TIMEOUT_S
            )
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _replica(message: replica_pb2.Replica) -> Replica:
    return Replica(
        role=message.role,
        replica_id=message.replica_id,
        process_id=message.process_id,
        state=replica_pb2.ReplicaState.Name(message.state).removeprefix("REPLICA_STATE_"),
    )
