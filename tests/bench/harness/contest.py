"""Contestants in interleaved rounds.

    warm-up:  A B C
    round 1:  noise A B C
    round 2:  noise B C A        each round starts with another contestant
    round 3:  noise C A B

Only one contestant works at a time. A round gives its wall time, the CPU time of each process that took part, and what
the contestant counted itself; ratios are taken between contestants of the same round.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench.harness import noise
from tests.bench.harness.noise import Noise
from tests.bench.harness.options import Options
from tests.bench.harness.statistics import median, paired_ratios, percentile
from tests.support.processes import cpu_s

CLIENT = "client"
"""Name of the process that measures: it is the client of every contestant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a contestant did in one round."""

    count: int
    """Operations: events, calls, tokens."""
    latencies_s: Sequence[float] = ()
    """Of single operations, where they are timed."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Further figures of the round; `wall_s` replaces the wall time when the contestant measured it more closely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """Something that does the bench's work."""

    name: str
    run: Callable[[], Awaitable[Work]]
    processes: Mapping[str, int] = field(default_factory=dict)
    """Processes that take part besides this one: process identifiers by name."""
    is_optional: bool = False
    """When it fails it is out, and the contest goes on without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One contestant's round."""

    work: Work
    wall_s: float
    cpu_s: Mapping[str, float]

    @property
    def per_s(self) -> float:
        return self.work.count / self.wall_s


class Results:
    """All rounds of all contestants of one contest."""

    def __init__(
        self,
        rounds: Mapping[str, Sequence[Round]],
        looks: Sequence[Noise],
        failures: Mapping[str, str] | None = None,
    ) -> None:
        self.rounds = rounds
        self.looks = looks
        self.failures = failures or {}
        """What was wrong with optional contestants that failed; they have no rounds."""

    def rates(self, name: str) -> list[float]:
        """Operations a second, by round."""
        return [round.per_s for round in self.rounds[name]]

    def latencies_s(self, name: str) -> list[float]:
        """Of all rounds."""
        return [latency for round in self.rounds[name] for latency in round.work.latencies_s]

    def round_latencies_s(self, name: str, share: float = 0.5) -> list[float]:
        """A percentile of each round's latencies."""
        return [percentile(round.work.latencies_s, share) for round in self.rounds[name]]

    def figures(self, name: str, figure: str) -> list[float]:
        """A figure of the contestant's own, by round."""
        return [round.work.figures[figure] for round in self.rounds[name]]

    def rate_ratio(self, name: str, floor: str) -> float:
        """Median ratio of the rates in the same round."""
        return median(paired_ratios(self.rates(name), self.rates(floor)))

    def cpu_us(self, name: str) -> dict[str, float]:
        """CPU microseconds an operation, by process; medians."""
        rounds = self.rounds[name]
        return {
            process: median([round.cpu_s[process] / round.work.count * 1e6 for round in rounds])
            for process in rounds[0].cpu_s
        }

    def as_json(self) -> dict[str, object]:
        """Everything that was measured."""
        return {name: self._contestant_json(name) for name in self.rounds}

    def _contestant_json(self, name: str) -> dict[str, object]:
        rounds, latencies = self.rounds[name], self.latencies_s(name)
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99} if latencies else {}
        return {
            "per_s_median": median(self.rates(name)),
            "latency_ms": {label: percentile(latencies, share) * 1e3 for label, share in shares.items()},
            "cpu_us_per_operation": self.cpu_us(name),
            "rounds": [
                {
                    "count": round.work.count,
                    "wall_s": round.wall_s,
                    "cpu_s": dict(round.cpu_s),
                    "figures": dict(round.work.figures),
                }
                for round in rounds
            ],
        }


async def compete(contestants: Sequence[Contestant], options: Options, *, warmups: int = 1) -> Results:
    """Runs everybody in turn, `warmups` times without and `options.rounds` times with the clock."""
    done: dict[str, list[Round]] = {contestant.name: [] for contestant in contestants}
    failures: dict[str, str] = {}
    for _ in range(warmups):
        for contestant in contestants:
            await _play(contestant, failures)
    looks: list[Noise] = []
    for index in range(options.rounds):
        await noise.wait_quiet(options.patience_s)
        looks.append(await noise.look())
        shift = index % len(contestants)
        for contestant in (*contestants[shift:], *contestants[:shift]):
            round = await _play(contestant, failures)
            if round is not None:
                done[contestant.name].append(round)
    return Results({name: rounds for name, rounds in done.items() if name not in failures}, looks, failures)


async def _play(contestant: Contestant, failures: dict[str, str]) -> Round | None:
    """A round, unless the contestant is out, or fails now and may."""
    if contestant.name in failures:
        return None
    try:
        return await _round(contestant)
    except Exception as error:
        if not contestant.is_optional:
            raise
        failures[contestant.name] = str(error) or type(error).__name__
        return None


async def _round(contestant: Contestant) -> Round:
    processes = {CLIENT: os.getpid(), **contestant.processes}
    gc.collect()
    before_s = {name: cpu_s(pid) for name, pid in processes.items()}
    started_s = time.perf_counter()
    work = await contestant.run()
    wall_s = time.perf_counter() - started_s
    after_s = {name: cpu_s(pid) for name, pid in processes.items()}
    return Round(
        work=work,
        wall_s=work.figures.get("wall_s", wall_s),
        cpu_s={name: after_s[name] - before_s[name] for name in processes},
    )
