"""A whole system of processes."""

from __future__ import annotations

import pytest

import omniflow
from tests.support.fault_proxy import FaultProxy
from tests.support.processes import is_running
from tests.support.system import running_system

pytestmark = pytest.mark.integration

ECHO = """
from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow.values import ValueType
from omniflow_roles.noop import Echo

graph = Graph("echo")
node = graph.node("echo", Echo, role="echo")
graph.input("text", ValueType.TEXT) >> node.inputs.text
node.text >> graph.output("text", ValueType.TEXT)
flow = Flow(name="echo", graph=graph, roles=(RolePlan(name="echo", interfaces=("noop.echo",)),))
"""

BURST = """
from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow.values import ValueType
from omniflow_roles.noop import Burst

graph = Graph("burst")
node = graph.node("burst", Burst, role="burst")
graph.input("parameters", ValueType.JSON) >> node.inputs.parameters
node.tokens >> graph.output("tokens", ValueType.TOKENS)
flow = Flow(name="burst", graph=graph, roles=(RolePlan(name="burst", interfaces=("noop.burst",)),))
"""


async def test_system_serves_its_flow_and_leaves_nothing_behind() -> None:
    async with running_system(ECHO) as system:
        async with system.connect() as client:
            assert (await client.run("echo", text="hello")).text("text") == "hello"
        pids = [process.pid for process in system.processes]
        assert set(system.memory()) == set(system.cpu()) == {"control", "echo-0"}
        folder = system.folder
    assert not any(map(is_running, pids))
    assert not folder.exists()


async def test_system_serves_again_after_its_role_was_restarted() -> None:
    async with running_system(ECHO) as system, system.connect() as client:
        await client.run("echo", text="before")
        system.role("echo-0").restart()
        assert (await client.run("echo", text="after")).text("text") == "after"


async def test_system_hosts_interfaces_of_a_test() -> None:
    flow = ECHO.replace(
        "from omniflow_roles.noop import Echo", "from tests.support_tests.interfaces import Shout as Echo"
    )
    flow = flow.replace("noop.echo", "test.shout")
    async with (
        running_system(flow, interfaces={"test.shout": "tests.support_tests.interfaces:Shout"}) as system,
        system.connect() as client,
    ):
        assert (await client.run("echo", text="hello")).text("text") == "HELLO"


async def test_system_behind_a_proxy_that_is_cut_loses_and_doubles_no_event() -> None:
    async with (
        running_system(BURST) as system,
        FaultProxy(system.target) as proxy,
        omniflow.connect(proxy.target) as client,
    ):
        ids: list[int] = []
        proxy.cut_after(20_000)
        async for event in client.stream("burst", parameters={"count": 3000}):
            if isinstance(event, omniflow.Output):
                assert isinstance(event.value, omniflow.Tokens)
                ids.extend(event.value.ids)
        assert ids == list(range(3000))
        assert proxy.accepted_count == 2


async def test_system_takes_settings_of_the_control_plane() -> None:
    async with running_system(settings={"max_calls": 7}) as system:
        assert '"max_calls": 7' in (system.folder / "control.json").read_text()
        async with system.connect() as client:
            assert await client.graphs() == []


async def test_system_whose_role_cannot_start_says_why() -> None:
    flow = ECHO.replace('interfaces=("noop.echo",)', 'interfaces=("noop.ecco",)')
    with pytest.raises(RuntimeError, match=r"echo-0 has ended with status 2"):
        async with running_system(flow):
            pass
