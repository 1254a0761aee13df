"""The scheduler of one call: events in, commands compared."""

from __future__ import annotations

import dataclasses

from omniflow_core.control.commands import (
    AckYields,
    CallUsage,
    CancelActivations,
    Command,
    Emit,
    FailCall,
    FinishCall,
    ReleaseCall,
    StartActivation,
)
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
from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.spec import FieldSpec, GraphSpec, GroupSpec, OnFailure, OnImpossible
from tests.support.graphs import graph, node

CANCEL = CancelRequested(ErrorInfo(reason=Reason.CALL_CANCELLED, message="stop"))
BROKEN = ErrorInfo(reason=Reason.INTERFACE_FAILED, message="it broke")


class Driven:
    """A scheduler whose invariants are checked after every event."""

    def __init__(self, spec: GraphSpec, **options: int) -> None:
        self.scheduler = CallScheduler(plan_graph(spec), **options)
        self.commands: list[Command] = []

    def __call__(self, *events: Event) -> list[Command]:
        out: list[Command] = []
        for event in events:
            out += self.scheduler.handle(event)
            self.scheduler.check_integrity()
        self.commands += out
        return out


def short(commands: list[Command]) -> list[str]:
    """Commands in a form that reads well in a comparison."""
    return [_short(command) for command in commands]


def _short(command: Command) -> str:
    match command:
        case StartActivation():
            fields = ",".join(f"{n}={'+'.join(map(str, v))}" for n, v in command.fields.items())
            return f"start {command.activation_id}:{command.node.name}.{command.group}({fields})"
        case AckYields():
            return f"ack {command.activation_id}<{command.next_ordinal}"
        case Emit():
            return f"emit {command.output}={command.value}"
        case CancelActivations():
            return "cancel"
        case FinishCall():
            return f"finish {command.finish_reason}"
        case FailCall():
            return f"fail {command.error.reason}"
        case ReleaseCall():
            return "release"


CHAIN = graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out")


def test_call_runs_a_chain_to_its_end() -> None:
    drive = Driven(CHAIN)
    assert short(drive(CallAdmitted({"x": "v"}))) == ["start 1:a.main(x=v)"]
    assert drive(ActivationAccepted(1)) == []
    assert short(drive(ActivationYielded(1, 0, {"y": "w"}))) == ["start 2:b.main(x=w)"]
    assert drive(ActivationFinished(1, 1)) == []
    assert short(drive(ActivationYielded(2, 0, {"y": "z"}))) == ["emit out=z"]
    assert short(drive(ActivationFinished(2, 1, "length", 3, 1, 5))) == ["finish length", "release"]
    finish = drive.commands[-2]
    assert finish == FinishCall(
        "length", CallUsage(input_tokens=3, cached_input_tokens=1, output_tokens=5, activations=2)
    )


def test_emit_carries_the_path_from_the_call_root() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"y": "a"}), ActivationYielded(1, 1, {"y": "b"}))
    drive(ActivationFinished(1, 2), ActivationYielded(2, 0, {"y": "p"}), ActivationFinished(2, 1))
    (emit,) = drive(ActivationYielded(3, 0, {"y": "q"}))
    assert emit == Emit("out", "b", (0, 1, 0), "q")


def test_yield_without_a_field_is_skipped_downstream() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}))
    assert drive(ActivationYielded(1, 0, {})) == []
    assert short(drive(ActivationFinished(1, 1))) == ["finish stop", "release"]


def test_partial_yield_is_impossible() -> None:
    spec = graph((node("a", outputs="y z"), node("b", inputs="p q")), "x>a.x a.y>b.p a.z>b.q b.y>out")
    drive = Driven(spec)
    drive(CallAdmitted({"x": "v"}))
    assert short(drive(ActivationYielded(1, 0, {"y": "w"}))) == ["cancel", "fail IMPOSSIBLE_INPUT"]
    fail = drive.commands[-1]
    assert isinstance(fail, FailCall)
    assert fail.error.metadata == {"node": "b", "group": "main", "missing": "q"}


