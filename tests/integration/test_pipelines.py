"""Pipelines between real processes: what the caller gets is what it gets without, also when processes die in the middle."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

import omniflow
from omniflow import Event, Json, Output, Reason
from omniflow.codec.common import value_to_proto
from omniflow.dsl import Graph
from omniflow.events import Finished, Progress
from omniflow.flow import RolePlan
from omniflow.graph.v1 import graph_service_pb2, graph_service_pb2_grpc
from omniflow.values import ValueType
from omniflow_roles.noop import Count, Echo, Repeat, Step
from omniflow_roles.noop.large import Large, Mirror, Swallow, pattern
from tests.integration.noop_system import events_of, failure_of, inspected, item, items, made, settled
from tests.support.processes import wait_until
from tests.support.system import System, running_system

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

ROLES = tuple(
    RolePlan(
        name=name, interfaces=(Repeat.name, Step.name, Echo.name, Count.name, Large.name, Swallow.name, Mirror.name)
    )
    for name in ("stage1", "stage2", "stage3")
)
LANES = {"lane": {}, "grpc": {"lanes": ()}}
SLOW = {"delay_s": 0.03}


def counted() -> Graph:
    """parameters -> a -> b -> c -> text: as many texts as asked for."""
    graph = Graph("counted")
    a = graph.node("a", Count, role="stage1")
    b, c = graph.node("b", Echo, role="stage2"), graph.node("c", Echo, role="stage3")
    graph.input("parameters", ValueType.JSON) >> a.inputs.field("parameters")
    a.output("text") >> b.inputs.field("text")
    b.text >> c.inputs.field("text")
    c.text >> graph.output("text", ValueType.TEXT)
    return graph


def large(name: str) -> Graph:
    """parameters -> a -> b, of which the digest or the tensor goes out."""
    graph = Graph(name)
    a = graph.node("a", Large, role="stage1")
    graph.input("parameters", ValueType.JSON) >> a.inputs.field("parameters")
    if name == "large-inside":
        b = graph.node("b", Swallow, role="stage2")
        b.digest >> graph.output("digest", ValueType.JSON)
    else:
        b = graph.node("b", Mirror, role="stage2")
        b.tensor >> graph.output("tensor", ValueType.TENSOR)
    a.output("tensor") >> b.inputs.field("tensor")
    return graph


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LANES)
async def system(request: pytest.FixtureRequest) -> AsyncIterator[System]:
    settings: dict[str, Any] = {
        "flows": ("noop-pipeline",),
        "interfaces": ("*",),
        "pipelines": True,
        "event_log_size_bytes": 100_000,  # filled soon by a reader that does not read
    }
    arguments = ("--lanes", "") if request.param == "grpc" else ()
    async with running_system(
        settings=settings | LANES[request.param], roles=ROLES, role_arguments=arguments
    ) as made_system:
        await made_system.wait_ready(graph="graphs/noop-pipeline")
        async with made_system.connect() as connected:
            for graph in (counted(), large("large-inside"), large("large-out")):
                await connected.apply(graph)
        yield made_system


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(system: System) -> AsyncIterator[omniflow.Client]:
    async with system.connect() as connected:
        yield connected


def outputs(events: list[Event]) -> list[Output]:
    return [event for event in events if isinstance(event, Output)]


@pytest.mark.parametrize(
    "stages",
    [
        {},
        {"a": SLOW},
        {"b": {"by_input": {"a0": SLOW}}},
        {"c": {"by_input": {"b0": SLOW}}},
        {"a": {"yields": 3}, "b": {"by_input": {"a1": {"yields": 0}}}},
        {"a": {"yields": 0}},
    ],
    ids=["at_once", "slow_source", "b1_before_b0", "c1_before_c0", "nothing_of_one", "nothing_at_all"],
)
async def test_outputs_come_in_the_order_of_the_graph(
    system: System, client: omniflow.Client, stages: dict[str, Any]
) -> None:
    events = await events_of(client.stream("noop-pipeline", item=item(**stages)))
    a_yields = stages.get("a", {}).get("yields", 2)
    b_yields = {i: 0 if "a1" in stages.get("b", {}).get("by_input", {}) and i == 1 else 2 for i in range(a_yields)}
    expected = [(i, j) for i in range(a_yields) for j in range(b_yields[i])]
    assert items(events) == [made(f"x.a{i}.b{j}.c0") for i, j in expected]
    assert [(o.node, o.origin_path) for o in outputs(events)] == [("c", (0, i, j, 0)) for i, j in expected]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.usage.activations == 1 + a_yields + len(expected)


async def held(stream: omniflow.EventStream) -> None:
    """Reads until a stage says that it holds."""
    async for event in stream:
        if isinstance(event, Progress):
            return
    raise AssertionError("no stage held")


@pytest.mark.parametrize("node", ["a", "b", "c"])
async def test_control_plane_knows_the_first_node_only_and_a_cancel_reaches_all(
    system: System, client: omniflow.Client, node: str
) -> None:
    stream = client.stream("noop-pipeline", item=item(**{node: {"hold_at": 0}}))
    await held(stream)
    snapshot = await inspected(system, stream.call_id)
    assert [activation.node for activation in snapshot.activations] == ["a"]
    await client.cancel(stream.call_id)
    _, error = await failure_of(stream)
    assert error.reason is Reason.CALL_CANCELLED
    await settled(client, stream.call_id)
    events = await events_of(client.stream("noop-pipeline", item=item()))
    assert len(items(events)) == 4


@pytest.mark.parametrize("size_bytes", [1_000, 3_000_000])
async def test_payloads_pass_from_role_to_role_and_out(client: omniflow.Client, size_bytes: int) -> None:
    parameters = Json({"size_bytes": size_bytes, "count": 5})
    inside = outputs(await events_of(client.stream("large-inside", parameters=parameters)))
    digests = [output.value.value["sha256"] for output in inside]  # type: ignore[union-attr]
    assert digests == [hashlib.sha256(pattern(size_bytes)).hexdigest()] * 5
    left = outputs(await events_of(client.stream("large-out", parameters=parameters)))
    assert [bytes(output.value.data) for output in left] == [pattern(size_bytes)] * 5  # type: ignore[union-attr]


async def test_thousands_of_yields_of_many_calls_all_come_once(client: omniflow.Client) -> None:
    async def one(count: int) -> None:
        events = await events_of(client.stream("counted", parameters=Json({"count": count, "delay_s": 0})))
        assert [o.value for o in outputs(events)] == [str(i) for i in range(count)]

    await asyncio.gather(*(one(300 + i) for i in range(8)))


async def test_reader_that_does_not_read_holds_the_first_node_back(system: System, client: omniflow.Client) -> None:
    request = graph_service_pb2.StreamCallRequest(graph="graphs/noop-pipeline")
    many = item(a={"yields": 1_000_000}, nobody={"padding": "x" * 20_000})
    request.call.inputs["item"].CopyFrom(value_to_proto(many))
    async with grpc.aio.insecure_channel(system.target) as channel:
        stream: Any = graph_service_pb2_grpc.GraphServiceStub(channel).StreamCall(request)
        call_id = (await stream.read()).events[0].accepted.call_id
        seen: list[int] = []

        async def is_held() -> bool:
            (first,) = (await inspected(system, call_id)).activations
            seen.append(first.yields)
            return seen[-1] > 0 and seen[-50:] == [seen[-1]] * 50

        await wait_until(is_held, timeout_s=30, what="a source that waits for its reader", interval_s=0.01)
        await client.cancel(call_id)
        await settled(client, call_id)
        stream.cancel()


@pytest.mark.parametrize("node", ["a", "b", "c"])
async def test_failure_of_any_node_is_the_calls(client: omniflow.Client, node: str) -> None:
    _, error = await failure_of(client.stream("noop-pipeline", item=item(**{node: {"yields": "many"}})))
    assert (error.reason, error.info.metadata["node"]) == (Reason.INTERFACE_FAILED, node)


@pytest.mark.parametrize("role", ["stage1", "stage2", "stage3"])
async def test_replica_that_dies_fails_the_call_and_is_there_again(
    system: System, client: omniflow.Client, role: str
) -> None:
    stream = client.stream("counted", parameters=Json({"count": 100_000, "delay_s": 0.01}))
    async for event in stream:
        if isinstance(event, Output):
            break
    system.role(f"{role}-0").kill()
    _, error = await failure_of(stream)
    assert error.reason is Reason.REPLICA_LOST
    await settled(client, stream.call_id)
    system.role(f"{role}-0").start()
    await system.wait_ready(graph="graphs/counted")
    events = await events_of(client.stream("counted", parameters=Json({"count": 20, "delay_s": 0})))
    assert [o.value for o in outputs(events)] == [str(i) for i in range(20)]
