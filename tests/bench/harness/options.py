"""How long a bench may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Of one run."""

    rounds: int = 9
    patience_s: float = 0.0
    """How long a round may wait for others to leave the machine alone."""
    is_quick: bool = False
    """A tenth of the work: shows that the bench runs, its figures mean little."""
    has_peers: bool = False
    """Other systems take part where a bench has some; their environments are built first."""

    def scaled(self, count: int) -> int:
        """An amount of work."""
        return max(1, count // 10) if self.is_quick else count
