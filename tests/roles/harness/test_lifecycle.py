"""Setup, teardown, and one loop per process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.role.v1 import role_registry_service_pb2 as messages
from omniflow.values import ValueType
from omniflow_core.errors import OmniFlowError
from omniflow_roles.harness.replica import State
from omniflow_roles.harness.role_server import RoleServer
from omniflow_roles.harness.settings import RoleSettings
from omniflow_roles.noop import Echo
from tests.roles.driver import kinds
from tests.roles.registry import FakeRegistry, registering, target_of
from tests.roles.running import driving, eventually, running


class Base(Interface):
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"text": Field(ValueType.TEXT)}

    def __init__(self, diary: list[str]) -> None:
        self.diary = diary

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"text": inputs["text"]}


class Blocking(Base):
    name = "test.blocking"

    def setup(self) -> None:
        self.diary.append("blocking up")

    def teardown(self) -> None:
        self.diary.append("blocking down")
        raise RuntimeError("the next one is torn down all the same")


class Awaiting(Base):
    name = "test.awaiting"

    async def setup(self) -> None:
        self.diary.append("awaiting up")

    async def teardown(self) -> None:
        self.diary.append("awaiting down")


class Broken(Base):
    name = "test.broken"

    async def setup(self) -> None:
        raise OSError("no weights")


async def test_interfaces_are_set_up_in_order_and_torn_down_in_reverse(tmp_path: Path) -> None:
    diary: list[str] = []
    async with driving(tmp_path, Awaiting(diary), Blocking(diary)) as (_, driver):
        assert diary == ["awaiting up", "blocking up"]
        await driver.start(1, "test.blocking", {"text": "hi"})
        assert kinds(await driver.finish(1))[-1] == "completed"
    assert diary == ["awaiting up", "blocking up", "blocking down", "awaiting down"]


async def test_setup_that_fails_ends_the_replica_and_tears_down_what_was_up(tmp_path: Path) -> None:
    diary: list[str] = []
    settings = RoleSettings(role="r", replica_id="r-0", listen=f"unix:{tmp_path}/role.sock")
    async with RoleServer(settings, [Awaiting(diary), Broken(diary), Blocking(diary)]) as server, asyncio.timeout(5):
        assert await server.run() is False
    assert diary == ["awaiting up", "awaiting down"]


async def test_same_interface_twice_is_refused(tmp_path: Path) -> None:
    settings = RoleSettings(role="r", replica_id="r-0", listen=f"unix:{tmp_path}/role.sock")
    with pytest.raises(OmniFlowError, match="twice"):
        async with RoleServer(settings, [Echo(), Echo()]):
            pass
    async with running(tmp_path, Echo()):  # what was half started is gone
        pass


async def test_role_server_in_a_second_loop_of_the_process_is_refused(tmp_path: Path) -> None:
    async def serve_elsewhere() -> None:
        settings = RoleSettings(role="r", replica_id="r-1", listen=f"unix:{tmp_path}/other.sock")
        async with RoleServer(settings, [Echo()]):
            pass

    async with running(tmp_path, Echo()):
        with pytest.raises(RuntimeError, match="one loop per process"):
            await asyncio.to_thread(asyncio.run, serve_elsewhere())


async def test_replica_that_left_does_not_register_again(tmp_path: Path) -> None:
    """The registry may answer the last keep-alives with "register again": the lease is gone, after all."""

    class Forgets(FakeRegistry):
        async def KeepAlive(self, requests: Any, context: Any) -> Any:
            async for report in requests:
                self.reports.append(report)
                if self.deregistered:
                    return
                yield messages.KeepAliveResponse()

    async with registering(tmp_path, Forgets(lease_ttl_s=0.05)) as registry:
        async with running(tmp_path, Echo(), registry=target_of(tmp_path)) as server:
            await eventually(lambda: registry.reports)
            server.drain()
        assert registry.deregistered == ["lease-1"]
        assert len(registry.registered) == 1


async def test_setup_that_ends_during_a_drain_does_not_make_the_replica_ready(tmp_path: Path) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()
    states: list[State] = []

    class Slow(Base):
        name = "test.slow"

        async def setup(self) -> None:
            entered.set()
            await gate.wait()

    class LetsItEnd(FakeRegistry):
        async def DeregisterReplica(self, request: messages.DeregisterReplicaRequest, context: Any) -> Any:
            gate.set()
            for _ in range(100):  # turns of the loop in which the setup could go on
                await asyncio.sleep(0)
                states.append(server.host.state)
            return await super().DeregisterReplica(request, context)

    async with (
        registering(tmp_path, LetsItEnd()) as registry,
        running(tmp_path, Slow([]), registry=target_of(tmp_path), wait_ready=False) as server,
    ):
        await eventually(lambda: entered.is_set() and registry.reports)
        server.drain(0.0)
        await eventually(lambda: registry.deregistered)
    assert set(states) == {State.DRAINING}
