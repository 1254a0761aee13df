"""The scheduler of one call: events in, commands compared. Joins, gates and outputs are in tests/core/scenarios."""

from __future__ import annotations

import gc
from types import FunctionType

import pytest

from omniflow_core.control.commands import AckYields, CallUsage, Emit, FailCall, FinishCall, StartActivation
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    CancelRequested,
    Event,
    InputArrived,
)
from omniflow_core.control.scheduler import CallPhase, CallScheduler
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.plan import NodePlan, plan_graph
from omniflow_core.graph.spec import OnFailure
from tests.core.scenarios.driven import BROKEN, STOP, Driven
from tests.support.graphs import graph, node
from tests.support.lines import lines_run

CHAIN = graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out")


def test_call_runs_a_chain_to_its_end() -> None:
    drive = Driven(CHAIN)
    assert drive.admit(x="v") == ["start a main(x=v)"]
    assert drive.accept("a") == []
    assert drive.give("a", y="w") == ["start b main(x=w)"]
    assert drive.finish("a") == []
    assert drive.give("b", y="z") == ["emit out=z"]
    number = drive.starts["b"].activation_id
    assert drive(ActivationFinished(number, 1, "length", 3, 1, 5)) == ["finish length", "release"]
    assert drive.terminal == FinishCall(
        "length", CallUsage(input_tokens=3, cached_input_tokens=1, output_tokens=5, activations=2)
    )


def test_last_yield_may_come_with_the_end() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    number = drive.starts["a"].activation_id
    assert drive(ActivationFinished(number, 1, last={"y": "w"})) == ["start b main(x=w)"]
    number = drive.starts["b"].activation_id
    assert drive(ActivationFinished(number, 1, last={"y": "z"})) == ["emit out=z", "finish stop", "release"]


def test_last_yield_is_counted_with_those_before() -> None:
    drive = Driven(graph((node("a", is_streaming=True),), "x>a.x a.y>out"))
    drive.admit(x="v")
    drive.give("a", y="p")
    number = drive.starts["a"].activation_id
    assert drive(ActivationFinished(number, 2, last={"y": "q"})) == ["emit out=q", "finish stop", "release"]


def test_last_yield_of_a_second_output_that_is_not_allowed_ends_the_call_and_the_activation() -> None:
    drive = Driven(graph((node("a", is_streaming=False),), "x>a.x a.y>out"))
    drive.admit(x="v")
    drive.give("a", y="p")
    number = drive.starts["a"].activation_id
    assert drive(ActivationFinished(number, 2, last={"y": "q"})) == ["fail INTERNAL", "release"]


def test_start_names_node_group_fields_and_path() -> None:
    scheduler = CallScheduler(plan_graph(CHAIN))
    (start,) = scheduler.handle(CallAdmitted({"x": "v"}))
    assert isinstance(start, StartActivation)
    assert (start.activation_id, start.node.name, start.attempt, start.delivered) == (1, "a", 1, ())
    assert (start.group, start.fields, start.origin_path) == ("main", {"x": ("v",)}, (0,))
    assert (start.facets[0].paths, start.facets[0].context) == (None, {})


def test_emit_carries_the_path_from_the_call_root() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    drive.run("a", "a", "b")
    drive.run("b", "p")
    drive.give("b#1", y="q")
    assert drive.emitted[-1] == Emit("out", "b", (0, 1, 0), "q")


def test_yield_without_a_field_is_skipped_downstream() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    assert drive.run("a", {}) == ["finish stop", "release"]


def test_group_of_optional_fields_runs_with_any_of_them() -> None:
    spec = graph((node("a", inputs="t? s?"),), "t>a.t s>a.s a.y>out", inputs="t? s?")
    assert Driven(spec).admit(s=1) == ["start a main(s=1)"]


def test_return_order_holds_a_later_sibling_back() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    drive.run("a", "a", "b")
    assert drive.give("b#1", y="late") == []
    assert drive.give("b", y="one") == ["emit out=one"]
    assert drive.give("b", y="two") == ["emit out=two"]
    assert drive.finish("b") == ["emit out=late"]
    assert drive.give("b#1", y="more") == ["emit out=more"]
    assert drive.finish("b#1") == ["finish stop", "release"]


def test_return_order_passes_a_sibling_that_gives_nothing() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    drive.run("a", "a", "b")
    assert drive.run("b#1", "late") == []
    assert drive.finish("b") == ["emit out=late", "finish stop", "release"]


