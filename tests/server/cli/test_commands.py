"""Commands that need no process: what they print, and their status."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from importlib import metadata

import pytest
from google.protobuf import json_format

from omniflow import flow_loading as flows
from omniflow.process import runtime_dir
from omniflow_server.launch import identity
from omniflow_server.launch.state import StateFile
from omniflow_server.launch.status import FlowStatus, Phase, ProcessState, ProcessStatus
from tests.server.cli.command import CommandLine

GOOD = """
from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow.interface import Field, Interface, groups
from omniflow.values import ValueType

class Echo(Interface):
    name = "{interface}"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {{"text": Field(ValueType.TEXT)}}

graph = Graph("echo")
node = graph.node("echo", Echo, role="echo")
graph.input("text", ValueType.TEXT) >> node.inputs.text
node.text >> graph.output("text", ValueType.TEXT)
flow = Flow(name="echo", graph=graph, roles=(RolePlan(name="echo", interfaces=(Echo.name,), environment="{environment}"),))
"""
STATUS = FlowStatus(
    name="default",
    flow="echo",
    graph="graphs/echo",
    target="127.0.0.1:1",
    internal_target="127.0.0.1:1",
    phase=Phase.READY,
    pid=os.getpid(),
    start_ticks=identity.start_ticks(os.getpid()),
    started_unix_s=0.0,
    processes=(ProcessStatus(name="control", role="", replica_id="", state=ProcessState.READY),),
)


def flow_file(omniflow: CommandLine, *, interface: str = "test.echo", environment: str = "base") -> str:
    (omniflow.folder / "flow.py").write_text(GOOD.format(interface=interface, environment=environment))
    return "flow.py"


def register_interface(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    point = metadata.EntryPoint(name=name, value="nowhere:nothing", group="omniflow.interfaces")
    monkeypatch.setattr("omniflow.discovery.entry_points", lambda group: [point])


def test_help_teaches_the_first_steps(omniflow: CommandLine) -> None:
    outcome = omniflow("--help")
    assert outcome.status == 0
    assert "omniflow up assistant --detach" in outcome.out
    assert "--out answer.wav keeps its speech" in outcome.out


@pytest.mark.parametrize(
    "command",
    [("up",), ("status",), ("down",), ("ask",), ("demo",), ("serve",), ("graph", "check"), ("config", "show")],
)
def test_help_of_each_command_has_examples(command: tuple[str, ...], omniflow: CommandLine) -> None:
    outcome = omniflow(*command, "--help")
    assert outcome.status == 0
    assert "Examples" in outcome.out
    assert f"omniflow {' '.join(command)}" in outcome.out


def test_an_unknown_option_is_misuse(omniflow: CommandLine) -> None:
    outcome = omniflow("status", "--jsn")
    assert outcome.status == 2
    assert "--json" in outcome.err


def test_config_show_prints_values_and_sources(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    (omniflow.folder / "omniflow.toml").write_text("[control]\nmax_calls = 7\n")
    monkeypatch.setenv("OMNIFLOW_ENVIRONMENTS_TORCH", "/opt/torch/python")
    lines = omniflow("config", "show", "--set", "control.resume_key=c0ffee").out.splitlines()
    table = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert table["control.max_calls"] == ["7", "omniflow.toml:2"]
    assert table["control.resume_key"] == ["(set)", "--set"]
    assert table["environments.torch"] == ["/opt/torch/python", "OMNIFLOW_ENVIRONMENTS_TORCH"]
    assert table["file:"] == ["omniflow.toml"]


def test_config_show_as_json_names_the_variables(omniflow: CommandLine) -> None:
    settings = json.loads(omniflow("config", "show", "--json").out)
    assert settings[0] == {
        "key": "control.listen",
        "value": "127.0.0.1:7700",
        "source": "default",
        "variable": "OMNIFLOW_CONTROL_LISTEN",
    }


def test_config_show_reports_every_mistake_without_a_traceback(omniflow: CommandLine) -> None:
    (omniflow.folder / "omniflow.toml").write_text("[control]\nlistn = 'x'\nmax_calls = -1\n")
    outcome = omniflow("config", "show")
    assert outcome.status == 2
    assert "error: control.listn: unknown key (omniflow.toml:2); did you mean control.listen?" in outcome.err
    assert "control.max_calls: -1 is not a whole number that is 0 or more (omniflow.toml:3)" in outcome.err
    assert "Traceback" not in outcome.err


def test_graph_check_accepts_a_good_graph(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    file = flow_file(omniflow)
    register_interface(monkeypatch, "test.echo")
    outcome = omniflow("graph", "check", file)
    assert (outcome.status, outcome.out) == (0, "graphs/echo can run: 1 nodes, 2 edges\n")


def test_graph_check_says_what_would_fix_a_graph(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    file = flow_file(omniflow)
    assert omniflow("graph", "check", file).status == 0, "a flow file brings its own interfaces"
    register_interface(monkeypatch, "test.echoes")
    spec = flows.load_graph(str(omniflow.folder / file)).spec()
    (omniflow.folder / "graph.json").write_text(json_format.MessageToJson(spec))
    outcome = omniflow("graph", "check", "graph.json")
    assert outcome.status == 1
    assert "UNKNOWN_INTERFACE graph.nodes[0].interface" in outcome.out
    assert "Did you mean 'test.echoes'?" in outcome.out


def test_graph_check_says_what_is_wrong_with_the_roles_of_a_flow(omniflow: CommandLine) -> None:
    file = flow_file(omniflow, environment="elsewhere")
    assert omniflow("graph", "check", file).status == 0, "environments are the machine's"
    path = omniflow.folder / "broken.py"
    path.write_text(
        (omniflow.folder / file).read_text().replace('RolePlan(name="echo"', 'RolePlan(name="ecko", replicas=0')
    )
    outcome = omniflow("graph", "check", "broken.py")
    assert outcome.status == 1
    assert "INVALID_CONFIG role ecko\n  needs at least one replica" in outcome.out
    assert "INVALID_CONFIG node echo\n  no role of the flow is named 'echo'" in outcome.out
    assert omniflow("graph", "check", "broken.py:graph").status == 0, "a graph alone has no roles"


def test_graph_check_reads_a_graph_spec_as_json(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = flows.load_graph(str(omniflow.folder / flow_file(omniflow))).spec()
    register_interface(monkeypatch, "test.echo")
    (omniflow.folder / "graph.json").write_text(json_format.MessageToJson(spec))
    assert omniflow("graph", "check", "graph.json").status == 0
    (omniflow.folder / "graph.json").write_text('{"nodez": []}')
    outcome = omniflow("graph", "check", "graph.json")
    assert outcome.status == 2
    assert 'no field named "nodez"' in outcome.err


def test_graph_explain_prints_the_plan(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    file = flow_file(omniflow)
    register_interface(monkeypatch, "test.echo")
    outcome = omniflow("graph", "explain", file)
    assert outcome.status == 0
    assert "node   echo: test.echo (role echo)" in outcome.out


def test_up_names_the_environment_that_is_missing(omniflow: CommandLine) -> None:
    outcome = omniflow("up", flow_file(omniflow, environment="torch"), "--listen", "127.0.0.1:0")
    assert outcome.status == 2
    assert "set OMNIFLOW_ENVIRONMENTS_TORCH=/path/to/python" in outcome.err


def test_up_refuses_an_address_that_is_taken(omniflow: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"127.0.0.1:{server.getsockname()[1]}"
        outcome = omniflow("up", flow_file(omniflow), "--listen", target)
    assert outcome.status == 2
    assert f"cannot listen on '{target}': another process listens there" in outcome.err


@pytest.mark.parametrize("target", ["7700", "localhost", "localhost:x", "127.0.0.1:99999", "no.such.host.invalid:1"])
def test_up_refuses_an_address_that_is_none(target: str, omniflow: CommandLine) -> None:
    outcome = omniflow("up", flow_file(omniflow), "--listen", target)
    assert outcome.status == 2
    assert f"cannot listen on '{target}'" in outcome.err


def test_up_refuses_a_name_that_is_taken(omniflow: CommandLine) -> None:
    state = StateFile(runtime_dir("default"))
    with state.held():
        state.write(STATUS)
        for detach in ((), ("--detach",)):
            outcome = omniflow("up", flow_file(omniflow), *detach)
            assert outcome.status == 1
            assert f"'default' is taken by echo as process {os.getpid()}" in outcome.err


def test_status_says_that_nothing_runs(omniflow: CommandLine) -> None:
    outcome = omniflow("status", "--name", "other")
    assert (outcome.status, outcome.out) == (1, "nothing runs under the name 'other'\n")
    assert json.loads(omniflow("status", "--json").out) == {"name": "default", "is_running": False, "error": ""}


def test_status_says_why_the_last_run_failed(omniflow: CommandLine) -> None:
    failed = dataclasses.replace(STATUS, pid=1, start_ticks=1, phase=Phase.FAILED, error="llm-0 died 5 times")
    StateFile(runtime_dir("default")).write(failed)
    assert "the last run failed: llm-0 died 5 times" in omniflow("status").out


def test_status_shows_what_runs_though_nothing_answers(omniflow: CommandLine) -> None:
    StateFile(runtime_dir("default")).write(STATUS)
    outcome = omniflow("status")
    assert outcome.status == 0
    assert "graphs/echo on 127.0.0.1:1: not serving" in outcome.out
    assert "silent" in outcome.out
    values = json.loads(omniflow("status", "--json").out)
    assert (values["is_running"], values["is_serving"]) == (True, False)
    assert values["processes"][0]["replica_state"] == "SILENT"


def test_down_without_anything_to_stop_is_no_error(omniflow: CommandLine) -> None:
    outcome = omniflow("down")
    assert (outcome.status, outcome.out) == (0, "nothing runs under the name 'default'\n")


def test_ask_without_a_server_says_how_to_start_one(omniflow: CommandLine) -> None:
    outcome = omniflow("ask", "Why?")
    assert outcome.status == 2
    assert "start it with `omniflow up assistant --detach`, or name a server with --target" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a question"),
        (("--audio", "absent.wav"), "there is no file absent.wav"),
        (("Why?", "--out", "absent/answer.wav"), "there is no folder absent"),
    ],
)
def test_ask_refuses_what_cannot_work(arguments: tuple[str, ...], message: str, omniflow: CommandLine) -> None:
    outcome = omniflow("ask", *arguments)
    assert outcome.status == 2
    assert message in outcome.err
