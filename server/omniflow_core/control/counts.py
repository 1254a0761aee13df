"""Count joins: one bucket per call and node over all its input groups, ready by declared counts. Paper: 3.5 and A.2.

    triggers vit: vit_count, done: 1        facet image {vit, meta}, facet text {done}, facet counts {vit_count}
    admitted  vit@p0  vit_count=2  meta@p0  done@l3  meta@p1  vit@p1
    selected  vit: p0 p1   done: l3         image: vit=[p0, p1] meta=[p0, p1] (the nearest to each), text: done=[l3]

Each trigger selects its first N distinct events in order of admission and freezes. The selected events of a facet are its
*anchors*; every companion field gives each of them the value whose path is nearest among its ancestors and descendants.
Ready when every count is known and met and every anchor has its companions. Then, and only then, is anything sorted: by a
stable topological order, because paths of different node sequences do not compare.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from omniflow_core.control.commands import Facet
from omniflow_core.control.events import Value
from omniflow_core.control.paths import Path, common_prefix
from omniflow_core.graph.routing import CountPlan

Values = tuple[Value, ...]


class CountConflictError(Exception):
    """A count came twice with different values."""

    def __init__(self, field: str, known: int, other: int) -> None:
        super().__init__(field, known, other)
        self.field, self.known, self.other = field, known, other


class AmbiguousCompanionError(Exception):
    """Two companions are equally near to one anchor."""

    def __init__(self, field: str, group: str, anchor: Path) -> None:
        super().__init__(field)
        self.field, self.group, self.anchor = field, group, anchor


@dataclass(frozen=True, slots=True)
class Unmet:
    """Why a count join has not fired. `have` and `want` are numbers of events, `want` None for a count that never came."""

    field: str
    have: int
    want: int | None
    group: str = ""
    """For a missing companion, its group."""


class CountJoin:
    """One count join of one call."""

    __slots__ = (
        "_companions",
        "_events",
        "_plan",
        "_sequence",
        "_unmatched",
        "counts",
        "has_data",
        "size_bytes",
    )

    def __init__(self, plan: CountPlan) -> None:
        self._plan = plan
        self.counts: dict[str, int | None] = {t.field: t.constant for t in plan.triggers}
        """Declared count of each trigger, None while it is not known."""
        self._events: dict[str, dict[Path, tuple[int, Values]]] = {t.field: {} for t in plan.triggers}
        """By trigger: its distinct events in order of admission, with facet and values."""
        self._sequence: dict[Path, int] = {}
        """Order of admission of trigger events."""
        self._companions: dict[tuple[int, str], _Companions] = {
            (index, field): _Companions() for index, facet in plan.facets.items() for field in facet.companions
        }
        self._unmatched: list[tuple[int, str, Path]] | None = None
        """Anchors that still need a companion, once the selection is final; the last one is looked for first."""
        self.has_data = False
        """A trigger or companion has come: the join must fire, or its call says why it cannot."""
        self.size_bytes = 0

    # --- what comes -------------------------------------------------------------------------------------------------

    def declare(self, count_field: str, count: int) -> None:
        """A count has come. Raises CountConflictError when another one was known."""
        for trigger in self._plan.triggers:
            if trigger.constant is None and trigger.count_field == count_field:
                known = self.counts[trigger.field]
                if known is not None and known != count:
                    raise CountConflictError(count_field, known, count)
                self.counts[trigger.field] = count

    def admit(self, facet: int, field: str, path: Path, values: Values, size_bytes: int) -> None:
        """A trigger or companion field of one event has come through a facet."""
        self.has_data = True
        companions = self._companions.get((facet, field))
        if companions is not None:
            companions.add(path, values)
            self.size_bytes += size_bytes
            return
        events = self._events[field]
        want = self.counts[field]
        if path in events or (want is not None and len(events) >= want):
            return  # the selection is frozen
        events[path] = facet, values
        self._sequence.setdefault(path, len(self._sequence))
        self.size_bytes += size_bytes

    @property
    def admitted(self) -> dict[str, int]:
        """Events that each trigger has, up to its count."""
        return {field: len(events) for field, events in self._events.items()}

    # --- readiness ----------------------------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Every count is known and met and companions exist; never before something has come."""
        if not self.has_data:
            return False
        if self._unmatched is None:
            for field, want in self.counts.items():
                if want is None or len(self._events[field]) < want:
                    return False
            self._unmatched = [
                (facet, field, anchor)
                for facet, plan in self._plan.facets.items()
                for anchor in self._anchors(facet)
                for field in plan.companions
            ]
        while self._unmatched:
            facet, field, anchor = self._unmatched[-1]
            if not self._companions[facet, field].has_for(anchor):
                return False
            self._unmatched.pop()
        return True

    def unmet(self) -> Unmet | None:
        """What is missing when nothing can come any more; None when the join was never meant to fire."""
        if not self.has_data:
            return None
        for field, want in self.counts.items():
            have = len(self._events[field])
            if want is None or have < want:
                return Unmet(field, have, want)
        assert self._unmatched, "a join that is not ready lacks something"
        facet, field, _ = self._unmatched[-1]
        missing = sum(1 for f, name, _ in self._unmatched if (f, name) == (facet, field))
        want = len(self._anchors(facet))
        return Unmet(field, want - missing, want, self._plan.facets[facet].group)

    # --- assembly -----------------------------------------------------------------------------------------------------

    def assemble(self) -> tuple[tuple[Facet, ...], Path | None]:
        """(facets that selected something, common prefix of all selected paths). Raises AmbiguousCompanionError."""
        facets: list[Facet] = []
        used: list[Path] = []
        for index, plan in self._plan.facets.items():
            anchors = self._sorted(self._anchors(index))
            if not anchors:
                continue
            fields: dict[str, Values] = {}
            paths: dict[str, tuple[tuple[int, ...], ...]] = {}
            for field in plan.triggers:
                own = self._sorted(p for p in self._selected(field) if self._events[field][p][0] == index)
                if own:
                    _list(fields, paths, field, [(path, self._events[field][path][1]) for path in own])
            used.extend(anchors)
            for field in plan.companions:
                companions = self._companions[index, field]
                found = [companions.nearest(anchor) for anchor in anchors]
                for anchor, nearest in zip(anchors, found, strict=True):
                    if nearest is None:
                        raise AmbiguousCompanionError(field, plan.group, anchor)
                near = [path for path in found if path is not None]
                _list(fields, paths, field, [(path, companions.values_of(path)) for path in near])
                used.extend(near)
            facets.append(Facet(plan.group, fields, paths))
        return tuple(facets), common_prefix(used)

    def _selected(self, field: str) -> Iterable[Path]:
        return islice(self._events[field], self.counts[field])

    def _anchors(self, facet: int) -> list[Path]:
        """Events that some trigger selected through the facet, each once, in order of admission."""
        found = {
            path
            for field in self._plan.facets[facet].triggers
            for path in self._selected(field)
            if self._events[field][path][0] == facet
        }
        return sorted(found, key=self._sequence.__getitem__)

    def _sorted(self, paths: Iterable[Path]) -> list[Path]:
        """Stable topological order: paths of one shape by their ordinals, the earliest admitted of what is free first."""
        chains: dict[tuple[int, ...], list[Path]] = {}
        for path in paths:
            chains.setdefault(path.shape(), []).append(path)
        queues = [deque(sorted(chain, key=Path.ordinals)) for chain in chains.values()]
        heads = [(self._sequence[queue[0]], number) for number, queue in enumerate(queues)]
        heapq.heapify(heads)
        order: list[Path] = []
        while heads:
            _, number = heapq.heappop(heads)
            queue = queues[number]
            order.append(queue.popleft())
            if queue:
                heapq.heappush(heads, (self._sequence[queue[0]], number))
        return order


