"""Consistent hash: the same replica for the same affinity, without a memory of it.

Rendezvous hashing: every candidate has a weight for the affinity, and the heaviest wins. One that comes or goes moves only
the affinities that it takes or had, and a share of them that is fair by itself: D. Thaler, C. Ravishankar, "Using
Name-Based Mappings to Increase Hit Rates", IEEE/ACM ToN 6 (1), 1998. A ring would need virtual nodes for the same evenness.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from omniflow_core.control.balancing.port import Candidate, Choice


def choose(candidates: Sequence[Candidate], choice: Choice) -> int:
    """The one with the highest weight for the affinity."""
    return max(range(len(candidates)), key=lambda i: _weight(candidates[i].key, choice.affinity))


def _weight(key: str, affinity: str) -> bytes:
    return hashlib.blake2b(f"{affinity}\0{key}".encode(), digest_size=8).digest()