def test_on_impossible_skip_passes_on() -> None:
    b = node("b", inputs="p q", on_impossible=OnImpossible.SKIP)
    drive = Driven(graph((node("a", outputs="y z"), b), "x>a.x a.y>b.p a.z>b.q b.y>out"))
    drive(CallAdmitted({"x": "v"}))
    assert drive(ActivationYielded(1, 0, {"y": "w"})) == []
    assert short(drive(ActivationFinished(1, 1))) == ["finish stop", "release"]


def test_optional_field_skipped() -> None:
    spec = graph((node("a", outputs="y z"), node("b", inputs="p q?")), "x>a.x a.y>b.p a.z>b.q b.y>out")
    drive = Driven(spec)
    drive(CallAdmitted({"x": "v"}))
    assert short(drive(ActivationYielded(1, 0, {"y": "w"}))) == ["start 2:b.main(p=w)"]


def test_group_of_optional_fields_runs_with_any_of_them() -> None:
    spec = graph((node("a", inputs="t? s?"),), "t>a.t s>a.s a.y>out", inputs="t? s?")
    assert short(Driven(spec)(CallAdmitted({"s": 1}))) == ["start 1:a.main(s=1)"]


def test_return_order_holds_a_later_sibling_back() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"y": "a"}), ActivationYielded(1, 1, {"y": "b"}))
    assert drive(ActivationYielded(3, 0, {"y": "late"})) == []
    assert short(drive(ActivationYielded(2, 0, {"y": "one"}))) == ["emit out=one"]
    assert short(drive(ActivationYielded(2, 1, {"y": "two"}))) == ["emit out=two"]
    assert short(drive(ActivationFinished(2, 2))) == ["emit out=late"]
    assert short(drive(ActivationYielded(3, 1, {"y": "more"}))) == ["emit out=more"]
    assert short(drive(ActivationFinished(3, 2), ActivationFinished(1, 2))) == ["finish stop", "release"]


def test_return_order_passes_a_sibling_that_gives_nothing() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"y": "a"}), ActivationYielded(1, 1, {"y": "b"}))
    drive(ActivationYielded(3, 0, {"y": "late"}), ActivationFinished(3, 1))
    assert short(drive(ActivationFinished(2, 0))) == ["emit out=late"]


def test_unordered_output_keeps_activation_order() -> None:
    drive = Driven(graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out", outputs="", unordered="out"))
    drive(CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"y": "a"}), ActivationYielded(1, 1, {"y": "b"}))
    assert short(drive(ActivationYielded(3, 0, {"y": "q0"}), ActivationYielded(3, 1, {"y": "q1"}))) == [
        "emit out=q0",
        "emit out=q1",
    ]
    assert short(drive(ActivationYielded(2, 0, {"y": "p0"}))) == ["emit out=p0"]


def test_return_order_under_shuffled_transport() -> None:
    """1,000 tokens over two branches arrive once each in order, though the second branch answers first."""
    even_odd = node("a", outputs="even odd")
    spec = graph((even_odd, node("b"), node("c")), "x>a.x a.even>b.x a.odd>c.x b.y>out c.y>out")
    drive = Driven(spec)
    drive(CallAdmitted({"x": "v"}))
    for i in range(1000):
        drive.scheduler.handle(ActivationYielded(1, i, {"odd" if i % 2 else "even": i}))
    emitted: list[object] = []
    for activation_id in sorted(range(2, 1002), key=lambda a: (a % 2 == 0, -a)):
        for event in (
            ActivationYielded(activation_id, 0, {"y": activation_id - 2}),
            ActivationFinished(activation_id, 1),
        ):
            emitted += [c.value for c in drive.scheduler.handle(event) if isinstance(c, Emit)]
    drive.scheduler.check_integrity()
    assert emitted == list(range(1000))


def test_streaming_input_keeps_the_call_open() -> None:
    drive = Driven(graph((node("a"),), "s>a.x a.y>out", inputs="", streaming="s"))
    assert drive(CallAdmitted({}, frozenset({"s"}))) == []
    assert short(drive(InputArrived("s", 1))) == ["start 1:a.main(x=1)"]
    assert short(drive(ActivationYielded(1, 0, {"y": "r"}), ActivationFinished(1, 1))) == ["emit out=r"]
    assert short(drive(InputArrived("s", 2, is_last=True))) == ["start 2:a.main(x=2)"]
    assert drive(InputArrived("s", 3)) == []
    assert short(drive(ActivationFinished(2, 0))) == ["finish stop", "release"]


