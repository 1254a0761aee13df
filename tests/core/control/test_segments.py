"""A segment as its replica runs it, and as the call that it belongs to sees it. Any interleaving is in tests/properties.

Commands are written down: "run 1 b.main(x=v) of 0:0" starts inner activation 1 below the entry's first yield.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from omniflow_core.control.commands import AckYields, Command, Emit, FailCall, FinishCall, StartActivation
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    CancelRequested,
)
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.control.segments import AckInner, EndSegment, RunInner, SegmentCommand, SegmentRun
from omniflow_core.control.work_items import HostedSegment
from omniflow_core.graph.inside import segment_graph
from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.spec import GraphSpec, NodeSpec, OnFailure
from tests.core.scenarios.driven import BROKEN, LOST, STOP
from tests.support.graphs import graph, node

SKIP = OnFailure.SKIP


def of(name: str, inputs: str = "x", outputs: str = "y", **options: Any) -> NodeSpec:
    """A node of the segment's role."""
    return node(name, inputs, outputs, is_inline=False, role="r", **options)


def chain(**options: Any) -> GraphSpec:
    """a and b are a segment, whose b gives to k outside; `options` are those of both."""
    return graph((of("a", **options), of("b", **options), node("k")), "x>a.x a.y>b.x b.y>k.x k.y>out")


def diamond(**options: Any) -> GraphSpec:
    """a -> {b, c} -> j -> a, with what j makes given out; `options` are those of b and c."""
    nodes = (
        of("a", "first: x; more: z", loop_bound=3),
        of("b", **options),
        of("c", **options),
        of("j", "b c", "y again"),
    )
    return graph(nodes, "x>a.first.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.again>a.more.z j.y>out")


class Run:
    """A run of the only segment of a graph, in short."""

    def __init__(self, spec: GraphSpec, *, yield_window: int = 64, byte_credit: int = 1 << 20) -> None:
        (segment,) = plan_graph(spec).segments
        self.run = SegmentRun(
            segment_graph(segment.nodes, segment.edges, segment.entry),
            segment.entry,
            {name: frozenset(fields) for name, fields in segment.exits.items()},
            yield_window=yield_window,
            byte_credit=byte_credit,
        )
        self._yields: dict[int, int] = {}

    def give(self, inner_id: int, size: int = 0, stored: int = 0, **fields: object) -> list[str]:
        ordinal = self._yields.get(inner_id, 0)
        self._yields[inner_id] = ordinal + 1
        return shown(self.run.yielded(inner_id, ordinal, fields, size, stored))

    def finish(self, inner_id: int) -> list[str]:
        return shown(self.run.finished(inner_id, self._yields.get(inner_id, 0)))

    def fail(self, inner_id: int) -> list[str]:
        return shown(self.run.failed(inner_id, BROKEN))

    def accept(self, inner_id: int) -> list[str]:
        return shown(self.run.accepted(inner_id))

    def ack(self, inner_id: int, next_ordinal: int) -> list[str]:
        return shown(self.run.acknowledged(inner_id, next_ordinal))


def shown(commands: Sequence[SegmentCommand]) -> list[str]:
    return list(map(_shown, commands))


def _shown(command: SegmentCommand) -> str:
    match command:
        case RunInner():
            fields = ",".join(f"{name}={'+'.join(map(str, v))}" for name, v in sorted(command.fields.items()))
            parent = f"{command.parent_id}:{command.parent_ordinal}"
            return f"run {command.inner_id} {command.node}.{command.group}({fields}) of {parent}"
        case AckInner():
            return f"ack {command.inner_id}<{command.next_ordinal}"
        case EndSegment():
            return f"end {command.error.reason if command.error else 'well'}"


# --- on the replica: what starts --------------------------------------------------------------------------------------


def test_run_starts_what_a_yield_asks_for_inside() -> None:
    run = Run(chain())
    assert run.give(0, y="v") == ["run 1 b.main(x=v) of 0:0"]
    assert run.give(0, y="w") == ["run 2 b.main(x=w) of 0:1"]


