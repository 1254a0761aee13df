"""Choice of a replica: pure functions of what is known when the choice is made.

Candidates come in a stable order. Draws by chance arrive from the caller, so that a recorded call replays alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from omniflow_core.graph.spec import Balance, NodeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A replica that could take the activation; `load` counts what it runs and what waits for it."""

    key: str
    load: int


class CallReplicas:
    """The replicas that one call uses: the first delivery to a node chooses, and later ones keep to it.

    A replica that is no longer among the candidates is replaced by a new choice. Nodes that `spread` choose every time.
    """

    __slots__ = ("_chosen",)

    def __init__(self) -> None:
        self._chosen: dict[str, str] = {}

    def kept(self, node: NodeSpec) -> str | None:
        """Key of the replica that the node keeps to, when it has chosen one and does not spread."""
        return None if node.is_spread else self._chosen.get(node.name)

    def keep(self, node: NodeSpec, key: str) -> None:
        """The node has chosen; there was no other."""
        self._chosen[node.name] = key

    def replica_for(
        self, node: NodeSpec, candidates: Sequence[Candidate], *, affinity: str, turn: int
    ) -> Candidate | None:
        """The replica for an activation of the node; None without candidates."""
        if not candidates:
            return None
        known = self.kept(node)
        for candidate in candidates:
            if candidate.key == known:
                return candidate
        found = candidates[choose(node.balance, candidates, turn=turn, affinity=affinity)]
        self._chosen[node.name] = found.key
        return found


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
