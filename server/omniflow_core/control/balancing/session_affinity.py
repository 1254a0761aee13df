"""Session affinity: where the session was last, for replicas that keep what they know of it.

Unlike `consistent_hash` alone it moves no session when a replica is added. A session that is new, or whose replica is gone,
starts where its hash says, so that control planes which do not know each other's sessions agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from omniflow_core.control.balancing import consistent_hash
from omniflow_core.control.balancing.port import Candidate, Choice


def choose(candidates: Sequence[Candidate], choice: Choice) -> int:
    """The one that served the session last, otherwise the one that its hash names."""
    for index, candidate in enumerate(candidates):
        if candidate.key == choice.last:
            return index
    return consistent_hash.choose(candidates, choice)
