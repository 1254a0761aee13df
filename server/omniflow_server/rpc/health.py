"""Health of the process as a whole (""), of each service, and of each graph as `graphs/{graph}`.

A graph is SERVING while every role that it needs has a replica that work can be given to: that its revision with the largest
share of new calls needs. A canary whose roles are not there yet must not take away the calls that others could serve.
"""

from __future__ import annotations

from collections.abc import Iterable

from omniflow.health_service import NOT_SERVING, SERVING, HealthServicer
from omniflow_server.control.catalog import Catalog
from omniflow_server.control.dispatch import ReplicaDispatcher


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
        """Every role of the graph's main revision has a connected, ready replica."""
        roles = self._catalog.get(name).plan.roles
        return self._dispatcher.connected_roles(roles) == roles
