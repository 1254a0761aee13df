"""From a flow to the processes that serve it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow.interface import Field, Interface, groups
from omniflow.links.port import LaneKind
from omniflow.values import ValueType
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.config import Settings
from omniflow_server.control.settings import ControlSettings
from omniflow_server.launch.plan import LaunchPlan, plan_launch
from omniflow_server.launch.settings import SupervisorSettings
from omniflow_server.launch.status import ProcessKind
from omniflow_server.launch.store import IN_MEMORY, StoreChoice, StoreKind

RUNTIME = Path("/run/omniflow/default")


class Echo(Interface):
    name = "test.echo"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs: ClassVar[Mapping[str, Field]] = {"text": Field(ValueType.TEXT)}


def flow(*roles: RolePlan) -> Flow:
    graph = Graph("echo")
    node = graph.node("echo", Echo, role="echo")
    graph.input("text", ValueType.TEXT) >> node.inputs.field("text")
    node.output("text") >> graph.output("text", ValueType.TEXT)
    return Flow(name="echo", graph=graph, roles=roles)


ECHO = RolePlan(name="echo", interfaces=("test.echo", "test.other"), env={"LOUD": "1"})


EMBEDDED = StoreChoice(
    kind=StoreKind.EMBEDDED,
    url=f"unix://{RUNTIME}/store.sock",
    argv=("/usr/bin/python", "-m", "store"),
    folder=RUNTIME / "store",
    socket=RUNTIME / "store.sock",
)


def plan(
    *roles: RolePlan, settings: Settings | None = None, runtime: Path = RUNTIME, store: StoreChoice = IN_MEMORY
) -> LaunchPlan:
    return plan_launch(
        flow(*roles),
        "echo",
        settings or Settings(),
        name="default",
        runtime=runtime,
        python="/usr/bin/python",
        store=store,
    )


def test_plan_puts_the_control_plane_first_and_hands_it_the_flow() -> None:
    launch = plan(ECHO)
    control = launch.processes[0]
    assert control.argv == ("/usr/bin/python", "-m", "omniflow_server.launch.control", str(RUNTIME / "control.json"))
    assert (control.name, control.role) == ("control", "")
    assert launch.controls[0].settings.flows == ("echo",)
    assert launch.controls[0].settings.internal_listen == launch.internal_target == f"unix:{RUNTIME}/control.sock"
    assert launch.controls[0].settings_file == RUNTIME / "control.json"
    assert launch.graph == "graphs/echo"
    assert launch.targets == (launch.target,) == (ControlSettings().listen,)


def test_plan_starts_several_control_planes_that_every_role_knows() -> None:
    launch = plan(ECHO, settings=Settings(supervisor=SupervisorSettings(control_planes=2)))
    first, second, role = launch.processes
    assert [process.name for process in launch.processes] == ["control-0", "control-1", "echo-0"]
    assert [process.argv[-1] for process in (first, second)] == [
        str(RUNTIME / "control-0.json"),
        str(RUNTIME / "control-1.json"),
    ]
    assert (second.kind, second.log) == (ProcessKind.CONTROL, RUNTIME / "logs" / "control-1.log")
    assert launch.targets == ("127.0.0.1:7700", "127.0.0.1:7701")
    assert launch.internal_targets == (f"unix:{RUNTIME}/control.sock", f"unix:{RUNTIME}/control-1.sock")
    assert role.argv[role.argv.index("--registry") + 1] == ",".join(launch.internal_targets)


def test_plan_puts_a_store_of_its_own_first() -> None:
    launch = plan(ECHO, store=EMBEDDED)
    store = launch.processes[0]
    assert [process.name for process in launch.processes] == ["store", "control", "echo-0"]
    assert (store.kind, store.role, store.argv) == (ProcessKind.STORE, "", EMBEDDED.argv)
    assert (store.socket, store.folder) == (RUNTIME / "store.sock", RUNTIME / "store")
    assert launch.controls[0].settings.metadata_url == f"unix://{RUNTIME}/store.sock"
    assert (launch.processes[1].env, launch.notes) == ({}, ())


def test_plan_hands_an_external_store_on_and_starts_none() -> None:
    launch = plan(ECHO, store=StoreChoice(kind=StoreKind.EXTERNAL, url="redis://db:6379/0"))
    assert [process.name for process in launch.processes] == ["control", "echo-0"]
    assert launch.controls[0].settings.metadata_url == "redis://db:6379/0"


def test_plan_without_a_store_hides_that_of_the_machine() -> None:
    launch = plan(ECHO, store=StoreChoice(note="no metadata store"))
    assert launch.processes[0].env == {"REDIS_URL": "", "REDIS_HOST": ""}
    assert launch.notes == ("no metadata store",)


@pytest.mark.parametrize(("given", "expected"), [("default", "second"), ("mine", "mine")])
def test_plan_keeps_flows_of_two_names_apart_in_one_store(given: str, expected: str) -> None:
    settings = Settings(control=ControlSettings(metadata_namespace=given))
    launch = plan_launch(flow(ECHO), "echo", settings, name="second", runtime=RUNTIME, python="/usr/bin/python")
    assert launch.controls[0].settings.metadata_namespace == expected


def test_plan_gives_each_replica_its_command_socket_log_and_environment() -> None:
    role = plan(ECHO).processes[1]
    assert role.argv == (
        *("/usr/bin/python", "-m", "omniflow_roles", "serve", "--role", "echo", "--replica-id", "echo-0"),
        *("--interfaces", "test.echo,test.other", "--registry", f"unix:{RUNTIME}/control.sock"),
        *("--listen", f"unix:{RUNTIME}/echo-0.sock", "--lanes", "unix-frames"),
        *("--max-activations", "256", "--drain-grace", "30"),
    )
    assert (role.log, role.env) == (RUNTIME / "logs" / "echo-0.log", {"LOUD": "1"})
    assert (role.role, role.replica_id) == ("echo", "echo-0")


@pytest.mark.parametrize(("lanes", "given"), [((), ""), (tuple(LaneKind), "unix-frames,zmq-ipc")])
def test_roles_listen_on_the_lanes_that_the_control_plane_takes(lanes: tuple[LaneKind, ...], given: str) -> None:
    role = plan(ECHO, settings=Settings(control=ControlSettings(lanes=lanes))).processes[1]
    assert role.argv[role.argv.index("--lanes") + 1] == given


def test_plan_numbers_the_replicas() -> None:
    launch = plan(RolePlan(name="echo", interfaces=("test.echo",), replicas=3))
    assert [process.name for process in launch.processes] == ["control", "echo-0", "echo-1", "echo-2"]


def test_plan_takes_the_interpreter_of_the_roles_environment() -> None:
    role = RolePlan(name="echo", interfaces=("test.echo",), environment="torch")
    settings = Settings(environments={"torch": "/opt/torch/python", "base": "/opt/base/python"})
    assert plan(role, settings=settings).processes[1].argv[0] == "/opt/torch/python"
    assert plan(ECHO, settings=settings).processes[1].argv[0] == "/opt/base/python"


def test_plan_gives_the_control_plane_time_to_drain() -> None:
    launch = plan(ECHO, settings=Settings(control=ControlSettings(drain_timeout_s=30)))
    assert [process.stop_grace_s for process in launch.processes] == [40.0, 40.0]


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ((), "node echo: no role of the flow is named 'echo'"),
        ((RolePlan(name="echo", interfaces=("x",)),), "the role 'echo' does not serve the interface 'test.echo'"),
        ((ECHO, ECHO), "role echo: the name is taken"),
        ((ECHO, ECHO, RolePlan(name="b", interfaces=(), replicas=0)), r"role echo: the name is taken.*\(and 1 more\)"),
        ((ECHO, RolePlan(name="control", interfaces=())), "role control: the name is taken"),
        ((ECHO, RolePlan(name="store", interfaces=())), "role store: the name is taken"),
        ((RolePlan(name="echo", interfaces=("test.echo",), replicas=0),), "needs at least one replica"),
        (
            (RolePlan(name="echo", interfaces=("test.echo",), environment="torch"),),
            "environment 'torch' of the roles echo has no interpreter; set OMNIFLOW_ENVIRONMENTS_TORCH=/path/to/python",
        ),
    ],
)
def test_plan_refuses_a_flow_that_cannot_run(roles: tuple[RolePlan, ...], message: str) -> None:
    with pytest.raises(OmniFlowError, match=message) as caught:
        plan(*roles)
    assert caught.value.reason is Reason.INVALID_CONFIG


def test_plan_refuses_a_runtime_folder_too_long_for_sockets() -> None:
    with pytest.raises(OmniFlowError, match="set OMNIFLOW_RUNTIME_DIR to a shorter one"):
        plan(ECHO, runtime=Path("/" + "x" * 100))
