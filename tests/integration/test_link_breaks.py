"""Links between a control plane and a role whose transports are cut, stalled and refused. Over every transport."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import omniflow
from omniflow import Event, OmniFlowError, Output, Reason
from omniflow.links.dialing import session as session_module
from omniflow.links.port import LaneKind
from omniflow.role.v1 import replica_pb2
from omniflow_roles.harness.role_server import RoleServer
from omniflow_roles.harness.settings import RoleSettings
from omniflow_server.compose import ControlPlane
from tests.integration.whole import INTERFACES, ROLE_INTERFACES, Count, graphs
from tests.roles.running import eventually
from tests.server.control.planes import plane, register, settled
from tests.support.fault_proxy import FaultProxy
from tests.support.interfaces import Gate
from tests.support.pipes import KINDS

pytestmark = pytest.mark.integration

TOKENS = 1_000


class Line:
    """A control plane and a role, with a proxy before each of the role's sockets."""

    def __init__(self, made: ControlPlane, server: RoleServer, grpc: FaultProxy, lane: FaultProxy | None) -> None:
        self.made = made
        self.server = server
        self.grpc = grpc
        self.lane = lane

    @property
    def used(self) -> FaultProxy:
        """The one that the link goes over at first."""
        return self.lane or self.grpc

    def register(self) -> None:
        """The role's sockets are those of the proxies."""
        replica = replica_pb2.Replica()
        replica.CopyFrom(self.server.identity.message(self.server.host.state))
        replica.endpoint = self.grpc.target
        for offer in replica.lanes:
            assert self.lane is not None
            offer.address = self.lane.target.removeprefix("unix:")
        register(self.made, replica)

    def hide(self) -> None:
        """Nobody is found where the role listens, as when it is gone."""
        for path in self._paths():
            path.rename(f"{path}.away")

    def show(self) -> None:
        """The role is found again."""
        for path in self._paths():
            Path(f"{path}.away").rename(path)

    def _paths(self) -> list[Path]:
        proxies = (self.grpc, *([self.lane] if self.lane is not None else []))
        return [Path(proxy.target.removeprefix("unix:")) for proxy in proxies]

    @property
    def is_connected(self) -> bool:
        """The role can be given work."""
        return bool(self.made.dispatcher.connected_roles(["worker"]))


@pytest.fixture(params=KINDS)
async def line(request: pytest.FixtureRequest) -> AsyncIterator[Line]:
    Gate.reset()
    Count.reset()
    lanes = () if request.param == "grpc" else (LaneKind(request.param),)
    async with contextlib.AsyncExitStack() as stack:
        made = await stack.enter_async_context(
            plane(*INTERFACES, graphs=graphs(), event_log_size_bytes=100_000, lanes=lanes)
        )
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="of-role-"))
        settings = RoleSettings(
            role="worker",
            replica_id="worker-0",
            listen=f"unix:{folder}/role.sock",
            lanes=lanes,
            heartbeat_s=0.02,
            drain_grace_s=0.0,
        )
        server = await stack.enter_async_context(RoleServer(settings, [i() for i in ROLE_INTERFACES]))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(server.run())
        stack.callback(server.drain)
        await server.wait_ready()
        proxies = [
            await stack.enter_async_context(FaultProxy(target))
            for target in (server.identity.endpoint, *(f"unix:{path}" for _, path in server.identity.lanes))
        ]
        made_line = Line(made, server, proxies[0], proxies[1] if lanes else None)
        made_line.register()
        await eventually(lambda: made_line.is_connected)
        yield made_line


@pytest.fixture
async def client(line: Line) -> AsyncIterator[omniflow.Client]:
    async with omniflow.connect(line.made.target) as connected:
        yield connected


def numbers(events: list[Event]) -> list[int]:
    """The tokens among the events."""
    return [event.value.ids[0] for event in events if isinstance(event, Output)]  # type: ignore[union-attr]


