"""The kept revisions of a graph and how new calls are shared among them: what a change moves, and which revision is dropped.

Does not know plans, stores or clocks. A graph has 100 places; each belongs to a revision, and a call falls into one by the
hash of its affinity:

    v1 90 %, v2 10 %       v1 v1 v1 ... v1 v1 v1 v1 | v2 v2
    v1 80 %, v2 20 %       v1 v1 v1 ... v1 v1 | v2 v2 v2 v2         ten places went from v1 to v2, no other moved

The places are kept with the revisions, and a change of shares moves as few of them as it can: who loses gives its last ones,
who gains takes them, the older first. So an affinity keeps its revision while shares stay as they are, and widening a canary
moves affinities into the canary only. (Ranges that are computed from the shares alone, in the order of age, do not do that:
with three revisions the border between the two older ones moves when the newest gets more.)
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason, Violation, invalid_field

MAX_REVISIONS = 8
"""Kept revisions of a graph: enough to go back over a day of deployments, few enough to keep in one row of the store."""
PLACES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A definition as it was applied, and when that was first."""

    message: graph_spec_pb2.GraphSpec
    create_time_ms: int = 0

    @property
    def name(self) -> str:
        return self.message.revision


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphVersions:
    """Revisions, the oldest first, and the places of new calls. Changes give a new value, or the same when they change
    nothing."""

    revisions: tuple[Revision, ...]
    places: tuple[str, ...]
    """Name of a revision for each place."""

    @classmethod
    def first(cls, revision: Revision) -> GraphVersions:
        """A graph that is new: its revision takes all calls."""
        return cls(revisions=(revision,), places=(revision.name,) * PLACES)

    @property
    def graph(self) -> str:
        return self.revisions[0].message.name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(revision.name for revision in self.revisions)

    @property
    def shares(self) -> dict[str, int]:
        """Percent by revision, the oldest first; they add up to 100."""
        return {name: self.places.count(name) for name in self.names}

    @property
    def called(self) -> tuple[Revision, ...]:
        """Revisions with a share."""
        return tuple(revision for revision in self.revisions if revision.name in self.places)

    @property
    def main(self) -> str:
        """The revision with the largest share, the newest of several."""
        return max(reversed(self.names), key=self.places.count)

    def choose(self, affinity: str) -> str:
        """The revision for new calls of an affinity."""
        return self.places[place_of(self.graph, affinity)]

    def find(self, name: str) -> Revision:
        """Raises UNKNOWN_RESOURCE naming the kept ones."""
        for revision in self.revisions:
            if revision.name == name:
                return revision
        raise OmniFlowError(
            Reason.UNKNOWN_RESOURCE,
            f"{self.graph} has no revision {name!r}; kept, the newest first: {', '.join(reversed(self.names))}.",
            violations=(Violation(field="revision", description="no such revision"),),
        )

    def adding(self, revision: Revision, canary_percent: int | None = None) -> GraphVersions:
        """With the revision, as a canary or for all new calls. One that is kept already stays where it is, and only shares
        change. The others keep the proportions of their shares. Raises INVALID_FIELD when none of them has one, and
        QUOTA_EXCEEDED when `MAX_REVISIONS` have."""
        known = self
        if revision.name not in self.names:
            known = dataclasses.replace(self, revisions=(*self.revisions, revision))
        return known._sharing(known._canary_shares(revision.name, canary_percent))._trimmed(revision.name)

    def with_shares(self, shares: Sequence[tuple[str, int]]) -> GraphVersions:
        """With percents for kept revisions, none for the rest. Raises INVALID_FIELD with every fault as `shares[i]`."""
        violations = list(self._faults(shares))
        if violations:
            first = violations[0]
            raise OmniFlowError(Reason.INVALID_FIELD, f"{first.field}: {first.description}", violations=violations)
        return self._sharing(dict(shares))

    def _faults(self, shares: Sequence[tuple[str, int]]) -> list[Violation]:
        found: list[Violation] = []
        seen: set[str] = set()
        for i, (name, _) in enumerate(shares):
            if name not in self.names:
                kept = ", ".join(reversed(self.names))
                fault = f"{self.graph} has no revision {name!r}; kept, the newest first: {kept}"
                found.append(Violation(field=f"shares[{i}].revision", description=fault))
            elif name in seen:
                found.append(Violation(field=f"shares[{i}].revision", description=f"{name!r} is named twice"))
            seen.add(name)
        total = sum(percent for _, percent in shares)
        if total != PLACES:
            found.append(Violation(field="shares", description=f"they add up to {total}, they must to {PLACES}"))
        return found

    def _canary_shares(self, name: str, canary_percent: int | None) -> dict[str, int]:
        if canary_percent is None or canary_percent == PLACES or len(self.revisions) == 1:
            return {name: PLACES}
        others = {other: share for other, share in self.shares.items() if share and other != name}
        if not others:
            raise invalid_field(
                "canary_percent",
                f"revision {name} of {self.graph} has all new calls, so no other has a share to keep; "
                "set the shares of both (SetGraphTraffic, `omniflow graph traffic`)",
            )
        return {**split(PLACES - canary_percent, others), name: canary_percent}

    def _sharing(self, shares: Mapping[str, int]) -> GraphVersions:
        """With as few places moved as the shares, which add up to 100, allow."""
        left = {name: shares.get(name, 0) for name in self.names}
        kept: list[str] = []
        for name in self.places:
            kept.append(name if left[name] else "")
            left[name] -= bool(left[name])
        taking = iter([name for name in self.names for _ in range(left[name])])
        places = tuple(name or next(taking) for name in kept)
        return self if places == self.places else dataclasses.replace(self, places=places)

    def _trimmed(self, added: str) -> GraphVersions:
        """Without the oldest revision that has no share when there are too many; `added` stays."""
        if len(self.revisions) <= MAX_REVISIONS:
            return self
        for revision in self.revisions:
            if revision.name not in self.places and revision.name != added:
                return dataclasses.replace(self, revisions=tuple(r for r in self.revisions if r is not revision))
        raise OmniFlowError(
            Reason.QUOTA_EXCEEDED,
            f"{MAX_REVISIONS} revisions of {self.graph} have a share of its calls, and no more are kept; "
            "take the share of one first (SetGraphTraffic, `omniflow graph traffic`).",
            violations=(Violation(field="graph", description=f"the limit is {MAX_REVISIONS} revisions"),),
        )


def place_of(graph: str, affinity: str) -> int:
    """The place of an affinity's calls, the same in every process and for every change of shares."""
    digest = hashlib.blake2b(f"{graph}\0{affinity}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % PLACES


def split(whole: int, proportions: Mapping[str, int]) -> dict[str, int]:
    """Integers that add up to `whole` in the proportions: rounded down, and what is missing goes to those with the largest
    remainders, the first of equal ones. None grows when `whole` is at most the sum of the proportions, none shrinks when it
    is at least that."""
    total = sum(proportions.values())
    parts = {name: share * whole // total for name, share in proportions.items()}
    by_remainder = sorted(proportions, key=lambda name: -(proportions[name] * whole % total))
    for name in by_remainder[: whole - sum(parts.values())]:
        parts[name] += 1
    return parts
