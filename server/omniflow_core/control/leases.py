"""Causal leases: which work may still contribute to a bucket.

A *lease root* is a bucket; its holders are activations and reservations (activations that may still come to be) on a route
into it. Whoever starts work registers it as a holder before letting its own lease go, so a root closes exactly when nothing
below its anchor can contribute any more. There is no time limit: what a lost replica held is released with its activation.

    yield c0 of the anchor     open(7)            {yield}
    it starts d and k          acquire            {yield, d, k}
    the yield is handled       release(yield)     {d, k}
    d starts h, d finishes     acquire, release   {h, k}
    h and k finish             release            closed
"""

from __future__ import annotations

from collections.abc import Mapping

LeaseRoot = int
Holder = int
"""An activation's id; negative for a reservation; OPENING for the yield that opened the root, while it is handled."""

OPENING: Holder = 0


class LeaseTable:
    """Holders of each open root, as sets: acquiring or releasing twice is the same as once."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[LeaseRoot, set[Holder]] = {}

    def __len__(self) -> int:
        """Leases that are held."""
        return sum(map(len, self._holders.values()))

    def open(self, root: LeaseRoot) -> None:
        """A new root, held by the yield that opens it."""
        self._holders[root] = {OPENING}

    def acquire(self, root: LeaseRoot, holder: Holder) -> None:
        """Holds an open root."""
        self._holders[root].add(holder)

    def release(self, root: LeaseRoot, holder: Holder) -> bool:
        """Lets go; True when that closed the root, which is forgotten then."""
        holders = self._holders.get(root)
        if holders is None:
            return False
        holders.discard(holder)
        if holders:
            return False
        del self._holders[root]
        return True

    def holders_of(self, root: LeaseRoot) -> frozenset[Holder]:
        """Who holds a root; empty when it is closed."""
        return frozenset(self._holders.get(root, ()))

    def clear(self) -> None:
        """Forgets everything: the call has ended."""
        self._holders.clear()

    def check_integrity(self, expected: Mapping[LeaseRoot, set[Holder]]) -> None:
        """Compares with what the holders themselves say. For tests and idle drivers."""
        assert self._holders == expected, f"leases are {self._holders}, their holders say {expected}"
        assert all(self._holders.values()), "a root without holders is open"
