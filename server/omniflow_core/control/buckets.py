"""Prefix-join buckets: contributions that descend from one yield of a join's anchor.

A bucket collects in any order and is assembled once, when its lease root has closed; sorting then is enough, because nothing
can come any more. Its identity is the anchor's token, whatever its contributions share beyond that.

    bucket of j below c0:  h from c0:d1:h0, k from c0:k0, h from c0:d0:h0   ->   h = [c0:d0:h0, c0:d1:h0], k = [c0:k0]
"""

from __future__ import annotations

from operator import itemgetter

from omniflow_core.control.commands import Facet
from omniflow_core.control.events import Value
from omniflow_core.control.leases import LeaseRoot
from omniflow_core.control.paths import Level, Path, common_prefix
from omniflow_core.control.work_items import Reservation
from omniflow_core.graph.routing import JoinPlan

_Contribution = tuple[int, Path, tuple[int, ...], Value]
"""Order of the edge, path, its ordinals, value."""


class Bucket:
    """What has come for one join below one yield of its anchor."""

    __slots__ = ("anchor", "bucket_id", "fields", "join", "reservation", "size_bytes")

    def __init__(self, bucket_id: LeaseRoot, join: JoinPlan, anchor: Path) -> None:
        self.bucket_id = bucket_id
        self.join = join
        self.anchor = anchor
        self.fields: dict[str, list[_Contribution]] = {}
        self.size_bytes = 0
        self.reservation: Reservation | None = None
        """Place and leases of the activation that it may start."""

    def add(self, field: str, order: int, path: Path, ordinals: tuple[int, ...], value: Value) -> None:
        """Takes a contribution in."""
        found = self.fields.get(field)
        if found is None:
            self.fields[field] = [(order, path, ordinals, value)]
        else:
            found.append((order, path, ordinals, value))

    @property
    def missing(self) -> list[str]:
        """Required fields without a contribution, by name."""
        return sorted(field for field in self.join.required if field not in self.fields)

    def origin(self) -> Path | None:
        """The longest common prefix of all contributions: at least the anchor's yield.

        Empty when one of them descends from a count join that selected nothing, and so from no yield at all.
        """
        return common_prefix(path for items in self.fields.values() for _, path, _, _ in items)

    def facet(self) -> Facet:
        """All contributions, each field in order: by edge, then by the path below the anchor, outermost first."""
        fields: dict[str, tuple[Value, ...]] = {}
        paths: dict[str, tuple[tuple[int, ...], ...]] = {}
        for field, items in self.fields.items():
            if len(items) > 1:
                items.sort(key=self._rank)
            fields[field] = tuple(map(_VALUE, items))
            paths[field] = tuple(map(_ORDINALS, items))
        return Facet(self.join.group, fields, paths)

    def _rank(self, item: _Contribution) -> tuple[int, tuple[Level, ...]]:
        return item[0], item[1].below(self.anchor)


_ORDINALS = itemgetter(2)
_VALUE = itemgetter(3)
