"""Cost aware: where the activation would be done first, for activations that cost different amounts.

    (cost + foreign_cost + the activation's own cost) * seconds_per_cost

That is list scheduling by completion time: each activation goes, in order of arrival, where it ends earliest. With equal
replicas the last end is at most 2 - 1/m times the best possible one: R. Graham, "Bounds on Multiprocessing Timing
Anomalies", SIAM J. Appl. Math. 17 (2), 1969. Costs come from `Node.cost_field`, seconds from what the process measured;
without either it is the least loaded. A replica is taken to work its queue off one after another, so how many activations it
runs at once (`capacity`) is no part of it: where that differs between replicas, seconds must be measured per place.
"""

from __future__ import annotations

from collections.abc import Sequence

from omniflow_core.control.balancing.port import Candidate, Choice, in_turn


def choose(candidates: Sequence[Candidate], choice: Choice) -> int:
    """The one that would be done first, of equals the one whose turn it is."""
    count = len(candidates)
    usual_s = _usual_seconds_per_cost(candidates)

    def order(index: int) -> tuple[float, int]:
        candidate = candidates[index]
        work = candidate.cost + candidate.foreign_cost + choice.cost
        return work * (candidate.seconds_per_cost or usual_s), in_turn(index, choice, count)

    return min(range(count), key=order)


def _usual_seconds_per_cost(candidates: Sequence[Candidate]) -> float:
    """What a replica that was not measured is taken for: as fast as the others are on average, or all alike."""
    known = [candidate.seconds_per_cost for candidate in candidates if candidate.seconds_per_cost]
    return sum(known) / len(known) if known else 1.0
