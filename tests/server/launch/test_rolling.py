"""Rolling restarts of scripted processes, and their order."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.launch.children import Child
from omniflow_server.launch.requests import ask_restart
from omniflow_server.launch.rolling import in_order
from omniflow_server.launch.status import FlowStatus, Phase, ProcessState, RollingStatus
from tests.server.launch.scripted import (
    SERVE,
    SETTINGS,
    STORE_SERVE,
    FileReadiness,
    Running,
    plan,
    script,
    supervised,
)

pytestmark = pytest.mark.integration

ONCE = """
if (folder / "broken").exists():
    print("no weights", flush=True)
    sys.exit({status})
"""
FAILS_WHEN_BROKEN = ONCE.format(status=7) + SERVE
REFUSES_WHEN_BROKEN = ONCE.format(status=2) + SERVE
DEAF = f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SERVE}"


def names(folder: Path, only: str) -> list[str]:
    processes = ("store", "control-0", "control-1", "llm-0", "llm-1", "tts-0")
    children = [Child(script(folder, name), SETTINGS, lambda: None) for name in processes]
    return [child.spec.name for child in in_order(children, only)]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("", ["llm-0", "llm-1", "tts-0", "control-0", "control-1"]),
        ("llm", ["llm-0", "llm-1"]),
        ("llm-1", ["llm-1"]),
        ("control", ["control-0", "control-1"]),
        ("control-1", ["control-1"]),
        ("store", ["store"]),
    ],
)
def test_order_is_replicas_by_role_then_control_planes(only: str, expected: list[str], tmp_path: Path) -> None:
    assert names(tmp_path, only) == expected


def test_order_of_an_unknown_name_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(OmniFlowError, match=r"named 'llm-2'. Did you mean 'llm-[01]'") as caught:
        names(tmp_path, "llm-2")
    assert caught.value.reason is Reason.UNKNOWN_RESOURCE


async def over(running: Running, number: int = 1) -> RollingStatus:
    """Waits until a rolling restart is over."""
    status = await running.until(lambda s: bool(s.rolling and s.rolling.number == number and s.rolling.is_over))
    assert status.rolling is not None
    return status.rolling


def changed(before: FlowStatus, after: FlowStatus) -> list[str]:
    return [old.name for old, new in zip(before.processes, after.processes, strict=True) if old.pid != new.pid]


async def test_restart_replaces_one_process_after_another(tmp_path: Path) -> None:
    processes = [script(tmp_path, name) for name in ("control-0", "control-1", "llm-0", "llm-1")]
    async with supervised(plan(tmp_path, script(tmp_path, "store", STORE_SERVE), *processes)) as running:
        before = await running.ready()
        running.seen.clear()
        assert running.supervisor.restart() == 1
        assert await over(running) == RollingStatus(number=1, total=4, done=4, process="control-1")
        after = await running.ready()
        assert running.notes()[1:] == ["llm-0 stopped", "llm-1 stopped", "control-0 stopped", "control-1 stopped"]
    assert changed(before, after) == ["control-0", "control-1", "llm-0", "llm-1"]
    assert [process.restarts for process in after.processes] == [0] * 5
    for status in running.seen:
        if status.phase is Phase.RESTARTING:
            assert len([p for p in status.processes if p.state is not ProcessState.READY]) <= 1, status
    phases = [status.phase for status in running.seen if status.phase is not Phase.STOPPING]
    assert set(phases) == {Phase.RESTARTING, Phase.READY}


async def test_restart_waits_until_the_graph_is_served_again(tmp_path: Path) -> None:
    readiness = FileReadiness(tmp_path)
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm-0"), script(tmp_path, "llm-1"))
    async with supervised(launch, readiness=readiness) as running:
        before = await running.ready()
        readiness.is_serving = False
        running.supervisor.restart("llm")
        await running.until(
            lambda s: (
                s.processes[1].pid not in (0, before.processes[1].pid) and s.processes[1].state is ProcessState.READY
            )
        )
        rolling = running.supervisor.status().rolling
        assert rolling is not None
        assert (rolling.done, rolling.process) == (0, "llm-0")
        readiness.is_serving = True
        assert (await over(running)).done == 2


async def test_restart_begins_a_fresh_log(tmp_path: Path) -> None:
    async with supervised(plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm-0"))) as running:
        await running.ready()
        running.supervisor.restart("llm-0")
        await over(running)
        await running.ready()
    assert (tmp_path / "logs" / "llm-0.log.1").read_text() == "serving\n"


async def test_restart_of_the_store_is_by_name_only(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "store", STORE_SERVE), script(tmp_path, "control"))
    async with supervised(launch) as running:
        before = await running.ready()
        running.supervisor.restart("store")
        assert (await over(running)).total == 1
        assert changed(before, await running.ready()) == ["store"]


@pytest.mark.parametrize(
    ("body", "how"),
    [
        (FAILS_WHEN_BROKEN, "llm-0 does not come back: it ended with status 7"),
        (REFUSES_WHEN_BROKEN, "llm-0 does not come back: it ended with status 2"),
    ],
)
async def test_restart_stops_at_a_process_that_does_not_come_back(body: str, how: str, tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm-0", body), script(tmp_path, "tts-0"))
    async with supervised(launch) as running:
        before = await running.ready()
        (tmp_path / "broken").touch()
        running.supervisor.restart()
        rolling = await over(running)
        assert rolling.error.startswith(how)
        assert "no weights" in rolling.error
        assert "2 processes were not restarted (0 were)" in rolling.error
        assert running.supervisor.status().phase is Phase.DEGRADED
        (tmp_path / "broken").unlink()
        after = await running.ready()  # it is tried again as after any death, and the rest was left alone
        assert changed(before, after) == ["llm-0"]
        running.supervisor.restart("llm")
        assert (await over(running, number=2)).error == ""
    assert running.failure is None


async def test_restart_stops_at_a_process_that_takes_too_long(tmp_path: Path) -> None:
    body = "if (folder / 'broken').exists(): time.sleep(600)\n" + SERVE
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm-0", body, stop_grace_s=0.1))
    async with supervised(launch) as running:
        await running.ready()
        running.supervisor._rolling._settings = dataclasses.replace(SETTINGS, ready_timeout_s=0.2)
        (tmp_path / "broken").touch()
        running.supervisor.restart("llm")
        assert (await over(running)).error.startswith("llm-0 is not ready after 0.2 s (supervisor.ready_timeout_s)")


async def test_restart_stops_at_an_interpreter_that_is_gone(tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    spec = script(tmp_path, "llm-0")
    interpreter.symlink_to(spec.argv[0])
    spec = dataclasses.replace(spec, argv=(str(interpreter), *spec.argv[1:]))
    async with supervised(plan(tmp_path, script(tmp_path, "control"), spec)) as running:
        await running.ready()
        interpreter.unlink()
        running.supervisor.restart("llm")
        assert f"does not come back: it cannot be started: {interpreter}" in (await over(running)).error
    assert running.failure is None


async def test_restart_kills_what_does_not_end_in_its_grace_and_starts_it_again(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm-0", DEAF, stop_grace_s=0.1))
    async with supervised(launch) as running:
        before = await running.ready()
        running.supervisor.restart("llm-0")
        assert (await over(running)).error == ""
        assert changed(before, running.supervisor.status()) == ["llm-0"]


async def test_restart_by_name_ends_a_pause_after_a_death(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, restart_delay_s=600.0, restart_delay_max_s=600.0)
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm-0"))
    async with supervised(launch, settings) as running:
        await running.ready()
        os.kill(running.pids()["llm-0"], signal.SIGKILL)
        await running.until(lambda s: s.processes[1].state is ProcessState.RESTARTING)
        with pytest.raises(OmniFlowError, match=r"not ready: llm-0; .* or restart these by --only llm-0") as caught:
            running.supervisor.restart()
        assert caught.value.reason is Reason.CONFLICT
        running.supervisor.restart("llm-0")
        assert (await over(running)).error == ""


async def test_restart_is_refused_while_another_is_on_its_way(tmp_path: Path) -> None:
    async with supervised(plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm-0"))) as running:
        await running.ready()
        running.supervisor.restart()
        with pytest.raises(OmniFlowError, match="is on its way, 0 of 2 processes are done") as caught:
            running.supervisor.restart("llm")
        assert caught.value.reason is Reason.CONFLICT
        await over(running)


async def test_restart_is_refused_before_the_first_readiness(tmp_path: Path) -> None:
    readiness = FileReadiness(tmp_path, is_serving=False)
    async with supervised(plan(tmp_path, script(tmp_path, "control")), readiness=readiness) as running:
        await running.until(lambda s: s.processes[0].state is ProcessState.READY)
        with pytest.raises(OmniFlowError, match="is still starting"):
            running.supervisor.restart()


async def test_restart_ends_with_the_supervisor(tmp_path: Path) -> None:
    launch = plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm-0"), script(tmp_path, "llm-1"))
    async with supervised(launch) as running:
        await running.ready()
        running.supervisor.restart()
        running.supervisor.stop()
        status = await running.until(lambda s: all(p.state is ProcessState.STOPPED for p in s.processes))
    assert status.phase is Phase.STOPPING
    assert running.failure is None


async def test_restart_is_taken_over_the_socket(tmp_path: Path) -> None:
    async with supervised(plan(tmp_path, script(tmp_path, "control"), script(tmp_path, "llm-0"))) as running:
        await running.ready()
        number = await asyncio.to_thread(ask_restart, tmp_path, "llm")
        assert (await over(running, number)).done == 1
