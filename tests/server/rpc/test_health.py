"""Standard health: the process, each service, each graph."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from omniflow.dsl import Graph
from omniflow.values import ValueType
from omniflow_server.compose import PUBLIC_SERVICES, ControlPlane
from omniflow_server.control.catalog import Catalog
from omniflow_server.control.dispatch import ReplicaDispatcher
from omniflow_server.rpc.health import Health
from tests.roles.running import eventually
from tests.server.control.planes import channel_to, register
from tests.server.control.scripted_role import ScriptedRole
from tests.server.rpc.client import GraphClient, texts
from tests.support.interfaces import Words

SERVING, NOT_SERVING, UNKNOWN = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
    health_pb2.HealthCheckResponse.SERVICE_UNKNOWN,
)


@pytest.fixture
def stub(client: GraphClient) -> Any:
    return health_pb2_grpc.HealthStub(client.channel)


async def status(stub: Any, service: str) -> int:
    return int((await stub.Check(health_pb2.HealthCheckRequest(service=service))).status)


def remote_graph() -> Graph:
    graph = Graph("remote")
    node = graph.node("node", Words, role="worker")
    graph.input("text", ValueType.TEXT) >> node.inputs.field("text")
    node.text >> graph.output("text", ValueType.TEXT)
    return graph


@pytest.mark.parametrize("service", ["", *PUBLIC_SERVICES, "graphs/shout"])
async def test_process_services_and_graphs_are_serving(stub: Any, service: str) -> None:
    assert await status(stub, service) == SERVING


async def test_unknown_service_is_not_found(stub: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await status(stub, "graphs/nope")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_graph_serves_while_its_roles_have_replicas(made: ControlPlane, stub: Any) -> None:
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="graphs/remote"))
    assert (await watch.read()).status == UNKNOWN
    await made.install(made.catalog.compile(remote_graph().spec()))
    assert (await watch.read()).status == NOT_SERVING
    async with ScriptedRole(Words.name) as role:
        register(made, role.replica)
        assert (await watch.read()).status == SERVING
        assert await status(stub, "graphs/remote") == SERVING
        await role.stop()
        assert (await watch.read()).status == NOT_SERVING
        await role.listen()
        assert (await watch.read()).status == SERVING
        made.registry.drain("worker", "worker-0", 1)
        assert (await watch.read()).status == NOT_SERVING
    assert await status(stub, "") == SERVING, "the process itself serves all the while"
    watch.cancel()


class Connected:
    """A dispatcher whose roles are connected as the test says."""

    def __init__(self, *roles: str) -> None:
        self.roles = frozenset(roles)

    def connected_roles(self, roles: frozenset[str]) -> frozenset[str]:
        return roles & self.roles


async def test_canary_without_its_roles_does_not_take_the_graph_away() -> None:
    catalog, dispatcher = Catalog([Words.name]), Connected("worker")
    health = Health(catalog, cast("ReplicaDispatcher", dispatcher), ())
    catalog.install(catalog.compile(remote_graph().spec()))
    spec = remote_graph().spec()
    spec.nodes[0].role = "other"
    canary = catalog.compile(spec)
    versions = catalog.versions("graphs/remote").adding(canary.revision, 49)
    catalog.take(versions, [canary])
    assert health.is_graph_ready("graphs/remote")
    catalog.take(versions.adding(canary.revision, 50), [])
    assert not health.is_graph_ready("graphs/remote"), "the newest of two with the largest share"
    dispatcher.roles |= {"other"}
    assert health.is_graph_ready("graphs/remote")


async def test_internal_server_tells_health_too(made: ControlPlane) -> None:
    async with channel_to(made.internal_target) as channel:
        assert await status(health_pb2_grpc.HealthStub(channel), "") == SERVING


async def test_drain_says_so_for_everything(made: ControlPlane, stub: Any) -> None:
    watch = stub.Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == SERVING
    await made.health.drain()
    assert (await watch.read()).status == NOT_SERVING
    for service in (*PUBLIC_SERVICES, "graphs/shout"):
        assert await status(stub, service) == NOT_SERVING
    watch.cancel()


async def test_watcher_that_leaves_takes_no_other_with_it(made: ControlPlane, stub: Any) -> None:
    request = health_pb2.HealthCheckRequest(service="x")
    stays, leaves = stub.Watch(request), stub.Watch(request)
    for watch in (stays, leaves):
        assert (await watch.read()).status == UNKNOWN
    leaves.cancel()
    await eventually(lambda: made.health.servicer.watcher_count == 1)
    made.health.servicer.set("x", SERVING)
    async with asyncio.timeout(10):
        assert (await stays.read()).status == SERVING
    stays.cancel()
    await eventually(lambda: made.health.servicer.watcher_count == 0)
    assert not made.health.servicer._watchers


async def test_watcher_that_does_not_read_holds_up_nobody(made: ControlPlane, stub: Any) -> None:
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="x"))
    await eventually(lambda: made.health.servicer.watcher_count == 1)
    for i in range(1_000):
        made.health.servicer.set("x", SERVING if i % 2 else NOT_SERVING)
    await made.health.refresh()
    made.health.servicer.set("x", SERVING)
    seen = [(await watch.read()).status]
    while seen[-1] != SERVING:
        seen.append((await watch.read()).status)
    assert len(seen) < 10, "a watcher is told the newest status, not each one"
    watch.cancel()


async def test_500_idle_watches_affect_no_call(made: ControlPlane, client: GraphClient, stub: Any) -> None:
    watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(500)]
    for watch in watches:
        assert (await watch.read()).status == SERVING
    for _ in range(20):
        events, error = await client.stream("shout", inputs={"text": "a"}).rest()
        assert (texts(events), error) == (["A!"], None)
    await made.health.drain()
    for watch in watches:
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
    await eventually(lambda: made.health.servicer.watcher_count == 0)
