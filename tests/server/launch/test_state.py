"""Who holds a name, and the state file."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.launch import identity
from omniflow_server.launch.state import StateFile, write_private
from omniflow_server.launch.status import FlowStatus, Phase, ProcessState, ProcessStatus, RollingStatus

STATUS = FlowStatus(
    name="default",
    flow="assistant",
    graph="graphs/assistant",
    target="127.0.0.1:7700",
    internal_target="unix:/run/x/control.sock",
    phase=Phase.READY,
    pid=os.getpid(),
    start_ticks=identity.start_ticks(os.getpid()),
    started_unix_s=1.5,
    processes=(
        ProcessStatus(name="control", role="", replica_id="", state=ProcessState.READY, pid=3, start_ticks=4),
        ProcessStatus(name="llm-0", role="llm", replica_id="llm-0", state=ProcessState.RESTARTING, restarts=2),
    ),
    targets=("127.0.0.1:7700", "127.0.0.1:7701"),
    internal_targets=("unix:/run/x/control.sock", "unix:/run/x/control-1.sock"),
    notes=("no metadata store",),
    rolling=RollingStatus(number=2, total=3, done=1, process="llm-0"),
)


def test_read_gives_back_what_was_written(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    state.write(STATUS)
    assert state.read() == STATUS
    assert state.path.stat().st_mode & 0o777 == 0o600
    state.remove()
    assert state.read() is None


def test_read_knows_a_file_of_before_there_were_several_control_planes(tmp_path: Path) -> None:
    values = json.loads(STATUS.to_json())
    for later in ("targets", "internal_targets", "notes", "rolling"):
        del values[later]
    StateFile(tmp_path).path.write_text(json.dumps(values))
    assert StateFile(tmp_path).read() == dataclasses.replace(
        STATUS, targets=(), internal_targets=(), notes=(), rolling=None
    )


def test_read_ignores_a_file_of_another_version(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    for text in ("", "[]", "{}", '{"processes": [{"state": "odd"}]}'):
        state.path.write_text(text)
        assert state.read() is None


def test_running_is_none_when_the_pid_is_used_by_another_process(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    state.write(STATUS)
    assert state.running() == STATUS
    state.write(dataclasses.replace(STATUS, start_ticks=STATUS.start_ticks + 1))
    assert state.running() is None


def test_held_refuses_a_second_holder_and_says_who_holds_it(tmp_path: Path) -> None:
    runtime = tmp_path / "default"
    runtime.mkdir()
    state = StateFile(runtime)
    with state.held():
        state.write(STATUS)
        refused = pytest.raises(OmniFlowError, match=r"'default' is taken by assistant as process \d+ on 127.0.0.1")
        with refused as caught, StateFile(runtime).held():
            pass
    assert caught.value.reason is Reason.CONFLICT
    with state.held():
        pass


def test_write_private_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_private(tmp_path / "file", "\ud800")
    assert list(tmp_path.iterdir()) == []
