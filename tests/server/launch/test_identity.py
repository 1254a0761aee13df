"""Naming one process for ever."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from omniflow_server.launch import identity

SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
)


def started(*argv: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_is_running_knows_this_process_and_no_other_start() -> None:
    ticks = identity.start_ticks(os.getpid())
    assert identity.is_running(os.getpid(), ticks)
    assert not identity.is_running(os.getpid(), ticks + 1)
    assert not identity.is_running(0, 0)


def test_start_ticks_of_a_zombie_is_none() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identity.start_ticks(process.pid) == 0
    process.wait()


@pytest.mark.integration
def test_terminate_ends_exactly_the_process_it_names() -> None:
    with started(*SLEEP) as process:
        ticks = identity.start_ticks(process.pid)
        assert identity.terminate(process.pid, ticks + 1, timeout_s=0)
        assert identity.is_running(process.pid, ticks)
        assert identity.terminate(process.pid, ticks, timeout_s=30)
        assert process.wait() == -15
        assert identity.terminate(process.pid, ticks, timeout_s=0)


@pytest.mark.integration
def test_terminate_says_when_the_process_stays() -> None:
    with started(*DEAF) as process:
        assert not identity.terminate(process.pid, identity.start_ticks(process.pid), timeout_s=0.05)
        process.kill()
