"""The supervisor with scripted processes: real spawns, signals and restarts, no server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.launch import identity
from omniflow_server.launch.state import StateFile
from omniflow_server.launch.status import FlowStatus, Phase, ProcessState
from omniflow_server.launch.supervisor import Supervisor
from tests.server.launch.scripted import SERVE, SETTINGS, STORE_SERVE, FileReadiness, plan, script, supervised

pytestmark = pytest.mark.integration

DIE = "print('no weights', flush=True); sys.exit(7)"
DEAF = f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SERVE}"


def state_of(status: FlowStatus, name: str) -> ProcessState:
    return next(process.state for process in status.processes if process.name == name)


async def test_run_is_ready_when_every_process_and_the_graph_are(tmp_path: Path) -> None:
    readiness = FileReadiness(tmp_path, is_serving=False)
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm"))
    async with supervised(launch, readiness=readiness) as running:
        await running.until(lambda s: all(p.state is ProcessState.READY for p in s.processes))
        assert running.supervisor.status().phase is Phase.STARTING
        readiness.is_serving = True
        await running.ready()
        await running.supervisor.wait_ready()


async def test_run_keeps_its_status_in_the_state_file(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    async with supervised(plan(tmp_path, script(tmp_path, "control"))) as running:
        status = await running.ready()
        assert state.running() == status
        assert (status.pid, status.flow) == (os.getpid(), "scripted")
        assert identity.is_running(status.processes[0].pid, status.processes[0].start_ticks)
    assert state.read() is None


async def test_run_hands_the_settings_over_in_a_private_file(tmp_path: Path) -> None:
    body = "note(pathlib.Path(folder / 'control.json').read_text().replace('\\n', ''))\n" + SERVE
    async with supervised(plan(tmp_path, script(tmp_path, "control", body))) as running:
        await running.ready()
        assert (tmp_path / "control.json").stat().st_mode & 0o777 == 0o600
        assert json.loads(running.notes()[0].removeprefix("control "))["listen"] == "127.0.0.1:7700"
    assert not (tmp_path / "control.json").exists()


async def test_run_hands_each_control_plane_its_own_settings(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control-0"), script(tmp_path, "control-1"))
    files = [tmp_path / "control-0.json", tmp_path / "control-1.json"]
    async with supervised(launch) as running:
        await running.ready()
        assert all(file.exists() for file in files)
    assert not any(file.exists() for file in files)


async def test_run_is_ready_when_every_control_plane_answers(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control-0"), script(tmp_path, "control-1"), script(tmp_path, "llm-0"))
    readiness = FileReadiness(tmp_path, ("control-0", "absent"))
    async with supervised(launch, readiness=readiness) as running:
        await running.until(lambda s: state_of(s, "control-0") is ProcessState.READY)
        assert state_of(running.supervisor.status(), "control-1") is ProcessState.STARTING
        readiness.controls = ("control-0", "control-1")
        await running.ready()


async def test_run_starts_the_store_first_and_waits_for_it(tmp_path: Path) -> None:
    body = f"while not (folder / 'go').exists(): time.sleep(0.01)\n{STORE_SERVE}"
    control = script(tmp_path, "control", f"note('up')\n{SERVE}")
    async with supervised(plan(tmp_path, script(tmp_path, "store", body), control)) as running:
        await running.until(lambda s: s.processes[0].pid > 0)
        assert running.pids()["control"] == 0
        (tmp_path / "go").touch()
        await running.ready()
        assert running.notes() == ["store up", "control up"]
        assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "store").is_dir()


async def test_run_replaces_the_store_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "store", STORE_SERVE), script(tmp_path, "control"))
    async with supervised(launch) as running:
        await running.ready()
        before = running.pids()
        os.kill(before["store"], signal.SIGKILL)
        await running.until(lambda s: s.phase is Phase.READY and s.processes[0].restarts == 1)
        assert running.pids()["control"] == before["control"]


async def test_run_gives_up_a_store_that_never_answers_and_starts_nothing_else(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "store", DIE), script(tmp_path, "control"))
    async with supervised(launch) as running:
        status = await running.until(lambda s: state_of(s, "control") is ProcessState.STOPPED)
    assert "store died 3 times before it was ready" in status.error
    assert not (tmp_path / "control.pid").exists()


async def test_run_publishes_what_the_operator_should_know(tmp_path: Path) -> None:
    launch = dataclasses.replace(plan(tmp_path, script(tmp_path, "control")), notes=("no metadata store",))
    async with supervised(launch) as running:
        assert (await running.ready()).notes == ("no metadata store",)


async def test_run_replaces_a_killed_process(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm"))
    async with supervised(launch) as running:
        await running.ready()
        before = running.pids()
        os.kill(before["llm"], signal.SIGKILL)
        await running.until(lambda s: s.phase is Phase.DEGRADED)
        status = await running.ready()
        assert running.pids()["control"] == before["control"]
        assert running.pids()["llm"] not in (0, before["llm"])
        assert [process.restarts for process in status.processes] == [0, 1]
    deaths = {process.death for seen in running.seen for process in seen.processes}
    assert any(death.startswith("was killed by SIGKILL; next start in") for death in deaths)


async def test_run_replaces_the_control_plane(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm"))
    async with supervised(launch) as running:
        await running.ready()
        before = running.pids()
        os.kill(before["control"], signal.SIGKILL)
        await running.until(lambda s: s.phase is Phase.READY and s.processes[0].restarts == 1)
        assert running.pids()["llm"] == before["llm"]


async def test_run_gives_up_a_process_that_never_gets_ready(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm", DIE))
    async with supervised(launch) as running:
        await running.until(lambda s: s.phase is Phase.FAILED)
    assert running.failure is not None
    assert "llm died 3 times before it was ready; the last time it ended with status 7" in running.failure.message
    assert "no weights" in running.failure.message
    assert str(tmp_path / "logs" / "llm.log") in running.failure.message
    deaths = {process.death for seen in running.seen for process in seen.processes}
    assert "ended with status 7; next start in 0.0 s: no weights" in deaths
    assert "control stopped" in running.notes()
    kept = StateFile(tmp_path).read()
    assert kept is not None
    assert (kept.phase, kept.error) == (Phase.FAILED, running.failure.message)


async def test_run_gives_up_at_once_what_was_started_wrongly(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control", "sys.exit(2)"))
    async with supervised(launch) as running:
        await running.until(lambda s: s.phase is Phase.FAILED)
    assert running.failure is not None
    assert running.failure.message.startswith("control died before it was ready; the last time it ended with status 2")


async def test_run_names_an_interpreter_that_is_missing(tmp_path: Path) -> None:
    broken = dataclasses.replace(script(tmp_path, "llm"), argv=("/nowhere/bin/python", "-m", "x"))
    async with supervised(plan(tmp_path, script(tmp_path, "control"), broken)) as running:
        await running.until(lambda s: s.phase is Phase.FAILED)
    assert running.failure is not None
    assert "llm cannot be started: /nowhere/bin/python: No such file" in running.failure.message


async def test_run_gives_up_when_readiness_takes_too_long(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, ready_timeout_s=0.2)
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm", "time.sleep(600)"))
    async with supervised(launch, settings) as running:
        await running.until(lambda s: s.phase is Phase.FAILED)
    assert running.failure is not None
    assert "not ready after 0.2 s" in running.failure.message
    assert "llm" in running.failure.message


async def test_run_is_not_over_while_the_failed_readiness_stops_the_rest(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, ready_timeout_s=0.2)
    launch = plan(tmp_path, script(tmp_path, "control", "time.sleep(600)"))
    async with supervised(launch, settings) as running:
        status = await running.until(lambda s: s.processes[0].state is ProcessState.STOPPED)
    assert status.phase is Phase.FAILED
    assert not running.supervisor._ready.is_set()


async def test_stop_lets_the_control_plane_drain_before_the_roles_and_the_store(tmp_path: Path) -> None:
    processes = [script(tmp_path, name) for name in ("control", "llm", "tts")]
    async with supervised(plan(tmp_path, script(tmp_path, "store", STORE_SERVE), *processes)) as running:
        await running.ready()
        running.supervisor.stop()
        await running.until(lambda s: all(p.state is ProcessState.STOPPED for p in s.processes))
    assert running.notes()[:2] == ["store up", "control stopped"]
    assert sorted(running.notes()[2:4]) == ["llm stopped", "tts stopped"]
    assert running.notes()[4:] == ["store stopped"]


async def test_stop_kills_what_does_not_end_in_its_grace(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control", DEAF, stop_grace_s=0.1))
    async with supervised(launch) as running:
        pid = (await running.ready()).processes[0].pid
    assert identity.start_ticks(pid) == 0
    assert running.failure is None


async def test_stop_ends_a_pause_between_restarts(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, restart_delay_s=600.0, restart_delay_max_s=600.0)
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm", DIE))
    async with supervised(launch, settings) as running:
        await running.until(lambda s: state_of(s, "llm") is ProcessState.RESTARTING)
        running.supervisor.stop()
        await running.until(lambda s: state_of(s, "llm") is ProcessState.STOPPED)


async def test_kill_ends_everything_at_once(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control", DEAF), script(tmp_path, "llm", DEAF))
    async with supervised(launch) as running:
        await running.ready()
        running.supervisor.stop()
        running.supervisor.kill()
        await running.until(lambda s: all(p.state is ProcessState.STOPPED for p in s.processes))


async def test_run_leaves_no_process_when_it_is_cancelled(tmp_path: Path) -> None:
    supervisor = Supervisor(plan(tmp_path, script(tmp_path, "control", DEAF)), SETTINGS, FileReadiness(tmp_path))
    run = asyncio.ensure_future(supervisor.run())
    await supervisor.wait_ready()
    pid = supervisor.status().processes[0].pid
    run.cancel()
    await asyncio.wait([run])
    assert run.cancelled()
    with contextlib.suppress(ProcessLookupError), os.fdopen(os.pidfd_open(pid)) as handle:
        assert select.select([handle], [], [], 10)[0]


async def test_run_refuses_a_name_that_is_taken(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control"))
    async with supervised(launch) as running:
        await running.ready()
        async with supervised(launch) as second:
            pass
        assert isinstance(second.failure, OmniFlowError)
        assert second.failure.reason is Reason.CONFLICT
        assert f"taken by scripted as process {os.getpid()}" in second.failure.message
        assert running.supervisor.status().phase is Phase.READY


async def test_run_starts_with_fresh_logs_and_keeps_the_old_ones(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control"))
    for _ in range(2):
        async with supervised(launch) as running:
            await running.ready()
        (tmp_path / "control.pid").unlink()
    assert (tmp_path / "logs" / "control.log").read_text() == "serving\n"
    assert (tmp_path / "logs" / "control.log.1").read_text() == "serving\n"


ORPHANS = """
import asyncio, pathlib, sys
sys.path[:0] = {path!r}
from tests.server.launch.scripted import plan, script, supervised

async def main():
    folder = pathlib.Path({folder!r})
    async with supervised(plan(folder, script(folder, "control"), script(folder, "llm"))) as running:
        await running.ready()
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_kill_of_the_supervisor_leaves_no_process(tmp_path: Path) -> None:
    code = ORPHANS.format(path=[str(Path.cwd()), *sys.path], folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"ready\n"
        processes = StateFile(tmp_path).running()
        supervisor.kill()
    killed = time.monotonic()
    assert processes is not None
    assert len(processes.processes) == 2
    while any(identity.is_running(p.pid, p.start_ticks) for p in processes.processes):
        assert time.monotonic() - killed < 3.0
    assert StateFile(tmp_path).running() is None


async def test_run_goes_on_when_the_state_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: StateFile, status: FlowStatus) -> None:
        raise OSError(28, "No space left on device")

    async with supervised(plan(tmp_path, script(tmp_path, "control"))) as running:
        await running.ready()
        monkeypatch.setattr(StateFile, "write", full)
        os.kill(running.pids()["control"], signal.SIGKILL)
        await running.until(lambda s: s.phase is Phase.READY and s.processes[0].restarts == 1)
