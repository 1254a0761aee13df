"""Real processes of tests: started, killed, paused and started again, with their output kept, and what /proc knows of them.

    with Process("server", [sys.executable, "-m", "server"], folder=tmp_path) as server:
        server.pause(); server.resume(); server.restart()
        await wait_until(lambda: rss_bytes(server.pid) < 80 << 20)

Linux only. A whole control plane with its roles: see `system`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from omniflow.process import PARENT_PID

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
_LOG_TAIL_BYTES = 4_000

# --- waiting ---------------------------------------------------------------------------------------------------------


async def wait_until(
    predicate: Callable[[], object], timeout_s: float = 10.0, *, what: str = "", interval_s: float = 0.005
) -> None:
    """Returns when the predicate, plain or asynchronous, gives something true.

    Raises TimeoutError saying `what` was waited for. For conditions of other processes: inside one process, events are
    better.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        found = predicate()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return
        if time.monotonic() > deadline_s:
            raise TimeoutError(
                f"{what or inspect.getsource(predicate).strip()} did not come true within {timeout_s:g} s"
            )
        await asyncio.sleep(interval_s)


# --- what /proc knows ------------------------------------------------------------------------------------------------


def rss_bytes(pid: int) -> int:
    """Resident memory of a process, pages shared with others included."""
    return _memory(Path(f"/proc/{pid}/status"), "VmRSS")


def peak_rss_bytes(pid: int) -> int:
    """The most that `rss_bytes` has ever been."""
    return _memory(Path(f"/proc/{pid}/status"), "VmHWM")


def pss_bytes(pid: int) -> int:
    """Resident memory of a process, with its part of what it shares."""
    return _memory(Path(f"/proc/{pid}/smaps_rollup"), "Pss")


def _memory(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise LookupError(f"{path} has no {name}")


def cpu_s(pid: int) -> float:
    """CPU time of a process with all its threads, in nanosecond steps."""
    return time.clock_gettime(~pid << 3 | 2)  # how Linux names the clock of another process: clock_getcpuclockid(3)


def is_running(pid: int) -> bool:
    """The process exists and is not only waiting for its parent to collect it."""
    try:
        return _stat(pid)[0] not in "ZX"
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """Children of a process, their children and so on; zombies left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = _stat(int(entry.name))
                if state not in "ZX":
                    children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.add(child)
            waiting.append(child)
    return found


def _stat(pid: int) -> tuple[str, int]:
    """State letter and parent of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()  # a name may hold anything but ends here
    return fields[0], int(fields[1])


# --- one process -----------------------------------------------------------------------------------------------------


class Process:
    """A process of a test. `with` starts it, and kills what is left of it at the end.

    Its output goes to `<folder>/<name>.log`, restarts included. It is told to die with this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log_path = folder / f"{name}.log"
        self._env = dict(env or {})
        self._cwd = cwd
        self._popen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._popen is not None:
            self.kill()

    @property
    def pid(self) -> int:
        """Of the newest start. Raises RuntimeError before the first."""
        return self._started.pid

    @property
    def is_running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._started.poll()

    def log(self) -> str:
        """What it has written to its standard output and error."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        """The end of it, for messages."""
        return self.log()[-_LOG_TAIL_BYTES:]

    def start(self) -> None:
        """Starts it. Raises RuntimeError when it runs."""
        if self.is_running:
            raise RuntimeError(f"{self.name} runs already")
        env = {**os.environ, PARENT_PID: str(os.getpid()), "PYTHONUNBUFFERED": "1", **self._env}
        with self.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=self._cwd
            )

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Asks it to end (SIGTERM) and waits; returns the exit status. Raises TimeoutError."""
        self._started.terminate()
        return self.wait(timeout_s)

    def kill(self) -> None:
        """Ends it at once (SIGKILL) and collects it; its children are left alone. Harmless when it has ended."""
        self._started.kill()
        self._started.wait()

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Waits for its end; returns the exit status. Raises TimeoutError."""
        try:
            return self._started.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} has not ended within {timeout_s:g} s\n{self.log_tail()}") from None

    def pause(self) -> None:
        """Stops it where it is (SIGSTOP): sockets stay open, nothing answers."""
        self._started.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on (SIGCONT)."""
        self._started.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kills it if it runs, and starts it again."""
        self.kill()
        self.start()

    async def wait_for_log(self, text: str, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Returns when it has written a text. Raises TimeoutError, or RuntimeError when it ended before."""

        def has_written() -> bool:
            if text in self.log():
                return True
            self.check_running()
            return False

        await wait_until(has_written, timeout_s, what=f"{text!r} in the log of {self.name}")

    def check_running(self) -> None:
        """Raises RuntimeError with the end of its log when it has ended."""
        if not self.is_running:
            raise RuntimeError(f"{self.name} has ended with status {self.exit_status}:\n{self.log_tail()}")

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        if self._popen is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._popen


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
