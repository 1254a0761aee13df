"""A registry that does what the test tells it, on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio

from omniflow.codec.error import status_to_trailers
from omniflow.role.v1 import role_registry_service_pb2 as messages
from omniflow.role.v1 import role_registry_service_pb2_grpc
from omniflow_core.errors import ErrorInfo, Reason


class FakeRegistry(role_registry_service_pb2_grpc.RoleRegistryServiceServicer):
    """Keeps what replicas say; `directives` are sent with the next answers."""

    def __init__(self, *, lease_ttl_s: float = 0.3) -> None:
        self.lease_ttl_s = lease_ttl_s
        self.registered: list[messages.RegisterReplicaRequest] = []
        self.reports: list[messages.KeepAliveRequest] = []
        self.deregistered: list[str] = []
        self.directives: asyncio.Queue[messages.KeepAliveResponse] = asyncio.Queue()
        self.refusal: ErrorInfo | None = None
        self.is_silent = False
        self.registries: tuple[str, ...] = ()

    async def RegisterReplica(self, request: messages.RegisterReplicaRequest, context: Any) -> Any:
        self.registered.append(request)
        if self.refusal is not None:
            code = grpc.StatusCode.FAILED_PRECONDITION
            await context.abort(code, self.refusal.message, status_to_trailers(self.refusal))
        response = messages.RegisterReplicaResponse(lease_id=f"lease-{len(self.registered)}", protocol_revision=1)
        response.registries.extend(self.registries)
        response.lease_ttl.FromMilliseconds(int(self.lease_ttl_s * 1000))
        return response

    async def KeepAlive(self, requests: Any, context: Any) -> Any:
        async for report in requests:
            self.reports.append(report)
            if not self.is_silent:
                yield self.directives.get_nowait() if self.directives.qsize() else messages.KeepAliveResponse()

    async def DeregisterReplica(self, request: messages.DeregisterReplicaRequest, context: Any) -> Any:
        self.deregistered.append(request.lease_id)
        return messages.DeregisterReplicaResponse()

    def direct(self, **directive: Any) -> None:
        self.directives.put_nowait(messages.KeepAliveResponse(**directive))

    def states(self) -> list[int]:
        """States that were reported, without repeats in a row."""
        seen = [report.state for report in self.reports]
        return [state for index, state in enumerate(seen) if index == 0 or seen[index - 1] != state]


def stale() -> ErrorInfo:
    return ErrorInfo(reason=Reason.STALE_EPOCH, message="a newer process has this replica")


def target_of(folder: Path, name: str = "registry") -> str:
    return f"unix:{folder}/{name}.sock"


@contextlib.asynccontextmanager
async def registering(folder: Path, registry: FakeRegistry, name: str = "registry") -> AsyncIterator[FakeRegistry]:
    """Serves the registry on `target_of(folder, name)`."""
    server = grpc.aio.server()
    role_registry_service_pb2_grpc.add_RoleRegistryServiceServicer_to_server(registry, server)
    server.add_insecure_port(target_of(folder, name))
    await server.start()
    try:
        yield registry
    finally:
        await server.stop(0)
