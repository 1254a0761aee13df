"""Processes of tests, and what /proc knows of them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import (
    Process,
    cpu_s,
    descendants,
    is_running,
    peak_rss_bytes,
    pss_bytes,
    rss_bytes,
    wait_until,
)

pytestmark = pytest.mark.integration

COUNTING = "import itertools, time\nfor i in itertools.count(): print(i); time.sleep(0.001)"
WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid)
time.sleep(600)
"""


def python(folder: Path, code: str, name: str = "test") -> Process:
    return Process(name, [sys.executable, "-c", code], folder=folder)


async def test_process_is_killed_at_the_end_of_its_block(tmp_path: Path) -> None:
    with python(tmp_path, COUNTING) as process:
        await process.wait_for_log("3")
        pid = process.pid
        assert is_running(pid)
    assert not is_running(pid)
    assert process.exit_status == -signal.SIGKILL


async def test_process_keeps_its_output_over_a_restart(tmp_path: Path) -> None:
    with python(tmp_path, "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)") as process:
        first = process.pid
        await process.wait_for_log(f"pid {first}")
        process.restart()
        assert process.pid != first
        await process.wait_for_log(f"pid {process.pid}")
        assert f"pid {first}" in process.log()
        assert not is_running(first)


async def test_process_pauses_and_resumes(tmp_path: Path) -> None:
    with python(tmp_path, COUNTING) as process:
        await process.wait_for_log("10")
        process.pause()
        await wait_until(lambda: _state(process.pid) == "T")
        written = len(process.log())
        assert len(process.log()) == written
        process.resume()
        await wait_until(lambda: len(process.log()) > written)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_process_ends_in_order_when_asked(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); time.sleep(600)"
    )
    with python(tmp_path, code) as process:
        await process.wait_for_log("up")
        assert process.terminate() == 7


async def test_process_that_ends_before_its_log_line_is_reported(tmp_path: Path) -> None:
    with python(tmp_path, "import sys; sys.exit('no such luck')") as process:
        with pytest.raises(RuntimeError, match="status 1") as failure:
            await process.wait_for_log("ready")
        assert "no such luck" in str(failure.value)


async def test_process_refuses_a_second_start(tmp_path: Path) -> None:
    with python(tmp_path, COUNTING) as process, pytest.raises(RuntimeError, match="runs already"):
        process.start()


async def test_descendants_are_found_until_they_end(tmp_path: Path) -> None:
    with python(tmp_path, WITH_CHILD) as process:
        await process.wait_for_log("child")
        (child,) = descendants(process.pid)
        assert f"child {child}" in process.log()
        assert {process.pid, child} <= descendants(os.getpid())
        os.kill(child, signal.SIGKILL)
        await wait_until(lambda: not descendants(process.pid))


async def test_memory_and_cpu_of_a_process_are_its_own(tmp_path: Path) -> None:
    code = "data = bytearray(b'x') * (32 << 20); print('filled', flush=True)\nwhile True: pass"
    with python(tmp_path, code) as process:
        await process.wait_for_log("filled")
        assert 32 << 20 < pss_bytes(process.pid) <= rss_bytes(process.pid) <= peak_rss_bytes(process.pid) < 64 << 20
        before_s = cpu_s(process.pid)
        await wait_until(lambda: cpu_s(process.pid) > before_s + 0.01)


async def test_cpu_of_this_process_agrees_with_its_own_clock() -> None:
    before_s, mine_s = cpu_s(os.getpid()), time.process_time()
    sum(range(200_000))
    assert cpu_s(os.getpid()) - before_s == pytest.approx(time.process_time() - mine_s, abs=0.005)


async def test_wait_until_says_what_it_waited_for() -> None:
    with pytest.raises(TimeoutError, match="the moon"):
        await wait_until(lambda: False, 0.01, what="the moon")


async def test_wait_until_awaits_an_asynchronous_predicate() -> None:
    looks = 0

    async def is_third_look() -> bool:
        nonlocal looks
        looks += 1
        return looks == 3

    await wait_until(is_third_look)
    assert looks == 3
