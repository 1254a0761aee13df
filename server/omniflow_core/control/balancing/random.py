"""Random: any of them with the same chance, whatever they do."""

from __future__ import annotations

from collections.abc import Sequence

from omniflow_core.control.balancing.port import Candidate, Choice


def choose(candidates: Sequence[Candidate], choice: Choice) -> int:
    """The one that the first draw falls on."""
    return int(choice.draws[0] * len(candidates))