def test_branch_raises_fails_the_call_and_cancels_the_rest() -> None:
    spec = graph((node("a"), node("b")), "x>a.x x>b.x a.y>out b.y>out")
    drive = Driven(spec)
    drive(CallAdmitted({"x": "v"}))
    assert short(drive(ActivationFailed(1, BROKEN))) == ["cancel", "fail INTERFACE_FAILED"]
    assert drive(ActivationYielded(2, 0, {"y": "late"})) == []
    assert short(drive(ActivationFailed(2, BROKEN))) == ["release"]


def test_on_failure_skip_lets_the_call_go_on() -> None:
    spec = graph((node("a"), node("b", on_failure=OnFailure.SKIP)), "x>a.x x>b.x a.y>out b.y>out")
    drive = Driven(spec)
    drive(CallAdmitted({"x": "v"}))
    assert drive(ActivationFailed(2, BROKEN)) == []
    assert short(drive(ActivationYielded(1, 0, {"y": "r"}), ActivationFinished(1, 1))) == [
        "emit out=r",
        "finish stop",
        "release",
    ]


def test_cancel_while_running() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}))
    assert short(drive(CANCEL)) == ["cancel", "fail CALL_CANCELLED"]
    assert drive.scheduler.phase is CallPhase.ENDED
    assert short(drive(ActivationFailed(1, BROKEN))) == ["release"]


def test_cancel_in_queue() -> None:
    drive = Driven(CHAIN)
    assert short(drive(CANCEL)) == ["fail CALL_CANCELLED", "release"]
    assert drive(CallAdmitted({"x": "v"})) == []


def test_cancel_after_finish() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}), ActivationFinished(1, 0))
    assert drive(CANCEL) == []


def test_cancel_twice() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}), CANCEL)
    assert drive(CANCEL) == []


def test_duplicate_delivery_suppressed() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"y": "w"}))
    assert drive(ActivationYielded(1, 0, {"y": "w"})) == []
    drive(ActivationAccepted(2))
    assert drive(ActivationAccepted(2)) == []
    drive(ActivationFinished(2, 0))
    assert drive(ActivationFinished(2, 0)) == []


def test_gap_in_yields_fails_the_call() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}))
    assert short(drive(ActivationYielded(1, 1, {"y": "w"}))) == ["fail INTERNAL", "release"]


def test_yield_count_that_differs_fails_the_call() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {}))
    assert short(drive(ActivationFinished(1, 3))) == ["fail INTERNAL", "release"]


def test_acks_come_at_half_a_window() -> None:
    drive = Driven(graph((node("a", yield_window=4),), "x>a.x a.y>out"))
    drive(CallAdmitted({"x": "v"}))
    acks = [c for i in range(5) for c in drive(ActivationYielded(1, i, {"y": i})) if isinstance(c, AckYields)]
    assert acks == [AckYields(1, 2), AckYields(1, 4)]


def test_window_one_acks_every_yield() -> None:
    drive = Driven(graph((node("a", yield_window=1),), "x>a.x a.y>out"))
    drive(CallAdmitted({"x": "v"}))
    assert short(drive(ActivationYielded(1, 0, {"y": "v"}))) == ["emit out=v", "ack 1<1"]


def test_yield_is_delivered_when_its_activation_is_accepted() -> None:
    drive = Driven(graph((node("a", yield_window=1), node("b")), "x>a.x a.y>b.x b.y>out"))
    drive(CallAdmitted({"x": "v"}))
    assert short(drive(ActivationYielded(1, 0, {"y": "w"}))) == ["start 2:b.main(x=w)"]
    assert short(drive(ActivationAccepted(2))) == ["ack 1<1"]


