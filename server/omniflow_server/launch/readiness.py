"""Asking the control planes which replicas take work and whether the graph is served."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
    """What one look saw, of one control plane or of all. One that does not answer shows no replica and serves nothing."""

    answering: tuple[bool, ...] = ()
    """Whether each control plane answers, in the order of the plan."""
    is_serving: bool = False
    """The graph's health is SERVING, on every one of them."""
    serving_count: int = 0
    """On how many of them it is."""
    replicas: tuple[Replica, ...] = ()
    """As all those that answer see them; see `agreed`."""

    def is_answering(self, ordinal: int) -> bool:
        """Whether one of the control planes answers."""
        return ordinal < len(self.answering) and self.answering[ordinal]

    def is_ready(self, role: str, replica_id: str, process_id: int) -> bool:
        """Whether this very process takes work: the entry of its predecessor may still be listed."""
        return any(
            (r.role, r.replica_id, r.process_id, r.state) == (role, replica_id, process_id, "READY")
            for r in self.replicas
        )


def agreed(seen: Sequence[Observation]) -> Observation:
    """What several control planes say together, each seen by itself.

    A replica counts when every one that answers lists this very process, and is READY when it is for all of them. One that
    is away has no say about replicas: it may be the one that is being restarted.
    """
    voices = [observation for observation in seen if any(observation.answering)]
    return Observation(
        answering=tuple(any(observation.answering) for observation in seen),
        is_serving=bool(seen) and all(observation.is_serving for observation in seen),
        serving_count=sum(observation.is_serving for observation in seen),
        replicas=tuple(_common_replicas(voices)),
    )


def _common_replicas(voices: Sequence[Observation]) -> Iterable[Replica]:
    by_life = [{(r.role, r.replica_id, r.process_id): r for r in voice.replicas} for voice in voices]
    for life, replica in by_life[0].items() if by_life else ():
        states = [replicas[life].state for replicas in by_life if life in replicas]
        if len(states) == len(by_life):
            yield replace(replica, state=next((state for state in states if state != "READY"), "READY"))


class Readiness(Protocol):
    """Where a supervisor looks."""

    async def look(self) -> Observation:
        """One look; never raises for a control plane that is away."""


class ClusterReadiness:
    """Looks at every control plane of a flow. `async with` opens and closes the channels."""

    def __init__(self, *, targets: Sequence[str], internal_targets: Sequence[str], graph: str) -> None:
        self._planes = [
            ControlPlaneReadiness(target=target, internal_target=internal_target, graph=graph)
            for target, internal_target in zip(targets, internal_targets, strict=True)
        ]

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as opening:
            for plane in self._planes:
                await opening.enter_async_context(plane)
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def look(self) -> Observation:
        """All of them, side by side."""
        return agreed(await asyncio.gather(*(plane.look() for plane in self._planes)))


class ControlPlaneReadiness:
    """Looks at one control plane by gRPC. `async with` opens and closes the channels."""

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
        return Observation(answering=(replicas is not None,), is_serving=is_serving, replicas=replicas or ())

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
