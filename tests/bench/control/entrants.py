"""Who takes part in the comparison of a topology, and what one of them does in its round.

A round: requests one after another, whose latencies and CPU time are taken; then as many with 8 and with 32 at a time.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass

from tests.bench.control.programs import Program, Run, cpu_of
from tests.bench.harness.contest import Contestant, Work
from tests.bench.harness.options import Options
from tests.bench.peers.protocol import WARM_CALLS
from tests.support.processes import rss_bytes

REQUESTS = 300
"""One after another, in a round."""
CONCURRENT_REQUESTS = 300
CONCURRENCIES = (8, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A program that is prepared for a topology, and the processes that serve it."""

    name: str
    program: Program
    system_pids: frozenset[int] = frozenset()
    """Processes of the system that the program did not start."""
    role_pid: int = 0
    """One of its roles; 0 when the program started them, or when there are none."""
    is_peer: bool = False
    """Another system: it stands still outside of its turn, and may fail."""

    def contestant(self, options: Options) -> Contestant:
        """For a contest."""
        return Contestant(name=self.name, run=functools.partial(self._round, options), is_optional=self.is_peer)

    def memory_bytes(self) -> tuple[int, int]:
        """Resident bytes of the process that drives requests, and of a role, stage or worker; 0 without one."""
        control = self.program.control_pid
        others = self.program.pids() - {control, self.program.pid}
        role = rss_bytes(self.role_pid) if self.role_pid else max(map(rss_bytes, others), default=0)
        return rss_bytes(control), role

    async def _round(self, options: Options) -> Work:
        with self.program.awake() if self.is_peer else contextlib.nullcontext():
            before = cpu_of(self.program.pids() | self.system_pids)
            single = await self.program.run(options.scaled(REQUESTS), concurrency=1)
            after = cpu_of(before.keys())
            side_by_side = {
                f"per_s_{at_once}": _rate(
                    await self.program.run(options.scaled(CONCURRENT_REQUESTS), concurrency=at_once)
                )
                for at_once in CONCURRENCIES
            }
        cpu_s = sum(spent_s - before[pid] for pid, spent_s in after.items())
        count = len(single.latencies_s)
        return Work(
            count=count,
            latencies_s=single.latencies_s,
            figures={"wall_s": single.wall_s, "cpu_ms": cpu_s / (count + WARM_CALLS) * 1e3, **side_by_side},
        )


def _rate(run: Run) -> float:
    return len(run.latencies_s) / run.wall_s
