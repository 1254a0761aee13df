"""What a process has cost so far, as /proc counts it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.processes import cpu_s

_SWITCHES = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
_CALLS = ("syscr", "syscw")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of all threads of one process, from some moment on."""

    cpu_s: float
    waits: int
    """Times that a thread gave the core up to wait: voluntary context switches."""
    preemptions: int
    """Times that one lost it to somebody else."""
    reads: int
    """Calls of read() and its like, on whatever; recv() and recvmsg(), by which gRPC reads sockets, are not among them."""
    writes: int
    """The same of write()."""

    @classmethod
    def of(cls, pid: int) -> Self:
        """Since the process began."""
        switches = [_numbers(thread / "status", _SWITCHES) for thread in Path(f"/proc/{pid}/task").iterdir()]
        waits, preemptions = (sum(of_thread[index] for of_thread in switches) for index in range(2))
        reads, writes = _numbers(Path(f"/proc/{pid}/io"), _CALLS)
        return cls(cpu_s=cpu_s(pid), waits=waits, preemptions=preemptions, reads=reads, writes=writes)

    def line(self, since: Costs, operations: int) -> str:
        """What an operation cost between two moments."""
        cpu_us = (self.cpu_s - since.cpu_s) / operations * 1e6
        counts = {
            name: (getattr(self, name) - getattr(since, name)) / operations
            for name in ("waits", "preemptions", "reads", "writes")
        }
        return f"{cpu_us:.1f} us CPU, " + ", ".join(f"{count:.2f} {name}" for name, count in counts.items())


def _numbers(path: Path, names: tuple[str, ...]) -> list[int]:
    found = dict(line.split(":", 1) for line in path.read_text().splitlines())
    return [int(found[name]) for name in names]
