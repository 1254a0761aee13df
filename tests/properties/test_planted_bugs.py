"""Bugs planted in the core, each found by the comparison that the fuzzer makes, and within few graphs.

The core's own integrity checks are off here, and what it raises itself does not count: the comparison has to find them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import pytest

from omniflow_core.control.buckets import Bucket
from omniflow_core.control.commands import AckYields
from omniflow_core.control.delivery import YieldDelivery
from omniflow_core.control.events import ActivationFinished, Event, ExitYielded
from omniflow_core.control.gates import ExecutionGate
from omniflow_core.control.joins import PrefixJoins
from omniflow_core.control.leases import LeaseTable
from omniflow_core.control.ordering import OrderNode, OrderTree
from omniflow_core.control.scheduler import _HANDLERS, CallScheduler
from omniflow_core.control.segments import RunInner, SegmentCommand, SegmentRun
from omniflow_core.control.windows import YieldWindow
from omniflow_core.control.work import CallWork
from omniflow_core.control.work_items import Activation, GivenYield
from omniflow_core.graph.anchors import Origins
from omniflow_core.graph.pipelines import find_pipelines
from omniflow_core.graph.routing import Delivery, PipelinePlan, SegmentPlan
from omniflow_core.graph.segments import _segment, find_segments
from omniflow_core.graph.spec import GraphSpec
from tests.properties.flow_case import Difference, Mix, run_case

MOST_CASES = 200
"""Graphs until a planted bug must have been found; `test_flow_properties` finds no difference in as many."""


def _drop_what_is_late(patch: pytest.MonkeyPatch) -> None:
    """Joins that have run do not take what comes after."""
    contribute = PrefixJoins.contribute

    def dropping(self: PrefixJoins, delivery: Delivery, given: GivenYield) -> int:
        return contribute(self, delivery, given) if given.scopes[delivery.join] in self._work.buckets else 0

    patch.setattr(PrefixJoins, "contribute", dropping)


def drop_leases(patch: pytest.MonkeyPatch) -> None:
    """Every third activation or reservation is not tracked, so buckets close early."""
    acquire = LeaseTable.acquire

    def forgetful(self: LeaseTable, root: int, holder: int) -> None:
        if holder % 3:
            acquire(self, root, holder)

    patch.setattr(LeaseTable, "acquire", forgetful)
    _drop_what_is_late(patch)


def ignore_predecessors(patch: pytest.MonkeyPatch) -> None:
    """Contributions stay in order of arrival."""
    patch.setattr(Bucket, "_rank", lambda self, item: item[0])


def reuse_buckets(patch: pytest.MonkeyPatch) -> None:
    """A yield of an anchor whose previous yield's bucket is still open gets that one."""
    open_bucket = PrefixJoins.open

    def reusing(self: PrefixJoins, *arguments: object) -> tuple[Mapping[int, int], Sequence[int]]:
        scopes, opened = open_bucket(self, *arguments)  # type: ignore[arg-type]
        known = self._work.buckets.values()
        first = {join: min(b.bucket_id for b in known if b.join.index == join) for join in scopes}
        return first, opened

    patch.setattr(PrefixJoins, "open", reusing)


def ignore_earlier_siblings(patch: pytest.MonkeyPatch) -> None:
    """Events of ordered outputs are released as they come."""
    patch.setattr(OrderTree, "is_next", lambda self, node, ordinal: True)


def start_out_of_turn(patch: pytest.MonkeyPatch) -> None:
    """Starts at a gate do not wait for earlier siblings, though still for each other."""

    def release(self: OrderTree, node: OrderNode, start: object, out: list[object]) -> None:
        out.append(start)

    patch.setattr(OrderTree, "hold_start", release)


def open_gates(patch: pytest.MonkeyPatch) -> None:
    """Activations of a session-ordered node run side by side."""
    patch.setattr(ExecutionGate, "enter", lambda self, start: start)


# --- segments ---------------------------------------------------------------------------------------------------------


