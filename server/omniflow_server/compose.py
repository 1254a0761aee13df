"""Composes a control-plane process: the only file that knows every concrete class.

clients ──▶ public server   GraphService, WorkflowService, health, reflection, channelz
roles   ──▶ internal server RoleRegistryService, ValueService, health        (unix socket 0600, or what is configured)
            └─ CallTable ─ ReplicaDispatcher ─ ReplicaLink ──▶ roles
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import secrets
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import grpc.aio
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from omniflow.discovery import load as load_interface
from omniflow.discovery import registered as registered_interfaces
from omniflow.flow import Flow
from omniflow.flow_loading import load_flow
from omniflow.graph.v1 import graph_service_pb2
from omniflow.internal_rpc import MAX_FRAME_BYTES
from omniflow.large_values import ValueFetcher, ValueServicer, ValueStore
from omniflow.process import forbid_forks, listen_umask, runtime_dir, sole_loop
from omniflow.role.v1 import role_registry_service_pb2_grpc, value_service_pb2_grpc
from omniflow.rpc_errors import ErrorAnswering
from omniflow.threads import ThreadPool
from omniflow.workflow.v1 import workflow_service_pb2, workflow_service_pb2_grpc
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.calls import CallTable
from omniflow_server.control.catalog import Catalog, CatalogEntry
from omniflow_server.control.dispatch import ReplicaDispatcher
from omniflow_server.control.inline import InlineExecutor
from omniflow_server.control.link import ControlIdentity
from omniflow_server.control.registry import Registry
from omniflow_server.control.resume_tokens import ResumeTokens
from omniflow_server.control.settings import ControlSettings
from omniflow_server.control.tasks import BackgroundTasks
from omniflow_server.rpc.graph_service import GraphServicer
from omniflow_server.rpc.health import Health
from omniflow_server.rpc.role_registry_service import RoleRegistryServicer
from omniflow_server.rpc.workflow_service import WorkflowServicer

log = logging.getLogger(__name__)

PUBLIC_SERVICES = (
    graph_service_pb2.DESCRIPTOR.services_by_name["GraphService"].full_name,
    workflow_service_pb2.DESCRIPTOR.services_by_name["WorkflowService"].full_name,
)
EXPIRE_INTERVAL_S = 0.25
FORGET_INTERVAL_S = 5.0
STOP_GRACE_S = 2.0

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
    ("grpc.max_send_message_length", 4 * 1024 * 1024),
    # A silent stream may be pinged every 5 s: clients and proxies behind NAT do, and must not be sent away for it.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.so_reuseport", 0),  # a second process on the port is a mistake, not a sibling
)
INTERNAL_OPTIONS = (
    *SERVER_OPTIONS[2:],
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
)


@dataclass(slots=True, kw_only=True)
class ControlPlane:
    """A running process: what tests and the supervisor look at."""

    target: str
    internal_target: str
    calls: CallTable
    catalog: Catalog
    registry: Registry
    dispatcher: ReplicaDispatcher
    health: Health
    store: ValueStore
    inline: InlineExecutor
    flows: tuple[Flow, ...]
    """Flows of the operator; their files may define interfaces."""

    async def install(self, entry: CatalogEntry) -> None:
        """Makes a graph callable; its inline interfaces are set up first."""
        for node in entry.message.nodes:
            if node.is_inline:
                await self.inline.host(node.interface, load_interface(node.interface, self.flows))
        self.catalog.install(entry)
        await self.health.refresh()


@contextlib.asynccontextmanager
async def control_plane(settings: ControlSettings) -> AsyncIterator[ControlPlane]:
    """A control plane that serves for as long as the context is open."""
    internal_target = settings.internal_listen or f"unix:{runtime_dir('default') / 'control.sock'}"
    identity = ControlIdentity(
        control_id=settings.control_id,
        incarnation_id=secrets.token_hex(8),
        value_endpoint=internal_target,
        lanes=settings.lanes,
    )
    store = ValueStore(
        endpoint=internal_target, incarnation_id=identity.incarnation_id, budget_bytes=settings.spool_bytes
    )
    threads = ThreadPool(settings.inline_threads, name="inline")
    async with contextlib.AsyncExitStack() as stack:
        fetcher = await stack.enter_async_context(ValueFetcher(local=store))
        tasks = await stack.enter_async_context(BackgroundTasks())
        flows = tuple(map(load_flow, settings.flows))
        plane = _compose(settings, flows, internal_target, identity, store, fetcher, threads, tasks)
        public, internal = _public_server(plane), _internal_server(plane)
        plane.target = _bind(public, settings.listen)
        _bind(internal, internal_target)
        stack.push_async_callback(plane.inline.close)
        # Roles keep streams open for as long as we live; there is nothing to wait for once the calls have ended.
        for server, grace_s in ((internal, 0.0), (public, STOP_GRACE_S)):
            await server.start()
            stack.push_async_callback(server.stop, grace_s)
        for flow in plane.flows:
            await plane.install(plane.catalog.compile(flow.graph.spec()))
        await plane.health.refresh()
        tasks.create_task(_expire_leases(plane.registry))
        tasks.create_task(_forget_calls(plane.calls))
        yield plane


def _compose(
    settings: ControlSettings,
    flows: tuple[Flow, ...],
    internal_target: str,
    identity: ControlIdentity,
    store: ValueStore,
    fetcher: ValueFetcher,
    threads: ThreadPool,
    tasks: BackgroundTasks,
) -> ControlPlane:
    own = {name for flow in flows for name in flow.graph.interfaces}
    enabled = registered_interfaces() if "*" in settings.interfaces else settings.interfaces
    catalog = Catalog({*enabled, *own})
    registry = Registry(lease_ttl_s=settings.lease_ttl_s)
    inline = InlineExecutor(
        tasks=tasks,
        fetcher=fetcher,
        threads=threads,
        yield_window=settings.yield_window,
        byte_credit=settings.byte_credit,
    )
    dispatcher = ReplicaDispatcher(
        registry=registry,
        identity=identity,
        inline=inline,
        store=store,
        fetcher=fetcher,
        tasks=tasks,
        replica_wait_s=settings.replica_wait_s,
        byte_credit=settings.byte_credit,
        yield_window=settings.yield_window,
        runs_segments=settings.segments,
        runs_pipelines=settings.pipelines,
        on_connections_changed=lambda: tasks.create_task(health.refresh()),
    )
    health = Health(catalog, dispatcher, PUBLIC_SERVICES)
    calls = CallTable(
        settings=settings,
        catalog=catalog,
        dispatcher=dispatcher,
        store=store,
        tokens=ResumeTokens(bytes.fromhex(settings.resume_key) if settings.resume_key else secrets.token_bytes(32)),
        tasks=tasks,
    )
    return ControlPlane(
        target="",
        internal_target=internal_target,
        calls=calls,
        catalog=catalog,
        registry=registry,
        dispatcher=dispatcher,
        health=health,
        store=store,
        inline=inline,
        flows=flows,
    )


def _public_server(plane: ControlPlane) -> grpc.aio.Server:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    services = ErrorAnswering(server)
    services.add_generic_rpc_handlers((GraphServicer(plane.calls).handler(),))
    workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server(
        WorkflowServicer(plane.catalog, plane.install), services
    )
    health_pb2_grpc.add_HealthServicer_to_server(plane.health.servicer, services)
    channelz.add_channelz_servicer(server)
    reflection.enable_server_reflection(
        (*PUBLIC_SERVICES, "grpc.health.v1.Health", "grpc.channelz.v1.Channelz", reflection.SERVICE_NAME), server
    )
    return server


def _internal_server(plane: ControlPlane) -> grpc.aio.Server:
    server = grpc.aio.server(options=INTERNAL_OPTIONS)
    services = ErrorAnswering(server)
    role_registry_service_pb2_grpc.add_RoleRegistryServiceServicer_to_server(
        RoleRegistryServicer(plane.registry), services
    )
    value_service_pb2_grpc.add_ValueServiceServicer_to_server(ValueServicer(plane.store), services)
    health_pb2_grpc.add_HealthServicer_to_server(plane.health.servicer, services)
    return server


def _bind(server: grpc.aio.Server, target: str) -> str:
    """Listens; returns the target with the port that was given."""
    try:
        with listen_umask():
            port = server.add_insecure_port(target)
    except RuntimeError as error:
        raise OmniFlowError(
            Reason.INVALID_CONFIG, f"Cannot listen on {target}: it is in use, or no address of this machine."
        ) from error
    if target.startswith("unix:"):
        return target
    return f"{target.rpartition(':')[0]}:{port}"


async def _expire_leases(registry: Registry) -> None:
    """A pause of this process (SIGSTOP, a suspended machine) is not held against the replicas, which nobody could hear."""
    woken_s = time.monotonic()
    while True:
        await asyncio.sleep(EXPIRE_INTERVAL_S)
        asleep_s, woken_s = time.monotonic() - woken_s, time.monotonic()
        if asleep_s > 2 * EXPIRE_INTERVAL_S:
            registry.extend_all(asleep_s)
        registry.expire(woken_s)


async def _forget_calls(calls: CallTable) -> None:
    """Ended calls are dropped in time also when nothing else happens."""
    while True:
        await asyncio.sleep(FORGET_INTERVAL_S)
        calls.forget_ended()


async def serve(settings: ControlSettings) -> None:
    """Serves until SIGTERM or SIGINT, then takes no new calls, waits for those that run, and stops."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    with forbid_forks(), sole_loop():
        await _serve_until(stopping, settings)


async def _serve_until(stopping: asyncio.Event, settings: ControlSettings) -> None:
    async with control_plane(settings) as plane:
        log.info("serving clients on %s and roles on %s", plane.target, plane.internal_target)
        gc.collect()
        gc.freeze()  # what was made at start stays; collections need not look at it again
        await stopping.wait()
        log.info("draining %d calls", plane.calls.active_count)
        await plane.health.drain()
        await plane.calls.drain(settings.drain_timeout_s)