def test_run_says_interface_and_window_of_what_it_starts() -> None:
    spec = graph(
        (of("a"), of("b", yield_window=5), of("c"), node("k")), "x>a.x a.y>b.x a.y>c.x b.y>k.x c.y>k.x k.y>out"
    )
    commands = Run(spec, yield_window=7).run.yielded(0, 0, {"y": "v"}, 0, 0)
    assert [(c.interface, c.yield_window) for c in commands if isinstance(c, RunInner)] == [
        ("test.b", 5),
        ("test.c", 7),
    ]


def test_run_gives_the_same_value_on() -> None:
    value = object()
    (command,) = Run(chain()).run.yielded(0, 0, {"y": value}, 0, 0)
    assert isinstance(command, RunInner)
    assert command.fields["x"][0] is value


def test_run_starts_a_join_when_all_that_could_contribute_has_ended() -> None:
    run = Run(diamond())
    assert run.give(0, y="v") == ["run 1 b.main(x=v) of 0:0", "run 2 c.main(x=v) of 0:0"]
    assert run.finish(0) == []
    run.give(2, y="late")
    run.give(1, y="b0")
    run.give(1, y="b1")
    assert run.finish(2) == []
    assert run.finish(1) == ["run 3 j.main(b=b0+b1,c=late) of 0:0"]


def test_run_goes_round_its_loop() -> None:
    run = Run(diamond())
    run.give(0, y="v")
    for inner_id in (1, 2):
        run.give(inner_id, y=inner_id)
        run.finish(inner_id)
    assert run.give(3, again="z", y="out") == ["run 4 a.more(z=z) of 3:0"]
    assert run.give(4, y="w") == ["run 5 b.main(x=w) of 4:0", "run 6 c.main(x=w) of 4:0"]


def test_run_starts_nothing_for_a_yield_that_stays_without_takers() -> None:
    run = Run(diamond())
    assert run.give(0, other="v") == []
    assert run.finish(0) == ["end well"]


# --- on the replica: its end ------------------------------------------------------------------------------------------


def test_run_ends_when_nothing_runs_inside_any_more() -> None:
    run = Run(chain())
    run.give(0, y="v")
    assert run.finish(0) == []
    run.give(1, y="w")
    assert run.finish(1) == ["end well"]
    assert run.run.has_ended


def test_run_does_not_wait_for_the_outside_to_end() -> None:
    run = Run(chain())
    run.give(0, y="v")
    run.finish(0)
    run.give(1, y="not acknowledged")
    assert run.finish(1) == ["end well"]
    assert run.ack(1, 1) == []


def test_failure_inside_ends_the_run() -> None:
    run = Run(chain())
    run.give(0, y="v")
    assert run.fail(1) == ["end INTERFACE_FAILED"]
    assert [run.give(0, y="w"), run.accept(1), run.finish(0), run.ack(1, 1)] == [[], [], [], []]


def test_failure_that_is_skipped_lets_the_run_go_on() -> None:
    run = Run(chain(on_failure=SKIP))
    run.give(0, y="v")
    run.give(0, y="w")
    assert run.fail(1) == []
    assert run.fail(0) == []
    assert run.fail(2) == ["end well"]


def test_branch_that_fails_and_is_skipped_makes_the_join_impossible() -> None:
    run = Run(diamond(on_failure=SKIP))
    run.give(0, y="v")
    run.give(2, y="c0")
    assert run.finish(2) == []
    assert run.fail(1) == ["end IMPOSSIBLE_INPUT"]


def test_branches_that_both_give_nothing_leave_the_join_out() -> None:
    run = Run(diamond())
    run.give(0, y="v")
    run.finish(0)
    run.finish(1)
    assert run.finish(2) == ["end well"]


def test_loop_bound_ends_the_run() -> None:
    nodes = (of("a", "first: x; more: z", "y again", loop_bound=3),)
    run = Run(graph(nodes, "x>a.first.x a.again>a.more.z a.y>out"))
    assert run.give(0, again=1) == ["run 1 a.more(z=1) of 0:0"]
    assert run.give(1, again=2) == ["run 2 a.more(z=2) of 1:0"]
    assert run.give(2, again=3) == ["end LOOP_BOUND_EXCEEDED"]


