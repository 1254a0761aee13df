"""Count joins of a call: gives them their events, fires them when they are ready, and ends those that never will be.

A count join gathers from the whole call, so until it has fired it may contribute to any bucket below it: it holds their
leases from the moment they open until it fires, or until the call has nothing else left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from omniflow_core.control.counts import AmbiguousCompanionError, CountConflictError, CountJoin
from omniflow_core.control.events import Value
from omniflow_core.control.failures import (
    CallFailure,
    ambiguous_companion,
    count_conflict,
    count_not_reached,
    invalid_count,
)
from omniflow_core.control.leases import LeaseRoot
from omniflow_core.control.work import CallWork
from omniflow_core.control.work_items import GivenYield, Reservation
from omniflow_core.graph.routing import Delivery, GraphPlan, NodePlan
from omniflow_core.graph.spec import OnImpossible

CountOf = Callable[[Value], int | None]
"""The count that a value gives; None when it is none."""


class OpenCountJoin:
    """A count join of a call, with place and leases of its activation until it is settled."""

    __slots__ = ("join", "node", "reservation")

    def __init__(self, node: NodePlan, join: CountJoin, reservation: Reservation) -> None:
        self.node = node
        self.join = join
        self.reservation: Reservation | None = reservation


class CountJoins:
    """All count joins of one call."""

    __slots__ = ("_by_node", "_count_of", "_holding", "_work")

    def __init__(self, plan: GraphPlan, work: CallWork, count_of: CountOf) -> None:
        self._work = work
        self._count_of = count_of
        self._by_node: dict[str, OpenCountJoin] = {}
        self._holding: dict[int, list[OpenCountJoin]] = {}
        """By index of a prefix join: the count joins on a route into it."""
        for node in plan.count_joins:
            assert node.count is not None
            places = {tree: work.trees[tree].add_root() for tree in node.reaches}
            holder = work.new_holder()
            work.count_holders.add(holder)
            entry = OpenCountJoin(node, CountJoin(node.count), Reservation(holder, places, {}))
            self._by_node[node.name] = entry
            for join in node.tracks:
                self._holding.setdefault(join, []).append(entry)

    def __iter__(self) -> Iterator[OpenCountJoin]:
        """Those that have not settled, in topological order."""
        return (entry for entry in self._by_node.values() if entry.reservation is not None)

    def hold(self, join: int, root: LeaseRoot) -> None:
        """A bucket opens that count joins may still contribute to."""
        for entry in self._holding.get(join, ()):
            if entry.reservation is not None:
                scopes = dict(entry.reservation.scopes)
                scopes[join] = root
                entry.reservation.scopes = scopes
                self._work.leases.acquire(root, entry.reservation.holder)

    def admit(self, delivery: Delivery, yielded: GivenYield) -> bool:
        """Gives one facet what a yield has for it; True when something came. `fire` follows when all facets have it."""
        entry = self._by_node[delivery.node.name]
        assert entry.node.count is not None
        counts = entry.node.count.count_fields
        given: dict[str, list[Value]] = {}
        for route in delivery.routes:
            if route.source in yielded.fields:
                given.setdefault(route.target, []).append(yielded.fields[route.source])
        for field, values in given.items():
            if field in counts:
                self._declare(entry, field, values)
            elif entry.reservation is not None:
                before = entry.join.size_bytes
                entry.join.admit(delivery.group_index, field, yielded.path, tuple(values), yielded.size_bytes)
                self._work.room.total_bytes += entry.join.size_bytes - before
        self._work.room.check(delivery.node.name, delivery.group, entry.join.size_bytes)
        return bool(given)

    def _declare(self, entry: OpenCountJoin, field: str, values: list[Value]) -> None:
        for value in values:
            count = self._count_of(value)
            if count is None or count < 0:
                raise CallFailure(invalid_count(entry.node.name, field))
            try:
                entry.join.declare(field, count)
            except CountConflictError as conflict:
                raise CallFailure(count_conflict(entry.node.name, conflict)) from None

    def fire(self, node: NodePlan) -> None:
        """Starts the join's activation when it is ready."""
        entry = self._by_node[node.name]
        reservation = entry.reservation
        if reservation is None or not entry.join.is_ready():
            return
        try:
            facets, origin = entry.join.assemble()
        except AmbiguousCompanionError as ambiguous:
            raise CallFailure(ambiguous_companion(node.name, ambiguous)) from None
        entry.reservation = None
        size_bytes, counts = entry.join.size_bytes, entry.join.counts
        entry.join = _only_counts(entry)
        entry.join.counts = counts  # a conflicting count that comes late is an error all the same
        self._work.room.total_bytes -= size_bytes
        self._work.start_reserved(reservation, origin, node, -1, facets, size_bytes)

    def give_up(self) -> bool:
        """Nothing else is left to do: settles the first join that has not fired. False when there is none."""
        entry = next(iter(self), None)
        if entry is None:
            return False
        unmet = entry.join.unmet()
        spec = entry.node.spec
        if unmet is not None and spec is not None and spec.on_impossible is OnImpossible.FAIL:
            raise CallFailure(count_not_reached(entry.node.name, unmet))
        reservation, entry.reservation = entry.reservation, None
        assert reservation is not None
        size_bytes = entry.join.size_bytes
        entry.join = _only_counts(entry)
        self._work.drop(reservation)
        self._work.flush()
        self._work.room.total_bytes -= size_bytes
        return True

    def clear(self) -> None:
        """The call has ended."""
        self._by_node.clear()
        self._holding.clear()


def _only_counts(entry: OpenCountJoin) -> CountJoin:
    assert entry.node.count is not None
    return CountJoin(entry.node.count)
