"""`omniflow up` with real processes: a control plane and roles of noop interfaces."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import omniflow
from omniflow.events import Event, Finished, Output
from omniflow.values import Json
from omniflow_core.errors import Code, OmniFlowError, Reason
from omniflow_server.launch import identity
from omniflow_server.launch.state import StateFile
from omniflow_server.launch.status import FlowStatus, Phase
from tests.server.launch.installed import TINY, Installed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

# A process that was killed is started again within this time; then it has to start, on a machine that may be busy.
REPLACED_WITHIN_S = 2.0
START_S = 20.0


@pytest.fixture
def command() -> Iterator[Installed]:
    """The command, in a folder short enough for sockets; what it started is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="of-") as folder:
        installed = Installed(folder=Path(folder))
        try:
            yield installed
        finally:
            installed("down")


@pytest.fixture
def running(command: Installed) -> Installed:
    """The command after `omniflow up --detach`."""
    command("up", TINY, "--detach", "--listen", "127.0.0.1:0")
    return command


def state(command: Installed) -> FlowStatus:
    status = StateFile(command.folder / "run" / "default").read()
    assert status is not None
    return status


async def until(command: Installed, phase: Phase, *, within_s: float) -> FlowStatus:
    """Waits until the supervisor has reached a phase."""
    deadline_s = time.monotonic() + within_s
    while (status := state(command)).phase is not phase:
        assert time.monotonic() < deadline_s, status
        await asyncio.sleep(0.01)
    return status


def pid_of(status: FlowStatus, name: str) -> int:
    return next(process.pid for process in status.processes if process.name == name)


def live(status: FlowStatus) -> list[str]:
    return [process.name for process in status.processes if identity.is_running(process.pid, process.start_ticks)]


async def read_and_kill(client: omniflow.Client, pid: int, seen: list[Event]) -> None:
    """Reads a long stream; kills the process that gives it when the first token has come."""
    async for event in client.stream("tiny", parameters=Json({"count": 100_000, "delay_s": 0.01})):
        if isinstance(event, Output) and not any(isinstance(other, Output) for other in seen):
            os.kill(pid, signal.SIGKILL)
        seen.append(event)


def test_up_detached_serves_until_down(command: Installed) -> None:
    shown = command("up", TINY, "--detach", "--listen", "127.0.0.1:0")
    assert "tiny is ready on 127.0.0.1:" in shown
    assert "\x1b" not in shown
    status = command.status()
    assert (status["phase"], status["is_serving"], status["graph"]) == ("ready", True, "graphs/tiny")
    assert {process["name"]: process["replica_state"] for process in status["processes"]} == {
        "store": "ANSWERING",
        "control": "ANSWERING",
        "echo-0": "READY",
        "echo-1": "READY",
        "burst-0": "READY",
    }
    assert "answer: hello\n" in command("ask", "--graph", "tiny", "hello")
    before = state(command)
    assert "stopped" in command("down")
    assert live(before) == []
    assert not identity.is_running(before.pid, before.start_ticks)
    assert "nothing runs" in command("status", status=1)


def test_up_refuses_a_second_one_of_the_name(running: Installed) -> None:
    pid = state(running).pid
    shown = running("up", TINY, "--listen", "127.0.0.1:0", status=1)
    assert f"'default' is taken by {TINY} as process {pid}" in shown
    assert state(running).pid == pid


def test_up_detached_fails_with_the_log_of_the_process_to_blame(command: Installed) -> None:
    shown = command("up", f"{TINY}:hopeless", "--detach", "--listen", "127.0.0.1:0", status=1)
    assert "error: echo-0 died before it was ready; the last time it ended with status 2" in shown
    assert "noop.missing" in shown
    assert live(state(command)) == []
    assert "the last run failed: echo-0 died" in command("status", status=1)


def test_up_in_the_foreground_stops_at_a_signal(command: Installed) -> None:
    with command.start("up", TINY, "--listen", "127.0.0.1:0") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "stop     Ctrl+C" in line:
                break
        status = state(command)
        before = live(status)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=50)
    assert before == ["store", "control", "echo-0", "echo-1", "burst-0"]
    assert (process.returncode, err) == (0, "")
    assert out.endswith("stopped\n")
    assert live(status) == []


