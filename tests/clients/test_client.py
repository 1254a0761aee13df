"""The methods that are not calls: graphs, health, state of calls."""

from __future__ import annotations

import asyncio

import pytest
from grpc_health.v1 import health_pb2

import omniflow
from omniflow import CallState, Code, Graph, Health, OmniFlowError, Reason, ValueType
from omniflow.workflow.v1 import graph_spec_pb2
from tests.clients.fake_server import FakeServer


def spec(name: str) -> graph_spec_pb2.GraphSpec:
    return graph_spec_pb2.GraphSpec(name=f"graphs/{name}", nodes=[graph_spec_pb2.Node(name="n", interface="i")])


async def test_graphs_are_applied_read_and_listed_over_pages(client: omniflow.Client) -> None:
    for name in ("b", "a", "c"):
        assert (await client.apply(spec(name))).revision == "r1"
    assert [graph.name for graph in await client.graphs()] == ["graphs/a", "graphs/b", "graphs/c"]
    assert (await client.get_graph("a")).name == "graphs/a"
    with pytest.raises(OmniFlowError) as caught:
        await client.get_graph("none")
    assert (caught.value.reason, caught.value.code) == (Reason.UNKNOWN_GRAPH, Code.NOT_FOUND)


async def test_graph_of_the_dsl_is_validated_explained_and_refused(client: omniflow.Client) -> None:
    graph = Graph("empty")
    graph.input("text", ValueType.TEXT)
    (found,) = await client.validate(graph)
    assert (found.reason, found.field, found.fix) == ("UNREACHABLE", "nodes", "add one")
    assert await client.validate(spec("fine")) == ()
    assert (await client.explain(graph)).text == "plan of graphs/empty"
    assert (await client.explain("named")).text == "plan of graphs/named"
    with pytest.raises(OmniFlowError) as caught:
        await client.apply(graph)
    assert caught.value.reason is Reason.INVALID_GRAPH
    assert caught.value.violations[0].field == "nodes"
    assert "nodes: no node" in str(caught.value)


async def test_call_state_is_read_and_calls_are_cancelled(server: FakeServer, client: omniflow.Client) -> None:
    result = await client.run("echo", text="ab")
    status = await client.get_call(result.call_id)
    assert (status.state, status.last_sequence, status.graph) == (CallState.FINISHED, 5, "graphs/echo")
    assert await client.cancel(result.call_id) is False
    stream = client.stream("endless", request_id="r")
    await anext(stream)
    assert (await client.get_call(stream.call_id)).state is CallState.RUNNING
    assert await client.cancel(request_id="r", reason="test") is True
    with pytest.raises(OmniFlowError) as caught:
        async for _ in stream:
            pass
    assert caught.value.reason is Reason.CALL_CANCELLED
    with pytest.raises(OmniFlowError) as unknown:
        await client.get_call("none")
    assert unknown.value.reason is Reason.UNKNOWN_CALL
    assert len(server.cancels) == 2


async def test_health_of_server_and_services(server: FakeServer, client: omniflow.Client) -> None:
    assert await client.health() is Health.SERVING
    assert await client.health("graphs/none") is Health.SERVICE_UNKNOWN
    await server.health.set("graphs/a", health_pb2.HealthCheckResponse.NOT_SERVING)
    assert await client.health("graphs/a") is Health.NOT_SERVING


async def test_wait_ready_returns_when_the_service_serves(server: FakeServer, client: omniflow.Client) -> None:
    waiting = asyncio.create_task(client.wait_ready(5, service="graphs/a"))
    await server.until(lambda: server.health is not None)
    await server.health.set("graphs/a", health_pb2.HealthCheckResponse.SERVING)
    await waiting


async def test_wait_ready_says_what_was_seen_last(client: omniflow.Client) -> None:
    with pytest.raises(OmniFlowError, match=r"within 0.1 s; last seen: SERVICE_UNKNOWN") as caught:
        await client.wait_ready(0.1, service="graphs/none")
    assert (caught.value.reason, caught.value.is_stated) == (Reason.DEADLINE_EXCEEDED, False)


async def test_wait_ready_waits_for_a_server_that_is_not_there_yet() -> None:
    async with FakeServer() as placeholder:
        port = placeholder.port
    async with omniflow.connect(f"127.0.0.1:{port}") as client:
        with pytest.raises(OmniFlowError, match="last seen: UNAVAILABLE"):
            await client.wait_ready(0.2)
        waiting = asyncio.create_task(client.wait_ready(10))
        async with FakeServer(port=port):
            await waiting


async def test_unary_call_to_a_server_that_is_not_there_is_inferred() -> None:
    async with omniflow.connect("127.0.0.1:1") as client:
        with pytest.raises(OmniFlowError) as caught:
            await client.graphs()
    assert (caught.value.reason, caught.value.is_stated) == (Reason.CONNECTION_LOST, False)


def test_facade_lists_what_it_has() -> None:
    assert sorted(omniflow.__all__) == list(omniflow.__all__)
    assert all(hasattr(omniflow, name) for name in omniflow.__all__)
