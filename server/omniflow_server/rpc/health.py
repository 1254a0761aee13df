"""Standard health: the process as a whole (""), each service, and each graph as `graphs/{graph}`.

A graph is SERVING while every role that it needs has a replica that work can be given to.
"""

from __future__ import annotations

from collections.abc import Iterable

from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from omniflow_server.control.catalog import Catalog
from omniflow_server.control.dispatch import ReplicaDispatcher

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """Keeps the health service true. `refresh` is called whenever graphs or connections change."""

    def __init__(self, catalog: Catalog, dispatcher: ReplicaDispatcher, services: Iterable[str]) -> None:
        self.servicer = HealthServicer()
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._services = ("", *services)
        self._is_draining = False
        self._last: dict[str, int] = {}

    async def refresh(self) -> None:
        """Sets every status that has changed."""
        wanted = dict.fromkeys(self._services, NOT_SERVING if self._is_draining else SERVING)
        for name in self._catalog.names():
            wanted[name] = SERVING if self.is_graph_ready(name) and not self._is_draining else NOT_SERVING
        for service, status in wanted.items():
            if self._last.get(service) != status:
                self._last[service] = status
                await self.servicer.set(service, status)

    async def drain(self) -> None:
        """Nothing is served from now on."""
        self._is_draining = True
        await self.refresh()

    def is_graph_ready(self, name: str) -> bool:
        """Every role of the graph has a connected, ready replica."""
        roles = self._catalog.get(name).plan.roles
        return self._dispatcher.connected_roles(roles) == roles