async def test_kill_of_a_role_ends_its_call_and_the_next_one_works(running: Installed) -> None:
    before = state(running)
    pids = {process.name: process.pid for process in before.processes}
    async with omniflow.connect(before.target) as client:
        seen: list[Event] = []
        with pytest.raises(OmniFlowError) as lost:
            await read_and_kill(client, pids["burst-0"], seen)
        assert lost.value.is_stated
        assert (lost.value.code, lost.value.reason) == (Code.UNAVAILABLE, Reason.REPLICA_LOST)
        assert not any(isinstance(event, Finished) for event in seen)
        killed_s = time.monotonic()
        await until(running, Phase.DEGRADED, within_s=REPLACED_WITHIN_S)
        while pid_of(state(running), "burst-0") in (0, pids["burst-0"]):
            assert time.monotonic() - killed_s < REPLACED_WITHIN_S
            await asyncio.sleep(0.01)
        await until(running, Phase.READY, within_s=START_S)
        result = await client.run("tiny", parameters=Json({"count": 3}))
        assert len(result.values("tokens")) == 3
    after = state(running)
    assert {process.name: process.restarts for process in after.processes if process.restarts} == {"burst-0": 1}


async def test_kill_of_the_control_plane_is_survived_by_the_roles(running: Installed) -> None:
    before = state(running)
    os.kill(pid_of(before, "control"), signal.SIGKILL)
    await until(running, Phase.DEGRADED, within_s=REPLACED_WITHIN_S)
    after = await until(running, Phase.READY, within_s=START_S)
    others = [process.name for process in before.processes if process.name != "control"]
    assert [pid_of(after, name) for name in others] == [pid_of(before, name) for name in others]
    assert after.target == before.target
    async with omniflow.connect(after.target) as client:
        assert (await client.run("tiny", text="again")).text("text") == "again"


def test_kill_of_the_supervisor_leaves_no_process(running: Installed) -> None:
    status = state(running)
    assert len(live(status)) == 5
    os.kill(status.pid, signal.SIGKILL)
    killed_s = time.monotonic()
    while live(status):
        assert time.monotonic() - killed_s < 3.0, live(status)
    assert "nothing runs" in running("status", status=1)
    assert "tiny is ready" in running("up", TINY, "--detach", "--listen", "127.0.0.1:0")


async def test_up_with_several_control_planes_serves_on_each_of_them(command: Installed) -> None:
    command("up", TINY, "--detach", "--listen", "127.0.0.1:0", "--set", "supervisor.control_planes=2")
    status = command.status()
    assert [process["replica_state"] for process in status["processes"]] == [*["ANSWERING"] * 3, *["READY"] * 3]
    for target in status["targets"]:
        assert "answer: hello\n" in command("ask", "--graph", "tiny", "--target", target, "hello")
    before = state(command)
    assert [process.name for process in before.processes[:3]] == ["store", "control-0", "control-1"]
    command("down")
    assert live(before) == []
    assert [path.name for path in (command.folder / "run" / "default").glob("*.sock")] == []


async def test_restart_of_a_role_with_two_replicas_loses_no_call(running: Installed) -> None:
    before = state(running)
    answers: list[str] = []
    async with omniflow.connect(before.target) as client:
        with running.start("restart", "--only", "echo") as process:
            while process.poll() is None:
                answers.append((await client.run("tiny", text="hello")).text("text"))
            assert process.stdout is not None
            shown = process.stdout.read()
    assert (process.returncode, set(answers)) == (0, {"hello"})
    assert shown == "echo-0: restarting (1 of 2)\necho-1: restarting (2 of 2)\nrestarted 2 processes\n"
    after = state(running)
    changed = [old.name for old, new in zip(before.processes, after.processes, strict=True) if old.pid != new.pid]
    assert (changed, after.phase) == (["echo-0", "echo-1"], Phase.READY)


def test_restart_refuses_a_name_that_there_is_not(running: Installed) -> None:
    before = running.pids()
    assert "no role or process of the flow is named 'ecko'. Did you mean" in running(
        "restart", "--only", "ecko", status=1
    )
    assert running.pids() == before


async def test_serve_without_roles_answers(command: Installed) -> None:
    target = f"unix:{command.folder}/public.sock"
    with command.start("serve", "--listen", target, "--set", "control.interfaces=*") as process:
        try:
            async with omniflow.connect(target) as client:
                await client.wait_ready(START_S)
            assert "graphs/tiny can run" in command("graph", "check", TINY, "--target", target)
            assert "node   echo: noop.echo" in command("graph", "explain", TINY, "--target", target)
        finally:
            process.terminate()
            process.communicate(timeout=50)
    assert process.returncode == 0