def test_failure_fails_the_call_and_cancels_the_rest() -> None:
    spec = graph((node("a"), node("b")), "x>a.x x>b.x a.y>out b.y>out")
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.fail("a") == ["cancel", "fail INTERFACE_FAILED"]
    assert drive.terminal == FailCall(BROKEN, CallUsage(activations=2))
    assert drive.give("b", y="late") == []
    assert drive.fail("b") == ["release"]


def test_on_failure_skip_lets_the_call_go_on() -> None:
    spec = graph((node("a"), node("b", on_failure=OnFailure.SKIP)), "x>a.x x>b.x a.y>out b.y>out")
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.fail("b") == []
    assert drive.run("a", "r") == ["emit out=r", "finish stop", "release"]


def test_gap_in_yields_fails_the_call() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    drive.running["a"] = 1
    assert drive.give("a", y="w")[-1] == "fail INTERNAL"
    assert drive.error.metadata == {"node": "a"}
    assert drive.stop_all() == ["release"]


def test_yield_count_that_differs_fails_the_call() -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    drive.give("a")
    drive.running["a"] = 3
    assert drive.finish("a") == ["fail INTERNAL", "release"]


def test_acks_come_at_half_a_window() -> None:
    drive = Driven(graph((node("a", yield_window=4),), "x>a.x a.y>out"))
    drive.admit(x="v")
    acks = [shown for i in range(5) for shown in drive.give("a", y=i) if shown.startswith("ack")]
    assert acks == ["ack a<2", "ack a<4"]


def test_window_one_acks_every_yield() -> None:
    drive = Driven(graph((node("a", yield_window=1),), "x>a.x a.y>out"))
    drive.admit(x="v")
    assert drive.give("a", y="v") == ["emit out=v", "ack a<1"]


def test_yield_is_delivered_when_its_activation_is_accepted() -> None:
    drive = Driven(graph((node("a", yield_window=1), node("b")), "x>a.x a.y>b.x b.y>out"))
    drive.admit(x="v")
    assert drive.give("a", y="w") == ["start b main(x=w)"]
    assert drive.accept("b") == ["ack a<1"]


def test_loop_runs_to_its_bound() -> None:
    loop = node("a", "first: x; more: z", outputs="y again", loop_bound=3)
    drive = Driven(graph((loop,), "x>a.x a.again>a.z a.y>out"))
    drive.admit(x="v")
    assert drive.give("a", again=1) == ["start a#1 more(z=1)"]
    assert drive.give("a#1", again=2) == ["start a#2 more(z=2)"]
    assert drive.give("a#2", again=3) == ["cancel", "fail LOOP_BOUND_EXCEEDED"]
    assert drive.error.metadata == {"node": "a"}


def test_call_that_starts_too_much_fails() -> None:
    drive = Driven(CHAIN, max_activations=3)
    drive.admit(x="v")
    drive.give("a", y=0)
    drive.give("a", y=1)
    assert drive.give("a", y=2) == ["cancel", "fail LOOP_BOUND_EXCEEDED"]


def test_fan_out_that_fails_half_way_starts_nothing() -> None:
    spec = graph(
        (node("a", outputs="y z"), node("b"), node("c", inputs="p q")), "x>a.x a.y>b.x a.y>c.p a.z>c.q b.y>out c.y>out"
    )
    drive = Driven(spec)
    drive.admit(x="v")
    assert drive.give("a", y="w") == ["cancel", "fail IMPOSSIBLE_INPUT"]
    assert drive.finish("a") == ["release"]
    assert drive.terminal is not None
    assert drive.terminal.usage.activations == 1


def test_acks_come_at_half_the_byte_credit() -> None:
    drive = Driven(graph((node("a", yield_window=64),), "x>a.x a.y>out"), byte_credit=100)
    drive.admit(x="v")
    for i, size in enumerate((20, 29, 1, 49, 10, 200)):
        drive.give("a", size, y=i)
    acks = [c.next_ordinal for c in drive.commands if isinstance(c, AckYields)]
    assert acks == [3, 5, 6]


def test_acks_count_what_the_producer_stores() -> None:
    drive = Driven(graph((node("a"),), "x>a.x a.y>out"), byte_credit=100)
    drive.admit(x="v")
    number = drive.starts["a"].activation_id
    assert drive(ActivationYielded(number, 0, {"y": "v"}, 10, stored_bytes=40)) == ["emit out=v", "ack a<1"]


