"""Programs of contestants: processes that run one topology each and answer lines of JSON (see `tests.bench.peers.protocol`).

    async with Program([python, "sglang_omni_peer.py"], log) as program:
        await program.prepare("fan5", {"processes": "each"})
        with program.awake():
            await program.run(300, concurrency=1)

Outside of its turn a program is stopped (SIGSTOP) with all its processes: some peers poll while they have nothing to do, and
would take that from whoever is being measured. The processes are a group of their own; should this process die, the kernel
ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.bench.harness.report import RESULTS
from tests.support.processes import cpu_s, descendants, is_running, wait_until

PREPARE_TIMEOUT_S = 300.0
RUN_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 20.0
LINE_LIMIT_BYTES = 16 << 20
LOGS = RESULTS / "logs"
"""What programs print."""


def log_of(topology: str, name: str) -> Path:
    """Where a contestant's program prints."""
    return LOGS / f"{topology}-{re.sub(r'[^A-Za-z0-9]+', '-', name)}.log"


class ProgramError(Exception):
    """What a program answered, or that it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Requests of one run, without those before the clock."""

    latencies_s: Sequence[float]
    wall_s: float


class Program:
    """A contestant's program. `async with` starts it and ends it with all its processes."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.system = ""
        """Name and version of what it runs, once it is prepared."""
        self.control_pid = 0
        """The process that drives its requests, once it is prepared."""
        self._command = tuple(command)
        self._log = log
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: asyncio.StreamReader | None = None
        self._pipe: asyncio.ReadTransport | None = None

    async def __aenter__(self) -> Self:
        self._process = self._start()
        answers = self._answers = asyncio.StreamReader(limit=LINE_LIMIT_BYTES)
        self._pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(answers), self._process.stdout
        )
        return self

    def _start(self) -> subprocess.Popen[bytes]:
        """Not by the loop: uvloop's own subprocesses know no process groups."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "PYTHONUNBUFFERED": "1", **self._env}
        with self._log.open("wb") as log:
            return subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env, process_group=0
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._pipe is not None
        if kind is None:
            self._signal(signal.SIGCONT)
            with contextlib.suppress(ProgramError):
                await self._ask({"do": "stop"}, STOP_TIMEOUT_S)
        pids = self.pids()
        self._signal(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        await wait_until(lambda: not any(map(is_running, pids)), what="the end of its processes")
        self._pipe.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    @property
    def pid(self) -> int:
        """Of the program itself."""
        assert self._process is not None
        return self._process.pid

    async def prepare(self, topology: str, options: Mapping[str, Any]) -> None:
        """Returns when requests are served. Raises ProgramError."""
        answer = await self._ask({"do": "prepare", "topology": topology, "options": options}, PREPARE_TIMEOUT_S)
        self.system, self.control_pid = answer["system"], answer["control_pid"]

    async def run(self, count: int, *, concurrency: int) -> Run:
        """Some requests before the clock, then `count` with so many at a time. Raises ProgramError."""
        answer = await self._ask({"do": "run", "count": count, "concurrency": concurrency}, RUN_TIMEOUT_S)
        return Run(latencies_s=[value / 1e3 for value in answer["latencies_ms"]], wall_s=answer["wall_s"])

    def pids(self) -> set[int]:
        """Its processes."""
        return {self.pid, *descendants(self.pid)}

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Its turn: it runs inside, and stands still afterwards."""
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def sleep(self) -> None:
        """Stands still until its turn."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def _ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._answers is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            async with asyncio.timeout(timeout_s):
                line = await self._answers.readline()
        except TimeoutError:
            raise ProgramError(f"no answer to {request['do']} within {timeout_s:g} s, see {self._log}") from None
        except ConnectionError:
            line = b""
        if not line:
            raise ProgramError(f"it ended at {request['do']}, see {self._log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProgramError(f"{answer['error']}, see {self._log}")
        return answer


def cpu_of(pids: Iterable[int]) -> dict[int, float]:
    """CPU seconds of processes by identifier, without those that have ended."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            found[pid] = cpu_s(pid)
    return found