def test_loop_runs_to_its_bound() -> None:
    loop = dataclasses.replace(
        node("a", outputs="y again"),
        loop_bound=3,
        groups=(
            GroupSpec(name="first", fields=(FieldSpec(name="x", type="TEXT"),)),
            GroupSpec(name="more", fields=(FieldSpec(name="z", type="TEXT"),)),
        ),
    )
    drive = Driven(graph((loop,), "x>a.x a.again>a.z a.y>out"))
    drive(CallAdmitted({"x": "v"}))
    assert short(drive(ActivationYielded(1, 0, {"again": 1}))) == ["start 2:a.more(z=1)"]
    assert short(drive(ActivationYielded(2, 0, {"again": 2}))) == ["start 3:a.more(z=2)"]
    assert short(drive(ActivationYielded(3, 0, {"again": 3}))) == ["cancel", "fail LOOP_BOUND_EXCEEDED"]


def test_fan_out_that_fails_half_way_starts_nothing() -> None:
    spec = graph(
        (node("a", outputs="y z"), node("b"), node("c", inputs="p q")), "x>a.x a.y>b.x a.y>c.p a.z>c.q b.y>out c.y>out"
    )
    drive = Driven(spec)
    drive(CallAdmitted({"x": "v"}))
    assert short(drive(ActivationYielded(1, 0, {"y": "w"}))) == ["cancel", "fail IMPOSSIBLE_INPUT"]
    assert short(drive(ActivationFinished(1, 1))) == ["release"]


def test_output_that_waits_too_long_fails_the_call() -> None:
    drive = Driven(CHAIN, hold_limit_bytes=100)
    drive(CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"y": "a"}), ActivationYielded(1, 1, {"y": "b"}))
    assert short(drive(ActivationYielded(3, 0, {"y": "big"}, 101))) == ["cancel", "fail BUFFER_FULL"]


def test_cost_does_not_grow_with_finished_activations() -> None:
    drive = Driven(CHAIN)
    drive(CallAdmitted({"x": "v"}))
    for i in range(200):
        drive(ActivationYielded(1, i, {"y": i}), ActivationFinished(2 + i, 0))
    assert drive.scheduler.active_count == 1
    (tree,) = drive.scheduler._trees
    assert sum(len(n.slots) for n in drive.scheduler._active[1].order_nodes.values()) == 0
    assert len(tree.root.slots) == 1  # only the root yield that everything descends from


def test_acks_come_at_half_the_byte_credit() -> None:
    drive = Driven(graph((node("a", yield_window=64),), "x>a.x a.y>out"), byte_credit=100)
    drive(CallAdmitted({"x": "v"}))
    sizes = (20, 29, 1, 49, 10, 200)
    acks = [
        c
        for i, size in enumerate(sizes)
        for c in drive(ActivationYielded(1, i, {"y": i}, size))
        if isinstance(c, AckYields)
    ]
    assert acks == [AckYields(1, 3), AckYields(1, 5), AckYields(1, 6)]


def test_acks_count_what_the_producer_stores() -> None:
    drive = Driven(graph((node("a"),), "x>a.x a.y>out"), byte_credit=100)
    drive(CallAdmitted({"x": "v"}))
    assert AckYields(1, 1) in drive(ActivationYielded(1, 0, {"y": "v"}, 10, stored_bytes=40))


def test_acks_of_bytes_wait_for_delivery() -> None:
    """A large yield that a busy replica has not accepted holds the credit; once accepted, it gives it back."""
    drive = Driven(graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out"), byte_credit=100)
    drive(CallAdmitted({"x": "v"}))
    assert short(drive(ActivationYielded(1, 0, {"y": "w"}, 90))) == ["start 2:b.main(x=w)"]
    assert short(drive(ActivationYielded(1, 1, {"y": "w"}, 5))) == ["start 3:b.main(x=w)"]
    assert drive(ActivationAccepted(3)) == []
    assert short(drive(ActivationAccepted(2))) == ["ack 1<2"]


def test_ended_scheduler_answers_every_event_with_nothing() -> None:
    scheduler = CallScheduler.ended(plan_graph(CHAIN))
    events: list[Event] = [
        CallAdmitted({"x": "v"}),
        InputArrived("x", 1),
        ActivationAccepted(1),
        ActivationYielded(1, 0, {"y": 1}),
        ActivationFinished(1, 0),
        ActivationFailed(1, BROKEN),
        CANCEL,
    ]
    assert [scheduler.handle(event) for event in events] == [[]] * len(events)
    assert (scheduler.phase, scheduler.active_count) == (CallPhase.ENDED, 0)
