"""Naming one process for ever: a pid together with the time it started, since pids are used again."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path

# Fields of /proc/<pid>/stat after the command's closing bracket, counted from 0: state is field 3, starttime field 22.
_STATE, _START_TICKS = 0, 19


def start_ticks(pid: int) -> int:
    """When a running process started, in clock ticks since boot; 0 when there is none, or only its zombie."""
    try:
        # The command may hold spaces and brackets: what counts is after the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[_STATE] in ("Z", "X") else int(fields[_START_TICKS])


def is_running(pid: int, ticks: int) -> bool:
    """Whether exactly that process runs."""
    return pid > 0 and ticks > 0 and start_ticks(pid) == ticks


def terminate(pid: int, ticks: int, *, timeout_s: float) -> bool:
    """Asks exactly that process to end and waits; True when it is gone. A process that is gone already is no error."""
    with contextlib.ExitStack() as stack:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        stack.callback(os.close, handle)
        # Looked at after the handle was taken: from here on the handle cannot mean another process.
        if not is_running(pid, ticks):
            return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
