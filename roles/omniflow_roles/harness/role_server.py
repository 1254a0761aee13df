"""A role process put together: the only file that knows all parts.

    bind ─▶ register as STARTING ─▶ set up the interfaces ─▶ READY ─▶ drain asked for ─▶ DRAINING
         ─▶ idle, or the grace is over ─▶ deregister ─▶ streams end ─▶ tear down

Asked for by SIGTERM, SIGINT, the registry, or `RoleServer.drain`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import grpc.aio
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from omniflow.health_service import HEALTH_SERVICE, NOT_SERVING, SERVING, HealthServicer
from omniflow.interface import Interface
from omniflow.internal_rpc import SERVER_OPTIONS
from omniflow.large_values import ValueFetcher, ValueServicer, ValueStore
from omniflow.process import forbid_forks, listen_umask, runtime_dir, sole_loop, unix_target
from omniflow.role.v1 import value_service_pb2, value_service_pb2_grpc
from omniflow.rpc_errors import ErrorAnswering
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_roles.harness.host import RoleHost
from omniflow_roles.harness.lanes.listening import bound_lanes
from omniflow_roles.harness.lanes.port import Lane
from omniflow_roles.harness.links import Links
from omniflow_roles.harness.peers import PeerLinks
from omniflow_roles.harness.pipelines import Pipelines
from omniflow_roles.harness.registration import Registration
from omniflow_roles.harness.replica import ReplicaIdentity, State
from omniflow_roles.harness.retention import RetainedCalls
from omniflow_roles.harness.server import SERVICE, RoleExecutionServicer
from omniflow_roles.harness.settings import RoleSettings

logger = logging.getLogger(__name__)

VALUE_SERVICE = value_service_pb2.DESCRIPTOR.services_by_name["ValueService"].full_name

_FLUSH_S = 2.0
"""For what is queued when the streams end; a peer that does not read loses it."""
_EXIT_MARGIN_S = 10.0
"""For deregistration and teardown beyond the grace, before the process is ended by force."""


class RoleServer:
    """One replica. `async with` serves; `run` goes through its life until it is drained."""

    def __init__(
        self, settings: RoleSettings, interfaces: Sequence[Interface], *, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        self._settings = settings
        self._interfaces = tuple(interfaces)
        self._on_ready = on_ready
        self._drain_asked = asyncio.Event()
        self._drain_grace_s = settings.drain_grace_s
        self._has_failed = False
        self._is_ready = asyncio.Event()
        self._cleanup = contextlib.AsyncExitStack()
        self.identity: ReplicaIdentity
        self.host: RoleHost
        self.peers: PeerLinks
        self.store: ValueStore

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(sole_loop())
            self._health = HealthServicer()
            server = grpc.aio.server(options=SERVER_OPTIONS)
            endpoint = _bind(server, self._settings)
            lanes = stack.enter_context(bound_lanes(self._settings))
            self.identity = _identity(self._settings, self._interfaces, endpoint, lanes)
            self.store = ValueStore(
                endpoint=endpoint,
                incarnation_id=self.identity.incarnation_id,
                budget_bytes=self._settings.value_budget_bytes,
            )
            fetcher = await stack.enter_async_context(ValueFetcher(local=self.store))
            self.peers = await stack.enter_async_context(PeerLinks(self.identity, lanes=self._settings.lanes))
            self.host = await stack.enter_async_context(
                RoleHost(
                    self._interfaces,
                    fetcher=fetcher,
                    pipelines=Pipelines(self.peers, self.store, lambda owner: self._links.newest_of(owner)),
                    max_activations=self._settings.max_activations,
                    cleanup_grace_s=self._settings.cleanup_grace_s,
                )
            )
            retained = RetainedCalls(self.store, retain_s=self._settings.retain_s)
            stack.callback(retained.close)
            self._links = Links(
                self.host,
                self.identity,
                self.store,
                retained,
                heartbeat_s=self._settings.heartbeat_s,
                resume_grace_s=self._settings.resume_grace_s,
            )
            stack.callback(self._links.stop)
            self._add_services(server, RoleExecutionServicer(self.host, self.identity, retained, self._links))
            self._set_health(NOT_SERVING)
            await server.start()
            stack.push_async_callback(server.stop, 0)
            for lane in lanes:
                await stack.enter_async_context(lane.serving(self._links.side))
            self._cleanup = stack.pop_all()
        logger.info(
            "replica %s of role %s serves %s on %s",
            self.identity.replica_id,
            self.identity.role,
            ", ".join(self.identity.interfaces),
            endpoint,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._cleanup.__aexit__(kind, error, traceback)

    async def run(self) -> bool:
        """Sets up, serves, and returns when drained; False when the interfaces could not be set up."""
        registries = [target for part in self._settings.registry.split(",") if (target := part.strip())]
        registration = Registration(registries, self.identity, self.host, self.drain)
        async with asyncio.TaskGroup() as tasks:
            setting_up = tasks.create_task(self._set_up(registration))
            registering = tasks.create_task(registration.run()) if registries else None
            await self._drain_asked.wait()
            # First of all, or a setup that ends now would make a draining replica ready.
            setting_up.cancel()
            await asyncio.wait((setting_up,))
            await self._wind_down(registration)
            if registering is not None:
                registering.cancel()
        await self.host.teardown()
        return not self._has_failed

    async def wait_ready(self) -> None:
        """Returns when every interface is set up."""
        await self._is_ready.wait()

    def drain(self, grace_s: float | None = None) -> None:
        """Take no new activations, let those that run end within the grace, then stop. The first call counts."""
        if not self._drain_asked.is_set():
            self._drain_grace_s = self._settings.drain_grace_s if grace_s is None else grace_s
            self._drain_asked.set()

    async def _set_up(self, registration: Registration) -> None:
        try:
            await self.host.setup()
        except Exception:
            logger.exception("the interfaces could not be set up")
            self._has_failed = True
            self.drain(0.0)
            return
        self._on_ready()
        self.host.state = State.READY
        self._is_ready.set()
        registration.announce()
        self._set_health(SERVING)
        logger.info("ready")

    async def _wind_down(self, registration: Registration) -> None:
        self.host.state = State.DRAINING
        registration.announce()
        self._set_health(NOT_SERVING)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_grace_s):
                if self._settings.registry:
                    await asyncio.sleep(self._settings.drain_notice_s)
                await self.host.wait_idle()
        self.host.stop_all(
            ErrorInfo(reason=Reason.DRAINING, message="the replica was stopped before the activation's end")
        )
        await registration.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await self._links.close()

    def _add_services(self, server: grpc.aio.Server, servicer: RoleExecutionServicer) -> None:
        services = ErrorAnswering(server)
        services.add_generic_rpc_handlers((servicer.generic_handler(),))
        value_service_pb2_grpc.add_ValueServiceServicer_to_server(ValueServicer(self.store), services)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, services)
        reflection.enable_server_reflection((SERVICE, VALUE_SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME), server)

    def _set_health(self, status: int) -> None:
        for service in ("", SERVICE, VALUE_SERVICE):
            self._health.set(service, status)


def _bind(server: grpc.aio.Server, settings: RoleSettings) -> str:
    """Listens, and returns the target under which others reach the process."""
    listen = settings.listen or unix_target(runtime_dir() / f"{settings.role}-{settings.replica_id}.sock")
    try:
        with listen_umask():
            port = server.add_insecure_port(listen)
    except RuntimeError:
        raise OmniFlowError(
            Reason.INVALID_CONFIG, f"cannot listen on {listen}: it is in use, or no address of this machine"
        ) from None
    if settings.advertise:
        return settings.advertise
    return listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"


def _identity(
    settings: RoleSettings, interfaces: Sequence[Interface], endpoint: str, lanes: Sequence[Lane]
) -> ReplicaIdentity:
    return ReplicaIdentity(
        role=settings.role,
        replica_id=settings.replica_id,
        incarnation_id=uuid.uuid4().hex,
        endpoint=endpoint,
        lanes=tuple((lane.kind.value, str(lane.path)) for lane in lanes),
        interfaces=tuple(interface.name for interface in interfaces),
        max_activations=settings.max_activations,
        process_id=os.getpid(),
        node=settings.node or socket.gethostname(),
    )


async def serve(settings: RoleSettings, interfaces: Sequence[Interface]) -> int:
    """The life of a role process; returns its exit status. SIGTERM and SIGINT drain it, the second one ends it at once."""
    with forbid_forks():
        async with RoleServer(settings, interfaces, on_ready=_freeze_heap) as server:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, _on_signal, server, settings)
            return 0 if await server.run() else 1


def _on_signal(server: RoleServer, settings: RoleSettings) -> None:
    if server.host.state is State.DRAINING:
        os._exit(130)
    server.drain()
    # An interface whose cleanup never ends must not keep the process.
    watchdog = threading.Timer(settings.drain_grace_s + _EXIT_MARGIN_S, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()


def _freeze_heap() -> None:
    """What the interfaces loaded stays: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