async def test_token_stream_loses_and_doubles_nothing_when_its_socket_is_killed(
    line: Line, client: omniflow.Client
) -> None:
    events: list[Event] = []
    async for event in client.stream("count", text=str(TOKENS)):
        events.append(event)
        if len(events) % 200 == 100:
            line.used.cut()
    assert numbers(events) == list(range(TOKENS))
    assert Count.given == list(range(TOKENS)), "the activation ran once"
    assert line.used.accepted_count > 1, "there were others"
    await settled(line.made)


async def test_starts_that_are_sent_during_an_outage_run_once_each(line: Line, client: omniflow.Client) -> None:
    stream = client.stream("gate", text="g")
    async for event in stream:
        if isinstance(event, Output):
            break
    for proxy in filter(None, (line.lane, line.grpc)):
        proxy.stall()
    line.used.cut()
    waiting = [asyncio.ensure_future(client.run("words", text=f"w{i}")) for i in range(20)]
    await eventually(lambda: line.made.calls.active_count == 21)
    assert line.is_connected, "work goes on being given to the link"
    for proxy in filter(None, (line.lane, line.grpc)):
        proxy.resume()
    assert [result.text("text") for result in await asyncio.gather(*waiting)] == [f"W{i}!" for i in range(20)]
    Gate.gates["g"].set()
    assert [event.value async for event in stream if isinstance(event, Output)] == ["g"]
    await settled(line.made)


async def test_acknowledgements_and_cancels_of_an_outage_arrive(line: Line, client: omniflow.Client) -> None:
    stream = client.stream("count", text="-1")
    async for event in stream:
        if isinstance(event, Output) and len(Count.given) > 100:
            break
    line.used.cut()
    await stream.aclose()
    await settled(line.made)
    await eventually(lambda: not line.server.host.load().running)


@pytest.mark.parametrize("line", KINDS[1:], indirect=True)
async def test_lane_that_is_refused_gives_way_to_grpc_in_mid_stream(line: Line, client: omniflow.Client) -> None:
    assert line.lane is not None
    events: list[Event] = []
    async for event in client.stream("count", text=str(TOKENS)):
        events.append(event)
        if len(events) == 100:
            line.lane.is_refusing = True
            line.lane.cut()
    assert numbers(events) == list(range(TOKENS))
    assert Count.given == list(range(TOKENS))
    assert line.grpc.accepted_count == 1


async def test_outage_of_every_transport_loses_the_link_at_once(line: Line, client: omniflow.Client) -> None:
    stream = client.stream("gate", text="g")
    async for event in stream:
        if isinstance(event, Output):
            break
    line.hide()
    began = time.monotonic()
    line.used.cut()
    with pytest.raises(OmniFlowError) as caught:
        async for _ in stream:
            pass
    assert caught.value.reason is Reason.REPLICA_LOST
    assert time.monotonic() - began < session_module.SILENCE_LIMIT_S / 2, "not only when its time is over"
    line.show()
    assert (await client.run("words", text="again")).text("text") == "AGAIN!"


async def test_link_that_is_not_resumed_in_time_is_lost(
    line: Line, client: omniflow.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "SILENCE_LIMIT_S", 0.2)
    stream = client.stream("gate", text="g")
    async for event in stream:
        if isinstance(event, Output):
            break
    for proxy in filter(None, (line.lane, line.grpc)):
        proxy.stall()
    line.used.cut()
    with pytest.raises(OmniFlowError) as caught:
        async for _ in stream:
            pass
    assert caught.value.reason is Reason.REPLICA_LOST
    for proxy in filter(None, (line.lane, line.grpc)):
        proxy.resume()
    await eventually(lambda: Gate.ended == ["g"])
    await settled(line.made)


async def test_silence_over_a_live_transport_loses_the_link(
    line: Line, client: omniflow.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "SILENCE_LIMIT_S", 0.2)
    stream = client.stream("gate", text="g")
    async for event in stream:
        if isinstance(event, Output):
            break
    line.used.stall()
    with pytest.raises(OmniFlowError) as caught:
        async for _ in stream:
            pass
    assert caught.value.reason is Reason.REPLICA_LOST
    line.used.resume()