def test_acks_of_bytes_wait_for_delivery() -> None:
    """A large yield that a busy replica has not accepted holds the credit; once accepted, it gives it back."""
    drive = Driven(CHAIN, byte_credit=100)
    drive.admit(x="v")
    assert drive.give("a", 90, y="w") == ["start b main(x=w)"]
    assert drive.give("a", 5, y="w") == ["start b#1 main(x=w)"]
    assert drive.accept("b#1") == []
    assert drive.accept("b") == ["ack a<2"]


def test_ended_scheduler_answers_every_event_with_nothing() -> None:
    scheduler = CallScheduler.ended(plan_graph(CHAIN))
    events: list[Event] = [
        CallAdmitted({"x": "v"}),
        InputArrived("x", 1),
        ActivationAccepted(1),
        ActivationYielded(1, 0, {"y": 1}),
        ActivationFinished(1, 0),
        ActivationFailed(1, BROKEN),
        CancelRequested(STOP),
    ]
    assert [scheduler.handle(event) for event in events] == [[]] * len(events)
    assert (scheduler.phase, scheduler.active_count) == (CallPhase.ENDED, 0)


@pytest.mark.parametrize("event", ["yield", "finish", "accept", "fail"])
def test_event_of_an_unknown_activation_changes_nothing(event: str) -> None:
    drive = Driven(CHAIN)
    drive.admit(x="v")
    events: dict[str, Event] = {
        "yield": ActivationYielded(9, 0, {"y": 1}),
        "finish": ActivationFinished(9, 0),
        "accept": ActivationAccepted(9),
        "fail": ActivationFailed(9, ErrorInfo(reason=Reason.REPLICA_LOST, message="gone")),
    }
    assert drive(events[event]) == []
    assert drive.running.keys() == {"a"}


def rounds(drive: Driven, first: int, count: int) -> None:
    """Each starts two branches, a join of them and a gated node, and ends all of them."""
    for i in range(first, first + count):
        turn = f"#{i}" if i else ""
        drive.give("a", y=i)
        drive.run(f"b{turn}", i)
        drive.run(f"c{turn}", i)
        drive.run(f"j{turn}", i)
        drive.run(f"g{turn}", i)


def test_work_of_an_event_does_not_grow_with_finished_activations() -> None:
    nodes = (node("a"), node("b"), node("c"), node("j", "b c"), node("g", is_session_ordered=True))
    edges = "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>g.x g.y>out"
    drive = Driven(graph(nodes, edges), checks_every_step=False)
    drive.admit(x="v")
    rounds(drive, 0, 20)
    early = lines_run(lambda: rounds(drive, 20, 20))
    rounds(drive, 40, 400)
    late = lines_run(lambda: rounds(drive, 440, 20))
    assert late <= 1.05 * early
    assert drive.scheduler.active_count == 1
    assert drive.values() == list(range(460))


def test_memory_of_a_call_does_not_grow_with_finished_activations() -> None:
    """Objects that the scheduler reaches, after each of 400 frames through a join and a gate, and a loop beside them."""
    nodes = (
        node("a"),
        node("b"),
        node("c"),
        node("j", "b c"),
        node("g", is_session_ordered=True),
        node("loop", "first: x; more: z", outputs="y again", loop_bound=10_000),
    )
    edges = "s>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>g.x g.y>out a.y>loop.first.x loop.again>loop.more.z loop.y>out"
    scheduler = CallScheduler(plan_graph(graph(nodes, edges, inputs="", streaming="s")))
    scheduler.handle(CallAdmitted({}, frozenset({"s"})))
    sizes = []
    for number in range(400):
        waiting = scheduler.handle(InputArrived("s", number))
        while waiting:
            command = waiting.pop(0)
            if isinstance(command, StartActivation):
                fields = {"again": 1} if command.node.name == "loop" and command.group == "first" else {"y": number}
                waiting += scheduler.handle(ActivationYielded(command.activation_id, 0, fields, 10))
                waiting += scheduler.handle(ActivationFinished(command.activation_id, 1))
        assert scheduler.active_count == scheduler.open_buckets == scheduler.lease_count == 0
        sizes.append(reached_objects(scheduler))
    assert sizes[-1] == sizes[10]


def reached_objects(root: object) -> int:
    """How many containers a scheduler reaches, its plan and classes aside."""
    seen: set[int] = set()
    frontier = [root]
    while frontier:
        for item in gc.get_referents(frontier.pop()):
            if id(item) not in seen and gc.is_tracked(item) and not isinstance(item, type | NodePlan | FunctionType):
                seen.add(id(item))
                frontier.append(item)
    return len(seen)
