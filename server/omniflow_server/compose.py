"""Composes a control-plane process: the only file that knows every concrete class.

clients ──▶ public server   GraphService, WorkflowService, health, reflection, channelz
roles   ──▶ internal server RoleRegistryService, ValueService, health        (unix socket 0600, or what is configured)
others  ──▶                 GraphService, for calls that are passed on
            └─ Placement ─ CallTable ─ ReplicaDispatcher ─ ReplicaLink ──▶ roles
               Membership, ReplicaDirectory, Ownership, GraphDirectory ──▶ metadata store
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

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
from omniflow.internal_rpc import MAX_FRAME_BYTES, PROTOCOL_REVISION
from omniflow.large_values import ValueFetcher, ValueServicer, ValueStore
from omniflow.process import forbid_forks, listen_umask, runtime_dir, sole_loop
from omniflow.role.v1 import role_registry_service_pb2_grpc, value_service_pb2_grpc
from omniflow.rpc_errors import ErrorAnswering
from omniflow.threads import ThreadPool
from omniflow.workflow.v1 import workflow_service_pb2, workflow_service_pb2_grpc
from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_server.control.calls import CallTable
from omniflow_server.control.catalog import Catalog, CatalogEntry
from omniflow_server.control.discovery import Discovery
from omniflow_server.control.dispatch import ReplicaDispatcher
from omniflow_server.control.graph_directory import GraphDirectory
from omniflow_server.control.inline import InlineExecutor
from omniflow_server.control.link import ControlIdentity, ReplicaLink
from omniflow_server.control.membership import TICK_S, Membership
from omniflow_server.control.ownership import Ownership
from omniflow_server.control.placement import Placement
from omniflow_server.control.registry import Registration, Registry
from omniflow_server.control.replica_directory import ReplicaDirectory
from omniflow_server.control.resume_tokens import ResumeTokens
from omniflow_server.control.settings import ControlSettings
from omniflow_server.control.tasks import BackgroundTasks
from omniflow_server.data.metadata.connecting import open_store
from omniflow_server.data.metadata.memory import MemoryStore
from omniflow_server.data.metadata.port import PAUSE_S, MetadataStore, Owner, Renewal, Tick
from omniflow_server.rpc.forwarding import Forwarding
from omniflow_server.rpc.graph_service import GraphServicer
from omniflow_server.rpc.health import Health
from omniflow_server.rpc.peers import Peers
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
MIN_LEASE_S = PAUSE_S + TICK_S
STORE_TIMEOUT_S = 1.0
"""How long the metadata store may take for one operation; a restart of it takes half of that."""

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
    graphs: GraphDirectory
    registry: Registry
    dispatcher: ReplicaDispatcher
    health: Health
    store: ValueStore
    inline: InlineExecutor
    membership: Membership
    directory: ReplicaDirectory
    discovery: Discovery
    ownership: Ownership
    placement: Placement
    forwarding: Forwarding
    flows: tuple[Flow, ...]
    """Flows of the operator; their files may define interfaces."""

    async def install(self, entry: CatalogEntry) -> None:
        """Makes a graph callable in this process alone; its inline interfaces are set up first."""
        await _host_inline(self.inline, self.flows, entry)
        self.catalog.install(entry)
        await self.health.refresh()


@contextlib.asynccontextmanager
async def control_plane(
    settings: ControlSettings, *, metadata: MetadataStore | None = None
) -> AsyncIterator[ControlPlane]:
    """A control plane that serves for as long as the context is open. `metadata`: a store that is open already."""
    internal_target = settings.internal_listen or f"unix:{runtime_dir('default') / 'control.sock'}"
    identity = ControlIdentity(
        control_id=settings.control_id,
        incarnation_id=secrets.token_hex(8),
        value_endpoint=settings.advertise or internal_target,
        lanes=settings.lanes,
    )
    async with contextlib.AsyncExitStack() as stack:
        shared = metadata or await _open_metadata(settings, stack)
        parts = _Parts(
            settings=settings,
            flows=tuple(map(load_flow, settings.flows)),
            internal_target=internal_target,
            identity=identity,
            metadata=shared or MemoryStore(time.time),
            is_alone=shared is None,
            store=ValueStore(
                endpoint=identity.value_endpoint,
                incarnation_id=identity.incarnation_id,
                budget_bytes=settings.spool_bytes,
            ),
            threads=ThreadPool(settings.inline_threads, name="inline"),
        )
        parts.fetcher = await stack.enter_async_context(ValueFetcher(local=parts.store))
        parts.tasks = await stack.enter_async_context(BackgroundTasks())
        plane = _compose(parts, stack)
        public, internal = _public_server(plane), _internal_server(plane)
        plane.target = _bind(public, settings.listen)
        _bind(internal, internal_target)
        stack.push_async_callback(plane.inline.close)
        await plane.membership.begin()
        # When all else has ended: until then others must leave alone what is owned here.
        stack.push_async_callback(plane.membership.end)
        await _start_cluster_work(plane, parts, stack)
        # Roles keep streams open for as long as we live; there is nothing to wait for once the calls have ended.
        for server, grace_s in ((internal, 0.0), (public, STOP_GRACE_S)):
            await server.start()
            stack.push_async_callback(server.stop, grace_s)
        await plane.health.refresh()
        yield plane


@dataclass(slots=True, kw_only=True)
class _Parts:
    """What a control plane is made of, besides what `_compose` makes."""

    settings: ControlSettings
    flows: tuple[Flow, ...]
    internal_target: str
    identity: ControlIdentity
    metadata: MetadataStore
    is_alone: bool
    store: ValueStore
    threads: ThreadPool
    fetcher: ValueFetcher = field(init=False)
    tasks: BackgroundTasks = field(init=False)


async def _open_metadata(settings: ControlSettings, stack: contextlib.AsyncExitStack) -> MetadataStore | None:
    """The store that the control planes share; None when there is none."""
    if not settings.metadata_url:
        return None
    if settings.owner_lease_ttl_s < MIN_LEASE_S:
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"control.owner_lease_ttl_s is {settings.owner_lease_ttl_s:g}, and must be at least {MIN_LEASE_S:g}: after a "
            "shorter pause of the store nobody could tell which control planes live.",
            violations=(Violation(field="control.owner_lease_ttl_s", description=f"at least {MIN_LEASE_S:g}"),),
        )
    store = await open_store(
        settings.metadata_url,
        namespace=settings.metadata_namespace,
        allow_volatile=settings.allow_volatile_store,
        timeout_s=STORE_TIMEOUT_S,
    )
    stack.push_async_callback(store.close)
    return store


async def _start_cluster_work(plane: ControlPlane, parts: _Parts, stack: contextlib.AsyncExitStack) -> None:
    """Installs graphs, and keeps what is shared with other control planes up to date from now on."""
    for flow in plane.flows:
        await plane.graphs.install_flow(flow.graph.spec())
    await plane.graphs.refresh()
    plane.membership.join(_GraphWatch(plane.graphs, parts.tasks))
    for work in (
        plane.membership.run(),
        plane.ownership.keep_for_ever(),
        _expire_leases(plane.registry),
        _forget_calls(plane.calls),
        plane.discovery.run(),
    ):
        task = parts.tasks.create_task(work)
        stack.callback(task.cancel)


class _GraphWatch:
    """Reads graphs again when another control plane has changed one. A `Member` of the membership."""

    def __init__(self, graphs: GraphDirectory, tasks: BackgroundTasks) -> None:
        self._graphs = graphs
        self._tasks = tasks
        self._seen = ("", 0)

    def renewals(self) -> tuple[Renewal, ...]:
        return ()

    def take(self, tick: Tick) -> None:
        now = (tick.store_incarnation, tick.graph_revision)
        if now == self._seen:
            return
        self._seen = now
        self._tasks.create_task(self._read())

    async def _read(self) -> None:
        try:
            await self._graphs.refresh()
        except OmniFlowError as error:
            log.warning("graphs could not be read: %s", error.message)
            self._seen = (self._seen[0], 0)  # the next tick tries again


def _compose(parts: _Parts, stack: contextlib.AsyncExitStack) -> ControlPlane:
    settings, tasks = parts.settings, parts.tasks
    own = {name for flow in parts.flows for name in flow.graph.interfaces}
    enabled = registered_interfaces() if "*" in settings.interfaces else settings.interfaces
    catalog = Catalog({*enabled, *own})
    registry = Registry(lease_ttl_s=settings.lease_ttl_s)
    inline = InlineExecutor(
        tasks=tasks,
        fetcher=parts.fetcher,
        threads=parts.threads,
        yield_window=settings.yield_window,
        byte_credit=settings.byte_credit,
    )
    membership = Membership(
        parts.metadata,
        Owner(
            owner_id=settings.control_id,
            incarnation_id=parts.identity.incarnation_id,
            endpoint=settings.advertise or parts.internal_target,
            protocol_revisions=(PROTOCOL_REVISION,),
        ),
        ttl_s=settings.owner_lease_ttl_s,
        replica_ttl_s=settings.lease_ttl_s,
        on_lost=lambda: _lose_all(calls, ownership),
        on_back=lambda: tasks.create_task(ownership.renew_all()),
    )

    def connections_changed() -> None:
        discovery.look_again()
        tasks.create_task(health.refresh())

    dispatcher = ReplicaDispatcher(
        registry=registry,
        identity=parts.identity,
        inline=inline,
        store=parts.store,
        fetcher=parts.fetcher,
        tasks=tasks,
        replica_wait_s=settings.replica_wait_s,
        byte_credit=settings.byte_credit,
        yield_window=settings.yield_window,
        runs_segments=settings.segments,
        runs_pipelines=settings.pipelines,
        on_connections_changed=connections_changed,
        lease=membership,
        max_queue=settings.max_queue,
    )
    health = Health(catalog, dispatcher, PUBLIC_SERVICES)
    graphs = GraphDirectory(
        catalog=catalog,
        store=parts.metadata,
        epoch=lambda: membership.epoch,
        prepare=functools.partial(_host_inline, inline, parts.flows),
        on_changed=health.refresh,
        now_ms=lambda: time.time_ns() // 1_000_000,
    )
    calls = CallTable(
        settings=settings,
        catalog=catalog,
        dispatcher=dispatcher,
        store=parts.store,
        tokens=ResumeTokens(bytes.fromhex(settings.resume_key) if settings.resume_key else secrets.token_bytes(32)),
        tasks=tasks,
        epoch=lambda: membership.epoch,
        check_room=dispatcher.check_room,
    )
    ownership = Ownership(
        parts.metadata,
        membership,
        is_alone=parts.is_alone,
        request_keep_s=settings.ended_call_ttl_s,
        on_session_lost=lambda session: calls.lose_session(*session, "Another control plane owns the session now."),
    )
    placement = Placement(calls, ownership, membership, tasks)
    calls.listener = placement
    peers = Peers(membership)
    stack.push_async_exit(peers)
    discovery = Discovery(registry, settings, is_needed=functools.partial(_is_needed, calls))
    return ControlPlane(
        target="",
        internal_target=parts.internal_target,
        calls=calls,
        catalog=catalog,
        graphs=graphs,
        registry=registry,
        dispatcher=dispatcher,
        health=health,
        store=parts.store,
        inline=inline,
        membership=membership,
        directory=ReplicaDirectory(registry, parts.metadata, membership),
        discovery=discovery,
        ownership=ownership,
        placement=placement,
        forwarding=Forwarding(placement, membership, peers),
        flows=parts.flows,
    )


def _is_needed(calls: CallTable, registration: Registration) -> bool:
    """A call that has not ended has been given to the replica: it may come back to it, for what it keeps of the call."""
    return any(isinstance(link, ReplicaLink) and link.registration is registration for link in calls.used_replicas())


def _lose_all(calls: CallTable, ownership: Ownership) -> None:
    ownership.forget_all()
    calls.lose_all(
        "Other control planes have taken over from the process that owned the call: it stood still for too long."
    )


async def _host_inline(inline: InlineExecutor, flows: Iterable[Flow], entry: CatalogEntry) -> None:
    """Sets up the inline interfaces of a graph."""
    for node in entry.message.nodes:
        if node.is_inline:
            await inline.host(node.interface, load_interface(node.interface, flows))


def _public_server(plane: ControlPlane) -> grpc.aio.Server:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    services = ErrorAnswering(server)
    services.add_generic_rpc_handlers((_graph_servicer(plane).handler(),))
    workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server(
        WorkflowServicer(plane.catalog, plane.graphs), services
    )
    health_pb2_grpc.add_HealthServicer_to_server(plane.health.servicer, services)
    channelz.add_channelz_servicer(server)
    reflection.enable_server_reflection(
        (*PUBLIC_SERVICES, "grpc.health.v1.Health", "grpc.channelz.v1.Channelz", reflection.SERVICE_NAME), server
    )
    return server


def _graph_servicer(plane: ControlPlane) -> GraphServicer:
    return GraphServicer(plane.calls, plane.placement, plane.forwarding)


def _internal_server(plane: ControlPlane) -> grpc.aio.Server:
    server = grpc.aio.server(options=INTERNAL_OPTIONS)
    services = ErrorAnswering(server)
    role_registry_service_pb2_grpc.add_RoleRegistryServiceServicer_to_server(
        RoleRegistryServicer(plane.registry, plane.directory, plane.membership), services
    )
    services.add_generic_rpc_handlers((_graph_servicer(plane).handler(),))  # for what others pass on
    value_service_pb2_grpc.add_ValueServiceServicer_to_server(ValueServicer(plane.store), services)
    health_pb2_grpc.add_HealthServicer_to_server(plane.health.servicer, services)
    return server


def _bind(server: grpc.aio.Server, target: str) -> str:
    """Listens; returns the target with the port that was given."""
    if target.startswith("unix:") and _has_listener(target.removeprefix("unix:")):
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"Cannot listen on {target}: another process does. Give this one a control.internal_listen, or control.listen, "
            "of its own.",
        )
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


def _has_listener(path: str) -> bool:
    """gRPC takes a socket's path over from whoever has it, and takes it away at the end."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


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
        await drain(plane, settings.drain_timeout_s)


async def drain(plane: ControlPlane, timeout_s: float) -> None:
    """Takes no new call, passes those that come on to others, and waits for those that run here or were passed on."""
    plane.calls.is_draining = True  # at once: what comes now is passed on
    await plane.membership.drain()
    await plane.health.drain()
    began_s = time.monotonic()
    await plane.calls.drain(timeout_s)
    await plane.forwarding.wait_idle(max(0.0, began_s + timeout_s - time.monotonic()))
