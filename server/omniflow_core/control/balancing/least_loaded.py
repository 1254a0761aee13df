"""Least loaded: the shortest queue, counted in activations.

Right when activations cost about the same. It knows what this process sent at once and what others sent as late as the
replica reports it, so control planes that choose at the same moment choose alike; `power_of_two` spreads them.
"""

from __future__ import annotations

from collections.abc import Sequence

from omniflow_core.control.balancing.port import Candidate, Choice, in_turn


def choose(candidates: Sequence[Candidate], choice: Choice) -> int:
    """The one with the least load, of equals the one whose turn it is."""
    count = len(candidates)
    return min(range(count), key=lambda i: (load_of(candidates[i]), in_turn(i, choice, count)))


def load_of(candidate: Candidate) -> int:
    """Activations at the replica or on their way to it, whoever sent them."""
    return candidate.load + candidate.foreign_load
