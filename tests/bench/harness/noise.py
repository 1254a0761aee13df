"""How disturbed the machine was: figures of a run are worth what these are.

    busy     share of all cores that others use while nothing of the bench runs
    spin     a fixed piece of work on the CPU; slower than its best means that somebody else had the core, or its cache
    timer    how late a 1 ms sleep of the event loop comes: what a reader waits for the scheduler

Taken before every round, beside the load average. `wait_quiet` puts a round off while others use the machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.harness.statistics import median, percentile

_SPIN_STEPS = 400_000
_TIMER_SLEEPS = 40
_TIMER_S = 0.001
_WATCH_S = 0.25
_QUIET_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """One look at the machine; milliseconds."""

    busy_share: float
    spin_wall_ms: float
    spin_cpu_ms: float
    timer_late_p50_ms: float
    timer_late_p99_ms: float
    load: float
    """Processes that ran or wanted to, over the last minute: the benches' own included."""


async def look() -> Noise:
    """Takes about 320 ms."""
    busy_share = await _busy_share()
    wall_s, cpu_s = _spin()
    late_ms = [await _late_ms() for _ in range(_TIMER_SLEEPS)]
    return Noise(
        busy_share=busy_share,
        spin_wall_ms=wall_s * 1e3,
        spin_cpu_ms=cpu_s * 1e3,
        timer_late_p50_ms=median(late_ms),
        timer_late_p99_ms=percentile(late_ms, 0.99),
        load=os.getloadavg()[0],
    )


async def wait_quiet(patience_s: float) -> None:
    """Returns when others leave nine tenths of the machine alone, or when the patience is at its end."""
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s and await _busy_share() > _QUIET_SHARE:
        pass


async def _busy_share() -> float:
    before = _cpu_times()
    await asyncio.sleep(_WATCH_S)
    total, idle = (now - then for now, then in zip(_cpu_times(), before, strict=True))
    return 1.0 - idle / total if total else 0.0


def _cpu_times() -> tuple[int, int]:
    """Ticks of all cores since the start: all of them, and those that nobody used."""
    first, *_ = Path("/proc/stat").read_text().splitlines()
    ticks = [int(value) for value in first.split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]


def _spin() -> tuple[float, float]:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    total = 0
    for step in range(_SPIN_STEPS):
        total += step & 7
    assert total
    return time.perf_counter() - wall_s, time.process_time() - cpu_s


async def _late_ms() -> float:
    started_s = time.perf_counter()
    await asyncio.sleep(_TIMER_S)
    return (time.perf_counter() - started_s - _TIMER_S) * 1e3


def summary(looks: Sequence[Noise]) -> Mapping[str, float]:
    """Of all rounds: `spin_slowdown` is the worst wall time against the best, 1.0 on a quiet machine."""
    best_ms = min(look.spin_wall_ms for look in looks)
    return {
        "busy_share_p50": median([look.busy_share for look in looks]),
        "busy_share_max": max(look.busy_share for look in looks),
        "spin_best_ms": best_ms,
        "spin_slowdown_p50": median([look.spin_wall_ms for look in looks]) / best_ms,
        "spin_slowdown_max": max(look.spin_wall_ms for look in looks) / best_ms,
        "timer_late_p50_ms": median([look.timer_late_p50_ms for look in looks]),
        "timer_late_p99_ms": max(look.timer_late_p99_ms for look in looks),
        "load_first": looks[0].load,
        "load_last": looks[-1].load,
    }


def as_json(looks: Sequence[Noise]) -> list[dict[str, float]]:
    """Every look."""
    return [asdict(look) for look in looks]
