"""`omniflow restart`: what it shows of a rolling restart, and its status."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

import pytest

from omniflow.process import runtime_dir
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.cli import restart
from omniflow_server.launch import identity
from omniflow_server.launch.state import StateFile
from omniflow_server.launch.status import FlowStatus, Phase, ProcessState, ProcessStatus, RollingStatus
from tests.server.cli.command import CommandLine

RUNNING = FlowStatus(
    name="default",
    flow="echo",
    graph="graphs/echo",
    target="127.0.0.1:1",
    internal_target="127.0.0.1:1",
    phase=Phase.READY,
    pid=os.getpid(),
    start_ticks=identity.start_ticks(os.getpid()),
    started_unix_s=0.0,
    processes=tuple(
        ProcessStatus(name=name, role=role, replica_id="", state=ProcessState.READY)
        for name, role in (("store", ""), ("control-0", ""), ("control-1", ""), ("llm-0", "llm"))
    ),
    targets=("127.0.0.1:1", "127.0.0.1:2"),
    internal_targets=("127.0.0.1:1", "127.0.0.1:2"),
)


def rolling(done: int, process: str, error: str = "", number: int = 3) -> RollingStatus:
    return RollingStatus(number=number, total=2, done=done, process=process, error=error)


@pytest.fixture
def play(omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Plays a supervisor: it takes the request, and each look at the state file shows the next of these."""

    def script(*seen: RollingStatus | None) -> None:
        state = StateFile(runtime_dir("default"))
        state.write(RUNNING)
        left = list(seen)

        def show_next(delay_s: float) -> None:
            if left:
                following = left.pop(0)
                state.write(dataclasses.replace(RUNNING, rolling=following)) if following else state.remove()

        def ask(runtime: object, only: str) -> int:
            show_next(0)
            return 3

        monkeypatch.setattr(restart, "ask_restart", ask)
        monkeypatch.setattr(restart.time, "sleep", show_next)

    return script


def test_restart_prints_a_line_per_process(omniflow: CommandLine, play: Callable[..., None]) -> None:
    play(rolling(0, "llm-0"), rolling(0, "llm-0"), rolling(1, "llm-0"), rolling(1, "control"), rolling(2, "control"))
    outcome = omniflow("restart")
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        *("llm-0: restarting (1 of 2)", "control: restarting (2 of 2)", "restarted 2 processes")
    ]


def test_restart_fails_with_the_process_that_does_not_come_back(
    omniflow: CommandLine, play: Callable[..., None]
) -> None:
    play(rolling(0, "llm-0"), rolling(0, "llm-0", error="llm-0 does not come back: it ended with status 7"))
    outcome = omniflow("restart", "default", "--only", "llm")
    assert outcome.status == 1
    assert "error: llm-0 does not come back: it ended with status 7" in outcome.err


def test_restart_fails_when_its_supervisor_ends(omniflow: CommandLine, play: Callable[..., None]) -> None:
    play(rolling(0, "llm-0"), None)
    outcome = omniflow("restart")
    assert outcome.status == 1
    assert "the supervisor ended before it had restarted everything" in outcome.err


def test_restart_fails_when_another_has_begun_since(omniflow: CommandLine, play: Callable[..., None]) -> None:
    play(rolling(0, "llm-0", number=4))
    outcome = omniflow("restart")
    assert outcome.status == 1
    assert "another rolling restart has begun since" in outcome.err


def test_restart_says_what_the_supervisor_refuses(
    omniflow: CommandLine, play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(runtime: object, only: str) -> int:
        raise OmniFlowError(Reason.UNKNOWN_RESOURCE, f"no role is named {only!r}")

    play()
    monkeypatch.setattr(restart, "ask_restart", refuse)
    outcome = omniflow("restart", "--only", "ecko")
    assert (outcome.status, outcome.err) == (1, "error: no role is named 'ecko'\n")


def test_restart_of_nothing_says_so(omniflow: CommandLine) -> None:
    outcome = omniflow("restart", "other")
    assert outcome.status == 1
    assert "nothing runs under the name 'other'" in outcome.err


def test_restart_of_a_supervisor_that_does_not_answer_says_so(omniflow: CommandLine) -> None:
    StateFile(runtime_dir("default")).write(RUNNING)
    outcome = omniflow("restart")
    assert outcome.status == 1
    assert "the supervisor does not answer" in outcome.err


def test_restart_help_says_what_it_does_not_reload(omniflow: CommandLine) -> None:
    text = " ".join(omniflow("restart", "--help").out.replace("│", " ").split())
    assert "omniflow restart experiment --only llm" in text
    assert "The supervisor itself goes on with the code, the settings and the roles that it was started with" in text


def test_status_shows_a_rolling_restart_and_every_control_plane(omniflow: CommandLine) -> None:
    StateFile(runtime_dir("default")).write(
        dataclasses.replace(RUNNING, phase=Phase.RESTARTING, rolling=rolling(1, "llm-0"), notes=("no metadata store",))
    )
    lines = omniflow("status").out.splitlines()
    assert lines[0] == "graphs/echo on 127.0.0.1:1, 127.0.0.1:2: not serving"
    assert lines[2:4] == ["restarting 2 of 2: llm-0", "no metadata store"]
    states = {line.split()[0]: line.split()[2] for line in lines if line.split()[1:2] == ["ready"]}
    assert states == {"store": "answering", "control-0": "silent", "control-1": "silent", "llm-0": "unknown"}


def test_status_shows_why_a_rolling_restart_stopped(omniflow: CommandLine) -> None:
    error = "llm-0 does not come back: it ended with status 7\nits log: x"
    StateFile(runtime_dir("default")).write(dataclasses.replace(RUNNING, rolling=rolling(0, "llm-0", error)))
    assert "the rolling restart stopped: llm-0 does not come back: it ended with status 7\n" in omniflow("status").out
