"""Client library, control plane and role servers together, in one loop and over real sockets."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import AsyncIterator

import pytest

import omniflow
from omniflow import Accepted, CallState, ElementType, Event, Finished, OmniFlowError, Output, Reason, Tensor
from omniflow_roles.harness.role_server import RoleServer
from omniflow_server.compose import ControlPlane
from tests.clients.tcp_proxy import TcpProxy
from tests.integration.whole import INTERFACES, Count, graphs, role_server
from tests.roles.running import eventually
from tests.server.control.planes import plane, settled
from tests.support.interfaces import Gate


@pytest.fixture
async def made() -> AsyncIterator[ControlPlane]:
    Gate.reset()
    Count.reset()
    async with plane(*INTERFACES, graphs=graphs(), lease_ttl_s=3.0, event_log_size_bytes=100_000) as control:
        yield control


@pytest.fixture
async def role(made: ControlPlane) -> AsyncIterator[RoleServer]:
    async with role_server(made) as server:
        yield server


@pytest.fixture
async def client(made: ControlPlane, role: RoleServer) -> AsyncIterator[omniflow.Client]:
    async with omniflow.connect(made.target, resume_timeout_s=5) as connected:
        yield connected


async def collect(stream: omniflow.EventStream) -> list[Event]:
    return [event async for event in stream]


def texts(events: list[Event]) -> list[object]:
    return [event.value for event in events if isinstance(event, Output)]


async def begun(stream: omniflow.EventStream) -> list[Event]:
    """Starts the call; what came until its first output."""
    events: list[Event] = []
    while not (events and isinstance(events[-1], Output)):
        events.append(await anext(stream))
    return events


async def failure(stream: omniflow.EventStream) -> tuple[list[Event], OmniFlowError]:
    """What came before the call failed, and how."""
    events: list[Event] = []
    with pytest.raises(OmniFlowError) as caught:
        async for event in stream:
            events.append(event)
    return events, caught.value


async def test_call_runs_over_inline_nodes_and_roles(client: omniflow.Client) -> None:
    events = await collect(client.stream("words", text="hello big world"))
    assert texts(events) == ["HELLO!", "BIG!", "WORLD!"]
    assert [event.sequence for event in events] == list(range(1, 7))
    assert isinstance(events[-1], Finished)
    assert events[-1].usage.activations == 4
    assert (await client.run("words", text="a b")).text("text") == "A!B!"


async def test_64_concurrent_calls_each_get_their_own(made: ControlPlane, client: omniflow.Client) -> None:
    async def tagged(i: int) -> None:
        result = await client.run("words", text=" ".join(f"t{i}x{j}" for j in range(5)))
        assert result.text("text") == "".join(f"T{i}X{j}!" for j in range(5))

    await asyncio.gather(*(tagged(i) for i in range(64)))
    await settled(made)


@pytest.mark.parametrize("size", [1, 65_536, 65_537, 8 * 1024 * 1024])
async def test_tensor_of_any_size_goes_through_roles_and_back(
    made: ControlPlane, role: RoleServer, client: omniflow.Client, size: int
) -> None:
    data = random.Random(size).randbytes(size)
    events = await collect(client.stream("twice", tensor=Tensor(ElementType.UINT8, (size,), data)))
    outputs = {event.field: event.value for event in events if isinstance(event, Output)}
    both = [outputs["tensor"], outputs["inverted"]]
    digests = [hashlib.sha256(value.data).digest() for value in both if isinstance(value, Tensor)]
    inverted = data.translate(bytes(255 - i for i in range(256)))
    assert digests == [hashlib.sha256(data).digest(), hashlib.sha256(inverted).digest()]
    await settled(made)
    await eventually(lambda: made.store.used_bytes == 0 and role.store.used_bytes == 0)


async def test_large_output_without_a_stream_is_collected(client: omniflow.Client) -> None:
    data = bytes(300_000)
    result = await client.run("twice", tensor=Tensor(ElementType.UINT8, (len(data),), data))
    value = result.value("tensor")
    assert isinstance(value, Tensor)
    assert bytes(value.data) == data


async def test_slow_client_holds_the_role_back_and_gets_everything(made: ControlPlane, client: omniflow.Client) -> None:
    stream = client.stream("count", text="4000")
    await begun(stream)
    call = made.calls.find(stream.call_id, tenant="default")
    await eventually(lambda: call._held_acks)
    assert len(Count.given) < 4_000
    assert call.log.kept_bytes < 1_000_000, "the limit, and a window beyond it"
    events = await collect(stream)
    assert [event.value.ids[0] for event in events if isinstance(event, Output)] == list(range(1, 4_000))  # type: ignore[union-attr]


async def test_client_that_leaves_stops_the_role(made: ControlPlane, role: RoleServer, client: omniflow.Client) -> None:
    async with client.stream("count", text="-1") as stream:
        async for event in stream:
            if isinstance(event, Output):
                break
    await settled(made)
    await eventually(lambda: not role.host.load().running)


async def test_cancel_reaches_the_hook_and_frees_the_place(
    made: ControlPlane, role: RoleServer, client: omniflow.Client
) -> None:
    stream = client.stream("gate", text="g")
    assert texts(await begun(stream)) == ["began"]
    assert await client.cancel(request_id=stream.request_id, reason="enough")
    events, error = await failure(stream)
    assert events == []
    assert error.reason is Reason.CALL_CANCELLED
    await eventually(lambda: Gate.ended == ["g"])
    assert Gate.cancelled_calls == [stream.call_id]
    await settled(made)
    again = client.stream("gate", text="h")
    await begun(again)
    Gate.gates["h"].set()
    assert texts(await collect(again)) == ["h"]


async def test_failure_of_an_interface_keeps_its_text_at_home(
    client: omniflow.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    events, error = await failure(client.stream("fail", text="x"))
    assert texts(events) == ["part"]
    assert (error.reason, error.info.metadata["node"]) == (Reason.INTERFACE_FAILED, "node")
    assert "secret" not in str(error)


async def test_replica_that_dies_fails_its_calls_and_its_next_life_serves(made: ControlPlane) -> None:
    async with omniflow.connect(made.target) as client:
        async with role_server(made):
            stream = client.stream("gate", text="g")
            await begun(stream)
        _, error = await failure(stream)
        assert error.reason is Reason.REPLICA_LOST
        assert error.info.metadata == {"node": "node", "replica": "worker/worker-0"}
        waiting = asyncio.ensure_future(client.run("words", text="again"))
        async with role_server(made):
            assert (await waiting).text("text") == "AGAIN!"


async def test_drained_replica_ends_what_it_has_and_the_other_takes_the_rest(
    made: ControlPlane, role: RoleServer, client: omniflow.Client
) -> None:
    stream = client.stream("gate", text="g")
    await begun(stream)
    async with role_server(made, "worker-1"):
        made.registry.drain("worker", "worker-0", 5.0)
        results = await asyncio.gather(*(client.run("words", text=f"w{i}") for i in range(10)))
        assert [result.text("text") for result in results] == [f"W{i}!" for i in range(10)]
        Gate.gates["g"].set()
        assert texts(await collect(stream)) == ["g"]
        await eventually(lambda: made.registry.find("worker", "worker-0") is None)
        assert (await client.run("words", text="after")).text("text") == "AFTER!"


async def test_session_supersedes_a_call_on_a_role(client: omniflow.Client) -> None:
    first = client.stream("gate", text="g", session="s")
    await begun(first)
    second = client.stream("words", text="now", session="s", supersede=True)
    assert texts(await collect(second)) == ["NOW!"]
    _, error = await failure(first)
    assert error.reason is Reason.CALL_SUPERSEDED
    await eventually(lambda: Gate.ended == ["g"])


async def test_connection_that_is_cut_loses_and_doubles_nothing(made: ControlPlane, role: RoleServer) -> None:
    Count.reset(5, 10, 15)
    seen: list[Event] = []
    async with (
        TcpProxy(int(made.target.rpartition(":")[2])) as proxy,
        omniflow.connect(proxy.target, resume_timeout_s=10) as client,
    ):
        async for event in client.stream("count", text="20"):
            seen.append(event)
            stop = len(seen) - 2  # what is given before it, after the call was accepted and started
            if stop in Count.stops:
                proxy.cut()
                Count.stops[stop].set()
    assert [event.sequence for event in seen] == list(range(1, 24))
    assert [e.value.ids[0] for e in seen if isinstance(e, Output)] == list(range(20))  # type: ignore[union-attr]
    assert Count.given == list(range(20)), "the call ran once"
    assert proxy.connections == 4


async def test_state_of_a_call_on_a_role_is_told(client: omniflow.Client) -> None:
    stream = client.stream("gate", text="g")
    accepted = (await begun(stream))[0]
    assert isinstance(accepted, Accepted)
    status = await client.get_call(accepted.call_id)
    assert (status.state, status.active_activations, status.is_attached) == (CallState.RUNNING, 1, True)
    Gate.gates["g"].set()
    await collect(stream)
    assert (await client.get_call(accepted.call_id)).state is CallState.FINISHED


async def test_call_of_a_process_that_is_gone_is_lost_and_said_to_be() -> None:
    """Processes of a cluster share the key of resume tokens."""
    Gate.reset()
    key = "ab" * 32
    async with (
        plane(*INTERFACES, graphs=graphs(), resume_key=key) as first,
        role_server(first),
        omniflow.connect(first.target) as client,
    ):
        stream = client.stream("gate", text="g")
        await begun(stream)
        checkpoint = stream.checkpoint
    assert checkpoint is not None
    async with plane(*INTERFACES, graphs=graphs(), resume_key=key) as second, omniflow.connect(second.target) as client:
        _, error = await failure(client.resume(checkpoint))
        assert error.reason is Reason.OWNER_LOST
