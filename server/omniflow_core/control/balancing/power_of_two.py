"""Power of two choices: the less loaded of two candidates that chance names.

Nearly as even as the least loaded of all, and it does not send everybody to the same replica while reports of its load are
old: M. Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 12 (10), 2001.
"""

from __future__ import annotations

from collections.abc import Sequence

from omniflow_core.control.balancing.least_loaded import load_of
from omniflow_core.control.balancing.port import Candidate, Choice


def choose(candidates: Sequence[Candidate], choice: Choice) -> int:
    """The less loaded of two different ones, of equals the first that was drawn."""
    count = len(candidates)
    first = int(choice.draws[0] * count)
    if count == 1:
        return first
    other = int(choice.draws[1] * (count - 1))
    second = other + (other >= first)  # the first is left out of the second draw
    return second if load_of(candidates[second]) < load_of(candidates[first]) else first
