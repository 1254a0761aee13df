"""Choice of a replica: pure functions of what is known when the choice is made.

Candidates come in a stable order. Draws by chance arrive from the caller, so that a recorded call replays alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from omniflow_core.graph.spec import Balance


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A replica that could take the activation; `load` counts what it runs and what waits for it."""

    key: str
    load: int


def choose(policy: Balance, candidates: Sequence[Candidate], *, turn: int, affinity: str) -> int:
    """Index of the candidate to take. `turn` counts the choices of the node, `affinity` names the session or call.

    Policies that need more than load and affinity (cost, residency, chance) fall back to the least loaded.
    """
    assert candidates, "a choice needs candidates"
    if policy is Balance.ROUND_ROBIN:
        return turn % len(candidates)
    if policy in (Balance.CONSISTENT_HASH, Balance.SESSION_AFFINITY):
        return _highest_weight(candidates, affinity)
    # ties go round, so that idle replicas share the work
    return min(range(len(candidates)), key=lambda i: (candidates[i].load, (i - turn) % len(candidates)))


def _highest_weight(candidates: Sequence[Candidate], affinity: str) -> int:
    """Rendezvous hashing: a replica that comes or goes moves only the keys that it takes or leaves."""
    return max(
        range(len(candidates)),
        key=lambda i: hashlib.blake2b(f"{affinity}\0{candidates[i].key}".encode(), digest_size=8).digest(),
    )
