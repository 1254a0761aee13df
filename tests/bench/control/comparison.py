"""One topology: everybody in interleaved rounds, the rows of the table, and the promised ratios."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.control import ours, rivals
from tests.bench.control.entrants import CONCURRENCIES
from tests.bench.control.lanes import DEFAULT_LANE, GRPC
from tests.bench.control.rivals import Rivals
from tests.bench.harness.contest import Results, compete
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check
from tests.bench.harness.statistics import median, paired_ratios, percentile
from tests.support.system import System

COLUMNS = (
    "contestant",
    "p50 ms",
    "p99 ms",
    "req/s",
    *(f"req/s, {at_once} at once" for at_once in CONCURRENCIES),
    "CPU ms/req",
    "control MiB",
    "role MiB",
)
HELD_TOPOLOGY = "fan5"
HOLD_GRPC = 0.4
HOLD_LANE = 0.2
HOLD_INLINE = 0.3
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a contest of one topology gave."""

    topology: str
    results: Results
    memory_bytes: Mapping[str, tuple[int, int]]
    """By contestant: of the process that drives requests, and of a role; 0 without one."""
    systems: Mapping[str, str]
    """By contestant: name and version."""
    not_run: Mapping[str, str]
    """Peers that could not be measured, and why."""

    def rows(self) -> list[list[str]]:
        """Of the table."""
        missing = [[f"{self.topology}  {name}", "NOT RUN", *[""] * (len(COLUMNS) - 2)] for name in self.not_run]
        return [*(self._row(name) for name in self.results.rounds), *missing]

    def _row(self, name: str) -> list[str]:
        latencies_s = self.results.latencies_s(name)
        rates = (self.results.rates(name), *(self.results.figures(name, f"per_s_{c}") for c in CONCURRENCIES))
        return [
            f"{self.topology}  {name}",
            *(f"{percentile(latencies_s, share) * 1e3:.2f}" for share in (0.5, 0.99)),
            *(f"{median(rate):.0f}" for rate in rates),
            f"{median(self.results.figures(name, 'cpu_ms')):.2f}",
            *(f"{size_bytes / _MIB:.0f}" if size_bytes else "-" for size_bytes in self.memory_bytes[name]),
        ]

    def ratio(self, name: str, floor: str) -> float:
        """Of the medians of latencies in the same round; median over the rounds."""
        return median(paired_ratios(self.results.round_latencies_s(name), self.results.round_latencies_s(floor)))

    def as_json(self) -> dict[str, object]:
        """Everything that was measured."""
        return {
            "systems": dict(self.systems),
            "rss_bytes": {
                name: dict(zip(("control", "role"), rss, strict=True)) for name, rss in self.memory_bytes.items()
            },
            "contest": self.results.as_json(),
        }


async def compare(topology: str, systems: Mapping[str, System], peers: Rivals | None, options: Options) -> Comparison:
    """Runs the contest. A peer that fails in it counts as one that did not start."""
    async with contextlib.AsyncExitStack() as stack:
        entrants = await ours.enter(topology, systems, stack)
        if peers is not None:
            entrants += await peers.enter(topology, stack)
        results = await compete([entrant.contestant(options) for entrant in entrants], options)
        return Comparison(
            topology=topology,
            results=results,
            memory_bytes={e.name: e.memory_bytes() for e in entrants if e.name not in results.failures},
            systems={entrant.name: entrant.program.system for entrant in entrants},
            not_run={**(peers.not_run[topology] if peers is not None else {}), **results.failures},
        )


def checks(comparison: Comparison) -> tuple[list[Check], list[str]]:
    """The promises, and what of them could not be looked at."""
    each, one, projecting = rivals.SGLANG_OMNI_EACH, rivals.SGLANG_OMNI_ONE, rivals.SGLANG_OMNI_PROJECT
    promises: Sequence[tuple[str, Sequence[rivals.Peer], float]] = (
        (ours.lane_name(GRPC), (each,), HOLD_GRPC),
        (ours.lane_name(DEFAULT_LANE), (each,), HOLD_LANE),
        (ours.INLINE, (one, projecting), HOLD_INLINE),
        (ours.INLINE, (rivals.LANGGRAPH,), HOLD_INLINE),
    )
    found, notes = [], []
    for name, opponents, at_most in promises:
        what = f"{comparison.topology}, p50: {name} against {' or '.join(peer.name for peer in opponents)}"
        present = [peer.name for peer in opponents if peer.name in comparison.results.rounds]
        if name in comparison.results.rounds and present:
            value = max(comparison.ratio(name, opponent) for opponent in present)  # against the best of them
            found.append(Check(what=what, value=value, at_most=at_most))
        else:
            notes.append(f"not looked at: {what}")
    return found, notes
