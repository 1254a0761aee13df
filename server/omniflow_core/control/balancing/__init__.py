"""Choice of a replica: which policy a node's `balance` names, and what a call keeps to.

Policies are pure functions, one a file; `port` has what they are given. Adding one is a file, a line in `POLICIES` and a
member of `Balance`; tests/core/control/balancing/test_contract.py then holds it to what all promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omniflow_core.control.balancing import (
    consistent_hash,
    cost_aware,
    kv_aware,
    least_loaded,
    power_of_two,
    random,
    round_robin,
    session_affinity,
)
from omniflow_core.control.balancing.port import Candidate, Choice, Policy
from omniflow_core.graph.spec import Balance, NodeSpec

__all__ = ["POLICIES", "CallReplicas", "Candidate", "Choice", "Policy", "choose"]

POLICIES: Mapping[Balance, Policy] = {
    Balance.ROUND_ROBIN: round_robin.choose,
    Balance.RANDOM: random.choose,
    Balance.LEAST_LOADED: least_loaded.choose,
    Balance.POWER_OF_TWO: power_of_two.choose,
    Balance.CONSISTENT_HASH: consistent_hash.choose,
    Balance.SESSION_AFFINITY: session_affinity.choose,
    Balance.COST_AWARE: cost_aware.choose,
    Balance.KV_AWARE: kv_aware.choose,
}


def choose(policy: Balance, candidates: Sequence[Candidate], choice: Choice) -> int:
    """Index of the candidate to take."""
    assert candidates, "a choice needs candidates"
    return POLICIES[policy](candidates, choice)


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

    def replica_for(self, node: NodeSpec, candidates: Sequence[Candidate], choice: Choice) -> Candidate | None:
        """The replica for an activation of the node; None without candidates."""
        if not candidates:
            return None
        known = self.kept(node)
        for candidate in candidates:
            if candidate.key == known:
                return candidate
        found = candidates[choose(node.balance, candidates, choice)]
        self._chosen[node.name] = found.key
        return found