def _in_runs(patch: pytest.MonkeyPatch, change: Callable[[SegmentRun], None]) -> None:
    """Makes a change in the replicas' runs of segments only."""
    init = SegmentRun.__init__

    def changed(self: SegmentRun, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        change(self)

    patch.setattr(SegmentRun, "__init__", changed)


def start_inner_joins_early(patch: pytest.MonkeyPatch) -> None:
    """On the replica, every third activation or reservation of a segment is not tracked, so its joins run too early."""

    class Forgetful(LeaseTable):
        def acquire(self, root: int, holder: int) -> None:
            if holder % 3:
                super().acquire(root, holder)

    _in_runs(patch, lambda run: setattr(run._scheduler._work, "leases", Forgetful()))
    _drop_what_is_late(patch)


def never_start_inner_joins(patch: pytest.MonkeyPatch) -> None:
    """The replica waits for ever for what its joins need."""
    handle = SegmentRun._handle

    def waiting(self: SegmentRun, event: Event) -> list[SegmentCommand]:
        commands = handle(self, event)
        return [c for c in commands if not isinstance(c, RunInner) or len(c.fields) == 1]

    patch.setattr(SegmentRun, "_handle", waiting)


def acknowledge_for_the_outside(patch: pytest.MonkeyPatch) -> None:
    """Inside a segment a yield counts as delivered when those inside have it."""
    tell = SegmentRun._tell

    def eager(self: SegmentRun, inner_id: int, delivered: Any) -> list[SegmentCommand]:
        delivered.outside = max(delivered.outside, delivered.inside)
        return tell(self, inner_id, delivered)

    patch.setattr(SegmentRun, "_tell", eager)


def acknowledge_for_the_inside(patch: pytest.MonkeyPatch) -> None:
    """A yield counts as delivered when those outside the segment have it."""
    tell = SegmentRun._tell

    def eager(self: SegmentRun, inner_id: int, delivered: Any) -> list[SegmentCommand]:
        delivered.inside = max(delivered.inside, delivered.outside)
        return tell(self, inner_id, delivered)

    patch.setattr(SegmentRun, "_tell", eager)


def never_acknowledge_exits(patch: pytest.MonkeyPatch) -> None:
    """The replica is not told that what left the segment is delivered."""
    acknowledge = CallWork.acknowledge

    def silent(self: CallWork, producer: Activation, next_ordinal: int) -> None:
        if producer.hosted is None:
            acknowledge(self, producer, next_ordinal)

    patch.setattr(CallWork, "acknowledge", silent)


def expect_all_from_replicas(patch: pytest.MonkeyPatch) -> None:
    """What a segment gives to the rest of the graph is not started: its replica is to do so."""
    register: Any = CallWork._register

    def swallowing(self: CallWork, *arguments: Any) -> Activation:
        *given, hosted = arguments
        origin = given[3]
        producer = self.active.get(origin.activation_id) if origin is not None else None
        activation: Activation = register(self, *given, producer.hosted if producer is not None else hosted)
        return activation

    patch.setattr(CallWork, "_register", swallowing)


def forget_joins_outside(patch: pytest.MonkeyPatch) -> None:
    """Joins outside a segment do not wait for what is started inside; what comes too late for them is dropped."""
    register: Any = CallWork._register

    def careless(self: CallWork, *arguments: Any) -> Activation:
        activation: Activation = register(self, *arguments)
        if activation.hosted is not None:
            outside = {j: root for j, root in activation.scopes.items() if self.buckets[root].join.segment is None}
            self.release(outside, activation.activation_id)
        return activation

    patch.setattr(CallWork, "_register", careless)
    _drop_what_is_late(patch)


def swallow_what_is_fed_outside(patch: pytest.MonkeyPatch) -> None:
    """A segment takes in what one of its nodes feeds alone, although that has other groups too."""

    def greedy(spec: GraphSpec, dominators: Mapping[str, str]) -> Iterator[SegmentPlan]:
        segments = list(find_segments(spec, dominators))
        taken = {node.name for segment in segments for node in segment.nodes}
        for segment in segments:
            own = {node.name for node in segment.nodes}
            groups: dict[tuple[str, str], set[str]] = {}
            for edge in spec.edges:
                groups.setdefault((edge.target_node, edge.target_group), set()).add(edge.source_node)
            fed = {node for (node, _), sources in groups.items() if sources <= own} - taken
            more = {n.name for n in spec.nodes if n.name in fed and n.role == segment.role and not n.is_session_ordered}
            taken |= more
            yield _segment(spec, segment.entry, own | more)

    patch.setattr("omniflow_core.graph.plan.find_segments", greedy)


# --- pipelines --------------------------------------------------------------------------------------------------------


def _in_exits(patch: pytest.MonkeyPatch, change: Callable[[ExitYielded], ExitYielded | None]) -> None:
    """Hands the scheduler other exits than came; None for one that gets lost."""
    take: Any = _HANDLERS[ExitYielded]

    def changed(self: CallScheduler, event: ExitYielded) -> None:
        other = change(event)
        if other is not None:
            take(self, other)

    patch.setitem(cast("dict[type, object]", _HANDLERS), ExitYielded, changed)


def give_out_at_the_path_of_what_came_before(patch: pytest.MonkeyPatch) -> None:
    """Exits have the path of the yield that caused them, as far as numbers go."""
    _in_exits(patch, lambda event: dataclasses.replace(event, origin_path=(*event.origin_path[:-1], 0)))


def forget_fields_of_exits(patch: pytest.MonkeyPatch) -> None:
    """Only the first field of an exit is given out."""
    _in_exits(patch, lambda event: dataclasses.replace(event, fields=dict(list(event.fields.items())[:1])))


def never_acknowledge_exits_of_pipelines(patch: pytest.MonkeyPatch) -> None:
    """Nobody is told that what left a pipeline is delivered."""
    give_out: Any = YieldDelivery.give_out

    def silent(self: YieldDelivery, producer: Activation, *arguments: Any) -> None:
        give_out(self, producer, *arguments)
        own = producer.activation_id
        self._work.out[:] = [c for c in self._work.out if not isinstance(c, AckYields) or c.activation_id != own]

    patch.setattr(YieldDelivery, "give_out", silent)


def acknowledge_exits_at_half_the_first_window(patch: pytest.MonkeyPatch) -> None:
    """The last node's activations wait for acknowledgements that come by the window of another node."""

    def large(self: CallWork, pipeline: PipelinePlan) -> YieldWindow:
        return YieldWindow(pipeline.nodes[0].yield_window or self._yield_window, self._byte_credit)

    patch.setattr(CallWork, "new_exit_window", large)


def forget_what_pipelines_have_started(patch: pytest.MonkeyPatch) -> None:
    """The call counts what it has started itself."""
    take: Any = _HANDLERS[ActivationFinished]

    def changed(self: CallScheduler, event: ActivationFinished) -> None:
        take(self, dataclasses.replace(event, started_activations=0))

    patch.setitem(cast("dict[type, object]", _HANDLERS), ActivationFinished, changed)


def run_pipelines_side_by_side(patch: pytest.MonkeyPatch) -> None:
    """A pipeline may begin at a node that runs often, although what one run gives must wait for the others."""

    class Once(Origins):
        def runs_once(self, node: str) -> bool:
            return True

    def many(spec: GraphSpec, origins: Origins, segments: Sequence[SegmentPlan]) -> Iterator[PipelinePlan]:
        return find_pipelines(spec, Once(spec), segments)

    patch.setattr("omniflow_core.graph.plan.find_pipelines", many)


def find(seeds: range) -> Difference | None:
    """The first difference of some cases that is no crash of the core."""
    mix = Mix()
    for seed in seeds:
        try:
            run_case(seed, mix, turns=4)
        except Difference as difference:
            if not difference.is_crash:
                return difference
    return None


BUGS = [
    drop_leases,
    ignore_predecessors,
    reuse_buckets,
    ignore_earlier_siblings,
    start_out_of_turn,
    open_gates,
    start_inner_joins_early,
    never_start_inner_joins,
    acknowledge_for_the_outside,
    acknowledge_for_the_inside,
    never_acknowledge_exits,
    expect_all_from_replicas,
    forget_joins_outside,
    swallow_what_is_fed_outside,
    give_out_at_the_path_of_what_came_before,
    forget_fields_of_exits,
    never_acknowledge_exits_of_pipelines,
    acknowledge_exits_at_half_the_first_window,
    forget_what_pipelines_have_started,
    run_pipelines_side_by_side,
]


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_comparison_finds(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallScheduler, "check_integrity", lambda self: None)
    plant(monkeypatch)
    assert find(range(MOST_CASES)) is not None
