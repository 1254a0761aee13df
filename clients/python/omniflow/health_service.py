"""Standard health (`grpc.health.v1`) over statuses that are set without waiting for anybody.

Our own: the servicer of the grpcio-health-checking package loses every other watcher of a service when one of them leaves,
and a watcher that does not read blocks whoever sets a status.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from grpc_health.v1 import health_pb2

from omniflow_core.errors import OmniFlowError, Reason

HEALTH_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class HealthServicer:
    """The methods. Raises OmniFlowError, which `ErrorAnswering` turns into a status."""

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

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> health_pb2.HealthCheckResponse:
        status = self._statuses.get(request.service)
        if status is None:
            raise OmniFlowError(Reason.UNKNOWN_RESOURCE, f"There is no service {request.service!r}.")
        return health_pb2.HealthCheckResponse(status=status)

    async def List(self, request: Any, context: Any) -> Any:
        """Every status; only newer versions of the protocol have this method, and only those register it."""
        response: Any = health_pb2.HealthListResponse()  # type: ignore[attr-defined, unused-ignore]
        for service, status in self._statuses.items():
            response.statuses[service].status = status
        return response

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Any
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