def test_wrong_count_of_yields_ends_the_run() -> None:
    run = Run(chain())
    run.give(0, y="v")
    assert shown(run.run.finished(1, 1)) == ["end INTERNAL"]


def test_last_yield_that_comes_with_the_end_starts_what_it_asks_for() -> None:
    run = Run(chain())
    assert shown(run.run.finished(0, 1, {"y": "v"})) == ["run 1 b.main(x=v) of 0:0"]
    assert shown(run.run.finished(1, 1, {"y": "w"})) == ["end well"]


def test_last_yield_that_comes_with_the_end_completes_a_join() -> None:
    run = Run(diamond())
    shown(run.run.finished(0, 1, {"y": "v"}))
    run.run.finished(1, 1, {"y": "b0"})
    assert shown(run.run.finished(2, 1, {"y": "c0"})) == ["run 3 j.main(b=b0,c=c0) of 0:0"]


# --- on the replica: acknowledgements ---------------------------------------------------------------------------------


def test_yield_that_stays_inside_is_acknowledged_when_what_it_started_is_taken_in() -> None:
    run = Run(chain(), yield_window=2)
    run.give(0, y="v")
    assert run.accept(1) == ["ack 0<1"]
    assert run.accept(1) == []


def test_first_yield_says_that_its_activation_was_taken_in() -> None:
    run = Run(chain(), yield_window=2)
    run.give(0, y="v")
    assert run.give(1, y="w") == ["ack 0<1"]


def test_yield_into_a_join_inside_is_acknowledged_at_once() -> None:
    run = Run(diamond(), yield_window=2)
    run.give(0, y="v")
    assert run.give(1, y="b0") == ["ack 1<1"]


def test_yield_that_only_leaves_is_acknowledged_by_the_outside() -> None:
    run = Run(chain(), yield_window=2)
    run.give(0, y="v")
    run.accept(1)
    assert run.give(1, y="w") == []
    assert run.ack(1, 1) == ["ack 1<1"]
    assert run.ack(1, 1) == []


@pytest.mark.parametrize("is_outside_first", [True, False])
def test_yield_that_goes_both_ways_waits_for_the_later_one(is_outside_first: bool) -> None:
    nodes = (of("a"), of("b"), node("k"))
    run = Run(graph(nodes, "x>a.x a.y>b.x a.y>k.x b.y>k.x k.y>out"), yield_window=2)
    run.give(0, y="v")
    ways: list[Callable[[], list[str]]] = [lambda: run.ack(0, 1), lambda: run.accept(1)]
    first, second = ways if is_outside_first else ways[::-1]
    assert first() == []
    assert second() == ["ack 0<1"]


def test_acknowledgement_goes_as_far_as_both_have_come() -> None:
    nodes = (of("a"), of("b"), node("k"))
    run = Run(graph(nodes, "x>a.x a.y>b.x a.y>k.x b.y>k.x k.y>out"), yield_window=8)
    for value in range(4):
        run.give(0, y=value)
    assert run.ack(0, 4) == []
    assert [run.accept(inner_id) for inner_id in (1, 2, 3, 4)] == [[], [], [], ["ack 0<4"]]


def test_acknowledgement_of_what_the_outside_does_not_get_is_ignored() -> None:
    run = Run(chain(), yield_window=2)
    run.give(0, y="v")
    assert run.ack(0, 1) == []
    assert run.accept(1) == ["ack 0<1"]
    assert run.ack(17, 1) == []


def test_acknowledgement_after_the_end_of_its_activation_is_ignored() -> None:
    run = Run(chain(), yield_window=2)
    run.give(0, y="v")
    run.give(1, y="w")
    run.finish(1)
    assert run.ack(1, 1) == []


def test_acknowledgements_count_bytes_that_the_producer_keeps() -> None:
    run = Run(diamond(), yield_window=8, byte_credit=100)
    run.give(0, y="v")
    assert run.give(1, 10, 10, y="small") == []
    assert run.give(1, 10, 20, y="large") == ["ack 1<2"]


# --- in the call ------------------------------------------------------------------------------------------------------


