"""Checks of what the operator has set, each also where it is wrong."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path

import pytest

from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow_core.errors import OmniFlowError
from omniflow_server import config
from omniflow_server.config import Settings
from omniflow_server.control.settings import ControlSettings
from omniflow_server.launch.doctor import configuration
from omniflow_server.launch.doctor.findings import Verdict
from omniflow_server.launch.settings import SupervisorSettings
from omniflow_server.launch.state import StateFile
from tests.server.launch.test_state import STATUS


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIFLOW_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


def flow(*roles: RolePlan) -> Flow:
    return Flow(name="some", graph=Graph("some"), roles=roles)


def listening_on(target: str) -> Settings:
    return Settings(control=ControlSettings(listen=target))


def test_settings_say_where_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "omniflow.toml"
    file.write_text("[control]\nmax_calls = 7\nmax_payload_bytes = 9\n")
    flags = [config.settings_flag("control.drain_timeout_s=1")]
    given = config.load(file=file, environ={"OMNIFLOW_CONTROL_LISTEN": "127.0.0.1:1"}, flags=flags)
    finding = configuration.valid_settings(given)
    assert finding.verdict is Verdict.OK
    assert finding.found == f"4 from --set, {file}, OMNIFLOW_CONTROL_LISTEN; the rest are defaults"
    assert configuration.valid_settings(config.load(environ={"OMNIFLOW_CONFIG": ""})).found == "defaults"


def test_settings_that_mean_nothing_together_fail(tmp_path: Path) -> None:
    file = tmp_path / "omniflow.toml"
    file.write_text('[control]\nreplicas = ["llm=10.0.0.7:7800", "bad"]\n')
    finding = configuration.valid_settings(config.load(file=file, environ={}))
    assert finding.verdict is Verdict.FAILED
    assert "control.replicas[1]" in finding.found


def test_settings_that_are_refused_fail_with_every_mistake() -> None:
    flags = [config.settings_flag("control.listn=x"), config.settings_flag("control.max_calls=-1")]
    with pytest.raises(OmniFlowError) as caught:
        config.load(environ={}, flags=flags)
    finding = configuration.refused_settings(caught.value)
    assert finding.verdict is Verdict.FAILED
    assert "control.listn: unknown key" in finding.found
    assert "control.max_calls: '-1' is not a whole number" in finding.found


def test_runtime_folder_is_made_and_measured(runtime: Path) -> None:
    finding = configuration.runtime_folder(Settings(), "default", flow(RolePlan(name="llm", interfaces=(), replicas=2)))
    assert finding.verdict is Verdict.OK
    assert finding.found.startswith(f"{runtime}/default, 0700; its longest socket has ")
    assert (runtime / "default").stat().st_mode & 0o777 == 0o700


def test_runtime_folder_that_others_can_enter_fails(runtime: Path) -> None:
    runtime.mkdir(mode=0o755)
    finding = configuration.runtime_folder(Settings(), "default")
    assert finding.verdict is Verdict.FAILED
    assert "nobody else can enter (mode 0700)" in finding.found
    assert "OMNIFLOW_RUNTIME_DIR" in finding.remedy


def test_runtime_folder_whose_path_is_too_long_for_a_replica_fails(runtime: Path) -> None:
    room = 107 - len(f"{runtime}/default/-0.sock")
    fits, too_long = (flow(RolePlan(name="r" * size, interfaces=())) for size in (room, room + 1))
    assert configuration.runtime_folder(Settings(), "default", fits).verdict is Verdict.OK
    finding = configuration.runtime_folder(Settings(), "default", too_long)
    assert finding.verdict is Verdict.FAILED
    assert "has 108 bytes, a socket's path at most 107" in finding.found


def test_runtime_folder_that_cannot_be_made_fails(runtime: Path) -> None:
    runtime.parent.joinpath("file").touch()
    settings = Settings(supervisor=SupervisorSettings(runtime_dir=str(runtime.parent / "file" / "run")))
    assert configuration.runtime_folder(settings, "default").verdict is Verdict.FAILED


def test_addresses_that_are_free_are_well() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"127.0.0.1:{server.getsockname()[1]}"
    finding = configuration.addresses(listening_on(target), [])
    assert (finding.verdict, finding.found) == (Verdict.OK, target)


def test_addresses_that_another_process_holds_fail() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"127.0.0.1:{server.getsockname()[1]}"
        finding = configuration.addresses(listening_on(target), [STATUS])
    assert finding.verdict is Verdict.FAILED
    assert f"cannot listen on '{target}': another process listens there" in finding.found


def test_addresses_that_a_flow_of_ours_holds_are_well() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"127.0.0.1:{server.getsockname()[1]}"
        ours = dataclasses.replace(STATUS, name="demo", targets=(target,))
        finding = configuration.addresses(listening_on(target), [ours])
    assert (finding.verdict, finding.found) == (Verdict.OK, f"{target} (of the running flow 'demo')")


def test_addresses_of_every_control_plane_are_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        settings = Settings(
            control=ControlSettings(listen="127.0.0.1:0", internal_listen=f"127.0.0.1:{taken - 1}"),
            supervisor=SupervisorSettings(control_planes=2),
        )
        finding = configuration.addresses(settings, [])
    assert finding.verdict is Verdict.FAILED
    assert f"127.0.0.1:{taken}" in finding.found


def test_running_flows_are_those_whose_supervisor_lives(runtime: Path) -> None:
    for name, ticks in (("alive", STATUS.start_ticks), ("dead", STATUS.start_ticks + 1)):
        folder = runtime / name
        folder.mkdir(parents=True, mode=0o700)
        StateFile(folder).write(dataclasses.replace(STATUS, name=name, start_ticks=ticks))
    assert configuration.running_flows(Settings()) == [], "others can enter the folder"
    runtime.chmod(0o700)
    assert [status.name for status in configuration.running_flows(Settings())] == ["alive"]


def test_flow_whose_roles_cannot_run_fails() -> None:
    finding = configuration.roles_of(flow(RolePlan(name="llm", interfaces=(), replicas=0)))
    assert (finding.verdict, finding.found) == (Verdict.FAILED, "role llm: needs at least one replica")
    assert configuration.roles_of(flow()).found == "some: 0 roles, 0 replicas"
