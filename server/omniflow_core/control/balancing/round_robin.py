"""Round robin: one after another, whatever they do."""

from __future__ import annotations

from collections.abc import Sequence

from omniflow_core.control.balancing.port import Candidate, Choice


def choose(candidates: Sequence[Candidate], choice: Choice) -> int:
    """The next one in the candidates' order."""
    return choice.turn % len(candidates)
