"""What a choice of a replica is made from: the candidates as they are now, and what is asked for.

Every policy is a function `choose(candidates, choice) -> index` of these two and nothing else. Candidates come in a stable
order and chance comes as draws, so that the same input gives the same choice. Who measures the figures, which replicas are
candidates at all and what a unit of cost is are the caller's matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A replica that could take the activation."""

    key: str
    load: int
    """Activations of this process in flight there, and those that wait for it here."""
    foreign_load: int = 0
    """What the replica reports beyond those: activations of other control planes."""
    capacity: int = 0
    """Activations that it runs at once; 0: unknown."""
    cost: float = 0.0
    """Sum of the expected costs of this process's activations there."""
    foreign_cost: float = 0.0
    """The same for other control planes'."""
    seconds_per_cost: float = 0.0
    """Measured seconds for one unit of cost; 0: unknown."""
    resident_tokens: int = 0
    """Tokens of the prefix that it holds."""
    transfer_cost: float = 0.0
    """Seconds to bring it what it must have before it can begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a replica is chosen for."""

    turn: int
    """Counts the choices of the node."""
    affinity: str
    """Names the session, or the call of none."""
    draws: tuple[float, float]
    """By chance, uniform in [0, 1) and independent of each other."""
    cost: float = 1.0
    """Expected cost of the activation."""
    prefix_tokens: int = 0
    """Tokens that the replica must have computed before the activation gives its first yield."""
    last: str = ""
    """Key of the replica that served the session last; empty: none, or not known."""


Policy = Callable[[Sequence[Candidate], Choice], int]
"""Index of the candidate to take. There is at least one candidate."""


def in_turn(index: int, choice: Choice, count: int) -> int:
    """Place of a candidate among equals: whose turn it is comes first, so that equals share the work."""
    return (index - choice.turn) % count