class Hosted:
    """A call whose entry, activation 1, runs its segment itself. Checked after each event."""

    def __init__(self, spec: GraphSpec, **options: Any) -> None:
        self.scheduler = CallScheduler(plan_graph(spec), **options)
        self.scheduler.handle(CallAdmitted({"x": "v"}))
        assert self(ActivationAccepted(1, hosts_segment=True)) == []
        segment = self.scheduler.segment_of(1)
        assert segment is not None
        self.segment: HostedSegment = segment
        self.commands: list[Command] = []

    def __call__(self, event: Any) -> list[str]:
        self.commands = self.scheduler.handle(event)
        self.scheduler.check_integrity()
        return list(map(_told, self.commands))

    def give(self, activation_id: int, ordinal: int = 0, size: int = 0, /, **fields: object) -> list[str]:
        return self(ActivationYielded(activation_id, ordinal, fields, size))


def _told(command: Command) -> str:
    match command:
        case StartActivation():
            return f"start {command.activation_id} {command.node.name}"
        case AckYields():
            return f"ack {command.activation_id}<{command.next_ordinal}"
        case Emit():
            return f"emit {command.output}"
        case FailCall():
            return f"fail {command.error.reason}"
        case FinishCall():
            return f"finish of {command.usage.activations}"
        case _:
            return type(command).__name__


def test_call_registers_what_the_replica_starts_and_commands_none_of_it() -> None:
    call = Hosted(chain())
    assert call.give(1, y="inside") == []
    assert call.scheduler.active_count == 2
    assert call.segment.take("b", "main", 1, 0) == 2
    assert call.scheduler.segment_of(2) is call.segment


def test_call_knows_what_the_replica_started_once() -> None:
    call = Hosted(chain())
    call.give(1, y="inside")
    assert call.segment.take("b", "main", 1, 1) is None
    assert call.segment.take("a", "main", 1, 0) is None
    assert call.segment.take("b", "main", 1, 0) == 2
    assert call.segment.take("b", "main", 1, 0) is None


def test_call_starts_what_leaves_the_segment() -> None:
    call = Hosted(chain(), yield_window=2)
    call.give(1, y="inside")
    assert call.give(2, y="w") == ["start 3 k"]
    (start,) = call.commands
    assert isinstance(start, StartActivation)
    assert (start.fields, start.origin_path) == ({"x": ("w",)}, (0, 0, 0))
    assert call.scheduler.segment_of(3) is None
    assert call(ActivationAccepted(3)) == ["ack 2<1"]


def test_call_acknowledges_nothing_that_stays_inside() -> None:
    call = Hosted(chain(), yield_window=1)
    assert [call.give(1, i, y="inside") for i in range(5)] == [[]] * 5


def test_call_runs_a_join_inside_as_the_replica_does() -> None:
    call = Hosted(diamond())
    call.give(1, y="inside")
    call(ActivationFinished(1, 1))
    call.give(2, y="inside")
    assert call(ActivationFinished(2, 1)) == []
    call.give(3, y="inside")
    assert call(ActivationFinished(3, 1)) == []
    assert call.segment.take("j", "main", 1, 0) == 4
    assert call.give(4, again="inside", y="w") == ["emit out"]
    assert call.segment.take("a", "more", 4, 0) == 5


def test_call_keeps_no_bytes_of_what_stays_inside() -> None:
    call = Hosted(diamond(), store_limit_bytes=100)
    call.give(1, 0, 500, y="inside")
    call.give(2, 0, 500, y="inside")
    assert call.scheduler.inspect().stored_bytes == 0


def streaming_out() -> GraphSpec:
    """a and b are a segment; what b gives goes out in order, one yield at a time."""
    return graph((of("a"), of("b", yield_window=1)), "x>a.x a.y>b.x b.y>out")


def test_held_output_does_not_wait_while_something_inside_may_wait_for_a_place() -> None:
    """The first b may stand behind the second on their replica, so the second must be able to end."""
    call = Hosted(streaming_out(), store_limit_bytes=100)
    call.give(1, 0, y="inside")
    call.give(1, 1, y="inside")
    assert call.give(3, 0, 101, y="late") == ["ack 3<1"]