class _Companions:
    """Candidates of one companion field of one facet, found by any path above or below them."""

    __slots__ = ("_below", "_candidates")

    def __init__(self) -> None:
        self._candidates: dict[Path, Values] = {}
        self._below: dict[Path, tuple[int, Path | None]] = {}
        """By ancestor of a candidate: depth of the nearest one below, and it, or None when two are equally near."""

    def add(self, path: Path, values: Values) -> None:
        if path in self._candidates:
            return
        self._candidates[path] = values
        above = path.parent
        while above is not None:
            known = self._below.get(above)
            if known is None or path.depth < known[0]:
                self._below[above] = path.depth, path
            elif path.depth == known[0]:
                self._below[above] = path.depth, None
            above = above.parent

    def values_of(self, path: Path) -> Values:
        return self._candidates[path]

    def has_for(self, anchor: Path) -> bool:
        return anchor in self._below or self._above(anchor) is not None

    def nearest(self, anchor: Path) -> Path | None:
        """The candidate nearest by path length among ancestors and descendants; None for two at the same distance."""
        above = self._above(anchor)
        below = self._below.get(anchor)
        if above is None:
            return below[1] if below else None
        if below is None or anchor.depth - above.depth < below[0] - anchor.depth:
            return above
        if anchor.depth - above.depth > below[0] - anchor.depth:
            return below[1]
        return None

    def _above(self, anchor: Path) -> Path | None:
        path: Path | None = anchor
        while path is not None and path not in self._candidates:
            path = path.parent
        return path


def _list(
    fields: dict[str, Values],
    paths: dict[str, tuple[tuple[int, ...], ...]],
    field: str,
    items: Sequence[tuple[Path, Values]],
) -> None:
    fields[field] = tuple(value for _, values in items for value in values)
    paths[field] = tuple(ordinals for path, values in items for ordinals in [path.ordinals()] * len(values))
