"""Standard health: the process as a whole (""), each service, and each graph as `graphs/{graph}`.

A graph is SERVING while every role that it needs has a replica that work can be given to.

The servicer is our own: that of the grpcio-health-checking package loses every other watcher of a service when one of them
leaves, and a watcher that does not read blocks whoever sets a status.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable

from grpc_health.v1 import health_pb2

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.catalog import Catalog
from omniflow_server.control.dispatch import ReplicaDispatcher
from omniflow_server.rpc.status import ServicerContext

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class HealthServicer:
    """The methods, over statuses that are set without waiting for anybody."""

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {}
        self._watchers: dict[str, set[asyncio.Event]] = defaultdict(set)

    def set(self, service: str, status: int) -> None:
        """Changes a status and wakes its watchers."""
        if self._statuses.get(service) != status:
            self._statuses[service] = status
            for changed in self._watchers.get(service, ()):
                changed.set()

    @property
    def watcher_count(self) -> int:
        """Streams that watch any service."""
        return sum(map(len, self._watchers.values()))

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        status = self._statuses.get(request.service)
        if status is None:
            raise OmniFlowError(Reason.UNKNOWN_RESOURCE, f"There is no service {request.service!r}.")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        service, changed, last = request.service, asyncio.Event(), None
        self._watchers[service].add(changed)
        try:
            while True:
                changed.clear()
                status = self._statuses.get(service, UNKNOWN)
                if status != last:
                    last = status
                    yield health_pb2.HealthCheckResponse(status=status)
                await changed.wait()
        finally:
            self._watchers[service].discard(changed)
            if not self._watchers[service]:
                del self._watchers[service]


class Health:
    """Keeps the health service true. `refresh` is called whenever graphs or connections change."""

    def __init__(self, catalog: Catalog, dispatcher: ReplicaDispatcher, services: Iterable[str]) -> None:
        self.servicer = HealthServicer()
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._services = ("", *services)
        self._is_draining = False

    async def refresh(self) -> None:
        """Sets every status. In one step of the loop, so that a later refresh cannot be overtaken by an earlier one."""
        for service in self._services:
            self.servicer.set(service, NOT_SERVING if self._is_draining else SERVING)
        for name in self._catalog.names():
            is_serving = self.is_graph_ready(name) and not self._is_draining
            self.servicer.set(name, SERVING if is_serving else NOT_SERVING)

    async def drain(self) -> None:
        """Nothing is served from now on."""
        self._is_draining = True
        await self.refresh()

    def is_graph_ready(self, name: str) -> bool:
        """Every role of the graph has a connected, ready replica."""
        roles = self._catalog.get(name).plan.roles
        return self._dispatcher.connected_roles(roles) == roles