def test_held_output_over_the_limit_waits_when_all_inside_has_a_place() -> None:
    call = Hosted(streaming_out(), store_limit_bytes=100)
    call.give(1, 0, y="inside")
    call.give(1, 1, y="inside")
    assert call.give(2, 0, 1, y="early") == ["emit out", "ack 2<1"]
    assert call.give(3, 0, 101, y="late") == []
    assert call(ActivationFinished(2, 1)) == ["emit out", "ack 3<1"]


def test_call_ends_when_the_segment_and_what_followed_from_it_has() -> None:
    call = Hosted(chain())
    call.give(1, y="inside")
    assert call(ActivationFinished(1, 1)) == []
    assert call.give(2, y="w") == ["start 3 k"]
    assert call(ActivationFinished(2, 1)) == []
    assert call(ActivationFinished(3, 0)) == ["finish of 3", "ReleaseCall"]


def test_call_whose_segment_was_lost_fails_as_one_activation_would() -> None:
    call = Hosted(chain())
    call.give(1, y="inside")
    assert call(ActivationFailed(1, LOST)) == ["CancelActivations", "fail REPLICA_LOST"]
    assert call.segment.forget_unreported() == (2,)
    assert call(ActivationFailed(2, LOST)) == ["ReleaseCall"]


def test_failures_that_are_skipped_may_start_more_inside() -> None:
    """j runs with what came, as its other input is optional; the lost replica never spoke of it."""
    nodes = (of("a", on_failure=SKIP), of("b", on_failure=SKIP), of("j", "a b?", on_failure=SKIP), node("k"))
    call = Hosted(graph(nodes, "x>a.x a.y>b.x a.y>j.a b.y>j.b j.y>k.x k.y>out"))
    call.give(1, y="inside")
    assert call.segment.take("b", "main", 1, 0) == 2
    assert call(ActivationFailed(1, LOST)) == []
    assert call.segment.forget_unreported() == ()
    assert call(ActivationFailed(2, LOST)) == []
    assert call.segment.forget_unreported() == (3,)
    assert call(ActivationFailed(3, LOST)) == ["finish of 3", "ReleaseCall"]


def test_cancelled_call_waits_for_all_that_runs_inside() -> None:
    call = Hosted(diamond())
    call.give(1, y="inside")
    assert call(CancelRequested(STOP)) == ["CancelActivations", "fail CALL_CANCELLED"]
    assert [call(ActivationFailed(i, STOP)) for i in (2, 1, 3)] == [[], [], ["ReleaseCall"]]


def test_impossible_join_inside_fails_the_call() -> None:
    call = Hosted(diamond())
    call.give(1, y="inside")
    call.give(2, y="inside")
    call(ActivationFinished(2, 1))
    assert call(ActivationFinished(3, 0)) == ["CancelActivations", "fail IMPOSSIBLE_INPUT"]
    assert call(ActivationFailed(1, STOP)) == ["ReleaseCall"]


def test_entry_that_was_taken_in_already_hosts_nothing() -> None:
    scheduler = CallScheduler(plan_graph(chain()))
    scheduler.handle(CallAdmitted({"x": "v"}))
    scheduler.handle(ActivationAccepted(1))
    scheduler.handle(ActivationAccepted(1, hosts_segment=True))
    assert scheduler.segment_of(1) is None
    assert list(map(_told, scheduler.handle(ActivationYielded(1, 0, {"y": "v"})))) == ["start 2 b"]


def test_activation_that_is_no_entry_hosts_nothing() -> None:
    scheduler = CallScheduler(plan_graph(chain()))
    scheduler.handle(CallAdmitted({"x": "v"}))
    scheduler.handle(ActivationYielded(1, 0, {"y": "v"}))
    scheduler.handle(ActivationAccepted(2, hosts_segment=True))
    assert scheduler.segment_of(2) is None


def test_activation_outside_any_segment_hosts_nothing() -> None:
    scheduler = CallScheduler(plan_graph(graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out")))
    scheduler.handle(CallAdmitted({"x": "v"}))
    scheduler.handle(ActivationAccepted(1, hosts_segment=True))
    assert scheduler.segment_of(1) is None
