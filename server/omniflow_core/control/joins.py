"""Prefix joins of a call: opens a bucket at each yield of an anchor, and settles it when its lease root has closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omniflow_core.control.buckets import Bucket
from omniflow_core.control.failures import CallFailure, impossible_bucket
from omniflow_core.control.leases import OPENING, LeaseRoot
from omniflow_core.control.paths import Path
from omniflow_core.control.work import CallWork
from omniflow_core.control.work_items import Activation, GivenYield, Scopes
from omniflow_core.graph.routing import Delivery, JoinPlan
from omniflow_core.graph.spec import OnImpossible

if TYPE_CHECKING:
    from omniflow_core.control.count_joins import CountJoins

_NONE_OPENED: Sequence[LeaseRoot] = ()


class PrefixJoins:
    """Buckets of one call, from the anchor's yield to their activation."""

    __slots__ = ("_counts", "_last_root", "_work")

    def __init__(self, work: CallWork, counts: CountJoins) -> None:
        self._work = work
        self._counts = counts
        self._last_root: LeaseRoot = 0

    def open(
        self, producer: Activation, anchored: Sequence[JoinPlan], path: Path, ordinal: int
    ) -> tuple[Scopes, Sequence[LeaseRoot]]:
        """(buckets that work below the yield may contribute to, those of them that the yield opens)."""
        if not anchored:
            return producer.scopes, _NONE_OPENED
        work = self._work
        scopes = dict(producer.scopes)
        opened: list[LeaseRoot] = []
        for join in anchored:
            self._last_root += 1
            root = self._last_root
            work.leases.open(root)
            work.buckets[root] = Bucket(root, join, path)
            scopes[join.index] = root
            opened.append(root)
            self._counts.hold(join.index, root)
        for root in opened:
            bucket = work.buckets[root]
            hosted = producer.hosted if bucket.join.segment is not None else None
            bucket.reservation = work.reserve(bucket.join.node, producer, ordinal, scopes, hosted)
        return scopes, opened

    def opened(self, roots: Sequence[LeaseRoot]) -> None:
        """Everything that the yield starts is registered: its own leases go."""
        for root in roots:
            if self._work.leases.release(root, OPENING):
                self._work.closed.append(root)

    def contribute(self, delivery: Delivery, given: GivenYield) -> int:
        """Stores what a yield has for the join. Returns 1 when the yield must wait for room, else 0."""
        bucket: Bucket | None = None
        fields = given.fields
        for route in delivery.routes:
            if route.source in fields:
                if bucket is None:
                    bucket = self._work.buckets[given.scopes[delivery.join]]
                bucket.add(route.target, route.order, given.path, given.ordinals, fields[route.source])
        if bucket is None:
            return 0  # skipped
        if bucket.reservation is not None and bucket.reservation.hosted is not None:
            return 0  # the value stays inside the segment, and its replica counts it
        bucket.size_bytes += given.size_bytes
        room = self._work.room
        room.total_bytes += given.size_bytes
        if not room.is_over:
            return 0
        room.check(bucket.join.node.name, bucket.join.group, bucket.size_bytes)
        return room.owe(given)

    def settle(self, root: LeaseRoot) -> None:
        """Nothing can be contributed any more: the bucket is ready, impossible or vacant."""
        work = self._work
        bucket = work.buckets.pop(root)
        reservation = bucket.reservation
        assert reservation is not None, "an open bucket keeps a place"
        node = bucket.join.node
        if bucket.fields and not bucket.missing:
            work.room.total_bytes -= bucket.size_bytes  # and charged again to the activation, until it is accepted
            work.start_reserved(
                reservation,
                bucket.origin(),
                node,
                bucket.join.group_index,
                (bucket.facet(),),
                bucket.size_bytes,
            )
            return
        if bucket.fields and node.spec is not None and node.spec.on_impossible is OnImpossible.FAIL:
            raise CallFailure(impossible_bucket(bucket))
        work.drop(reservation)
        work.flush()
        work.room.total_bytes -= bucket.size_bytes
