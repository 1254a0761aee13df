"""The record of a call: every kind of event comes back from it, within its bound, and the call runs again by it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from omniflow_core.control.commands import AckYields, Command, Emit, FinishCall, ReleaseCall, StartActivation
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    CancelRequested,
    Event,
    ExitYielded,
    InputArrived,
)
from omniflow_core.control.replay import RecordedEvent, StandIn, replay
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.plan import GraphPlan, plan_graph
from omniflow_core.graph.spec import OnFailure, Replay
from omniflow_server.control.recording import ENTRY_BYTES, CallRecorder, Kind, count_events, events_of
from tests.support.graphs import graph, node

CHAIN = plan_graph(graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out"))
STREAM = plan_graph(graph((node("a"),), "s>a.x a.y>out", inputs="", streaming="s"))
COUNTED = plan_graph(
    graph((node("p", outputs="y n#"), node("d", "img n#", counts="img=n")), "x>p.x p.y>d.img p.n>d.n d.y>out")
)
AGAIN = plan_graph(graph((node("a", is_deterministic=True, replay=Replay.RESTART), node("b")), "x>a.x a.y>b.x b.y>out"))
SKIPPING = plan_graph(graph((node("a", on_failure=OnFailure.SKIP),), "x>a.x a.y>out"))


def pipeline_of(count: int) -> GraphPlan:
    """A pipeline of so many nodes."""
    nodes = tuple(node(f"n{i}", is_inline=False, role="rs"[i % 2]) for i in range(count))
    edges = " ".join(f"n{i}.y>n{i + 1}.x" for i in range(count - 1))
    return plan_graph(graph(nodes, f"x>n0.x {edges} n{count - 1}.y>out"))


LOST = ErrorInfo(reason=Reason.REPLICA_LOST, message="worker-0 is gone", metadata={"node": "a"})
BROKEN = ErrorInfo(reason=Reason.INTERFACE_FAILED, message="it broke")
STOP = ErrorInfo(reason=Reason.CALL_CANCELLED, message="stop")


class Recorded:
    """A scheduler with its recorder, and a clock that a test sets."""

    def __init__(self, plan: GraphPlan, *, limit_bytes: int = 1 << 20) -> None:
        self.now_us = 0
        self.plan = plan
        self.recorder = CallRecorder(
            limit_bytes=limit_bytes, began_ns=5_000_000, now_ns=lambda: 5_000_000 + self.now_us * 1000
        )
        questions: dict[str, Any] = {
            "count_of": self.recorder.counting(lambda value: value if isinstance(value, int) else None),
            "digest_of": self.recorder.digesting(lambda fields: repr(sorted(fields.items())).encode()),
        }
        self.scheduler = CallScheduler(plan, **questions)
        self.commands: list[list[Command]] = []

    def __call__(self, *events: Event) -> None:
        for event in events:
            self.commands.append(self.recorder.handle(self.scheduler, event))

    @property
    def events(self) -> list[RecordedEvent]:
        return list(events_of(self.recorder.entries, self.recorder.texts))

    def check_replay(self) -> None:
        """The record brings about the same kinds of commands, in the same order, as it says itself."""
        steps = list(replay(self.plan, {}, self.events))
        assert all(step.agrees for step in steps)
        assert [[type(c) for c in step.commands] for step in steps] == [
            [type(c) for c in made] for made in self.commands
        ]


def test_every_kind_of_event_comes_back() -> None:
    call = Recorded(STREAM)
    given: list[Event] = [
        CallAdmitted({}, frozenset({"s"})),
        InputArrived("s", "v", False, 7),
        InputArrived("s", "w", True, 8),
        ActivationAccepted(1),
        ActivationYielded(1, 0, {"y": "v"}, 5, 1, 2**40),
        ActivationYielded(1, 1, {}),
        ActivationFinished(1, 2, "length", 3, 1, 4, 1, ("history", "other")),
        ActivationFailed(2, BROKEN),
        CancelRequested(STOP),
    ]
    call(*given)
    came = [recorded.event for recorded in call.events]
    assert came == [
        CallAdmitted({}, frozenset({"s"})),
        InputArrived("s", StandIn(1, "s"), False, 7),
        InputArrived("s", StandIn(2, "s"), True, 8),
        ActivationAccepted(1),
        ActivationYielded(1, 0, {"y": StandIn(4, "y")}, 5, 1, 2**40),
        ActivationYielded(1, 1, {}),
        ActivationFinished(1, 2, "length", 3, 1, 4, 1, (StandIn(6, "0"), StandIn(6, "1"))),
        ActivationFailed(2, BROKEN),
        CancelRequested(STOP),
    ]
    call.check_replay()


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9])
def test_exits_of_a_pipeline_come_back_with_their_paths(count: int) -> None:
    call = Recorded(pipeline_of(count))
    path = (0, 2**32 - 1, *range(count - 1))
    exits = [ExitYielded(1, 0, {"y": "v"}, path, 5, 1, 2**40), ExitYielded(1, 1, {}, path)]
    finished = ActivationFinished(1, 2, started_activations=count)
    call(CallAdmitted({"x": "v"}), *exits, finished)
    came = [recorded.event for recorded in call.events]
    assert came[1:] == [dataclasses.replace(exits[0], fields={"y": StandIn(1, "y")}), exits[1], finished]
    assert [[type(command) for command in made] for made in call.commands[1:]] == [
        [Emit, AckYields],
        [],
        [FinishCall, ReleaseCall],
    ]
    call.check_replay()


def test_activations_that_a_pipeline_has_started_come_back_with_its_other_counters() -> None:
    call = Recorded(pipeline_of(2))
    finished = ActivationFinished(1, 0, "length", 3, 1, 4, started_activations=2**40)
    call(CallAdmitted({"x": "v"}), finished)
    assert call.events[1].event == finished
    call.check_replay()


def test_exit_without_a_path_comes_back() -> None:
    call = Recorded(pipeline_of(2))
    call(CallAdmitted({"x": "v"}), ExitYielded(1, 0, {"y": "v"}, ()))
    assert call.events[1].event == ExitYielded(1, 0, {"y": StandIn(1, "y")}, ())
    call.check_replay()


def test_yield_that_came_with_the_end_comes_back() -> None:
    call = Recorded(CHAIN)
    last = ActivationFinished(1, 1, "stop", last={"y": "v"}, size_bytes=5, stored_bytes=2**40)
    call(CallAdmitted({"x": "v"}), ActivationAccepted(1, hosts_segment=True), last, ActivationFinished(2, 0))
    came = [recorded.event for recorded in call.events]
    assert came[1] == ActivationAccepted(1, hosts_segment=True)
    assert came[2] == dataclasses.replace(last, last={"y": StandIn(2, "y")})
    call.check_replay()


def test_yield_that_comes_with_the_end_of_a_failed_call_is_not_kept() -> None:
    call = Recorded(CHAIN)
    call(CallAdmitted({"x": "v"}), CancelRequested(STOP))
    limit_bytes = call.recorder.seal(1)
    call(ActivationFinished(1, 1, last={"a name that is kept nowhere else": "v"}))
    assert call.recorder.size_bytes <= limit_bytes
    assert call.recorder.left_out == 0
    call.check_replay()


def test_end_of_an_input_without_a_value_comes_back() -> None:
    call = Recorded(STREAM)
    call(CallAdmitted({}, frozenset({"s"})), InputArrived("s", None, True))
    assert call.events[1].event == InputArrived("s", None, True)
    call.check_replay()


def test_single_inputs_come_back_by_name() -> None:
    call = Recorded(plan_graph(graph((node("a", "p q"),), "p>a.p q>a.q a.y>out", inputs="p q")))
    call(CallAdmitted({"p": "v", "q": "w"}))
    assert call.events[0].event == CallAdmitted({"p": StandIn(0, "p"), "q": StandIn(0, "q")})


def test_times_are_since_the_call_was_accepted() -> None:
    call = Recorded(CHAIN)
    call(CallAdmitted({"x": "v"}))
    call.now_us = 1_500_000
    call(ActivationAccepted(1))
    assert [recorded.time_us for recorded in call.events] == [0, 1_500_000]


def test_counts_are_kept_and_nothing_else_of_a_value() -> None:
    call = Recorded(COUNTED)
    call(CallAdmitted({"x": "secret"}), ActivationYielded(1, 0, {"y": "secret"}), ActivationYielded(1, 1, {"n": 1}))
    assert [recorded.counts for recorded in call.events] == [(), (), (1,)]
    assert b"secret" not in call.recorder.entries
    assert "secret" not in "".join(call.recorder.texts)
    assert [type(command) for command in call.commands[2]] == [StartActivation]
    call.check_replay()


@pytest.mark.parametrize("value", ["text", -1])
def test_value_that_is_no_count_is_kept_as_none(value: object) -> None:
    call = Recorded(COUNTED)
    call(CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"n": value}))
    assert call.events[1].counts == (None,)
    call.check_replay()


@pytest.mark.parametrize("repeated", ["v", "other"])
def test_digests_are_kept_and_compare_as_they_did(repeated: str) -> None:
    """A deterministic node that is lost runs again; its yields are compared with those of its first attempt."""
    call = Recorded(AGAIN)
    call(CallAdmitted({"x": "v"}), ActivationYielded(1, 0, {"y": "v"}), ActivationFailed(1, LOST))
    call(ActivationYielded(1, 0, {"y": repeated}, attempt=2))
    assert [len(recorded.digests) for recorded in call.events] == [0, 1, 0, 1]
    assert (call.events[1].digests == call.events[3].digests) == (repeated == "v")
    call.check_replay()


def test_failure_that_is_skipped_comes_back_with_its_message() -> None:
    call = Recorded(SKIPPING)
    call(CallAdmitted({"x": "v"}), ActivationFailed(1, dataclasses.replace(BROKEN, message="é" * 1000)))
    event = call.events[1].event
    assert isinstance(event, ActivationFailed)
    assert event.error.reason is Reason.INTERFACE_FAILED
    assert event.error.message == "é" * (512 - len("INTERFACE_FAILED\n"))
    call.check_replay()


def test_numbers_that_do_not_fit_are_kept_as_the_largest() -> None:
    call = Recorded(CHAIN)
    call(CallAdmitted({"x": "v"}), ActivationYielded(1, 2**40, {"y": "v"}, attempt=1), ActivationAccepted(1, 2**20))
    yielded, accepted = (recorded.event for recorded in call.events[1:])
    assert isinstance(yielded, ActivationYielded)
    assert isinstance(accepted, ActivationAccepted)
    assert (yielded.ordinal, accepted.attempt) == (2**32 - 1, 255)
    call.check_replay()


# --- bounds -------------------------------------------------------------------------------------------------------------


def fill(call: Recorded, yields: int) -> None:
    call(CallAdmitted({"x": "v"}), *(ActivationYielded(1, i, {"y": "v"}) for i in range(yields)))


def test_full_record_stops_and_counts_what_it_leaves_out() -> None:
    call = Recorded(CHAIN, limit_bytes=2000)
    fill(call, 100)
    assert call.recorder.size_bytes <= 2000 + ENTRY_BYTES
    kept = len(call.events)
    assert 0 < kept < 101
    assert call.recorder.left_out == 101 - kept
    assert [recorded.event for recorded in call.events][-1] == ActivationYielded(
        1, kept - 2, {"y": StandIn(kept - 1, "y")}
    )
    steps = list(replay(CHAIN, {}, call.events))
    assert all(step.agrees for step in steps), "what is kept still runs"
    assert len(call.scheduler.inspect().activations) == 101, "the call itself is not touched"


def test_full_record_ends_with_a_whole_exit() -> None:
    """Whatever there is room for, the events that are kept bring about what they did."""
    plan = pipeline_of(9)
    for limit in range(1000, 2000, ENTRY_BYTES):
        call = Recorded(plan, limit_bytes=limit)
        call(CallAdmitted({"x": "v"}), *(ExitYielded(1, i, {"y": "v"}, (0, i, *range(8)), 1, 1, 1) for i in range(9)))
        assert 0 < call.recorder.left_out < 9
        assert len(call.events) + call.recorder.left_out == 10
        assert all(step.agrees for step in replay(plan, {}, call.events))


def test_texts_count_towards_the_bound() -> None:
    call = Recorded(CHAIN, limit_bytes=4000)
    call(CallAdmitted({"x": "v"}), *(ActivationYielded(1, 0, {f"{'f' * 400}{i}": "v"}) for i in range(100)))
    assert call.recorder.size_bytes < 4000 + 1000
    assert call.recorder.left_out > 90


def test_record_without_room_keeps_nothing() -> None:
    call = Recorded(CHAIN, limit_bytes=0)
    fill(call, 3)
    assert (call.recorder.entries, call.recorder.left_out) == (b"", 4)


def test_sealed_record_grows_by_the_ends_of_what_runs_and_no_further() -> None:
    call = Recorded(CHAIN)
    fill(call, 3)
    call(CancelRequested(STOP))
    bound = call.recorder.seal(call.scheduler.active_count)
    call(*(ActivationYielded(1, i, {"y": "v"}) for i in range(3, 100)))
    call(*(ExitYielded(1, i, {"y": "v"}, (0, 0, 0)) for i in range(3, 100)))
    call(*(ActivationFailed(i, STOP) for i in range(1, 5)))
    assert call.recorder.size_bytes <= bound
    assert call.recorder.left_out == 0, "yields after the end change nothing, and the ends have room"


def test_sealed_record_of_a_call_without_work_does_not_grow() -> None:
    call = Recorded(CHAIN)
    call(CallAdmitted({"x": "v"}), ActivationFinished(1, 0))
    bound = call.recorder.seal(0)
    assert bound == call.recorder.size_bytes
    call(ActivationAccepted(1))
    assert call.recorder.size_bytes == bound


def test_closed_record_takes_no_more_and_counts_no_more() -> None:
    call = Recorded(CHAIN)
    call(CallAdmitted({"x": "v"}), ActivationFinished(1, 0))
    call.recorder.close()
    call(ActivationAccepted(1))
    assert (len(call.events), call.recorder.left_out) == (2, 0)
    call.commands.pop()
    call.check_replay()


# --- faults -------------------------------------------------------------------------------------------------------------


class Broken(CallScheduler):
    """Breaks on acceptances."""

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, ActivationAccepted):
            raise ZeroDivisionError
        return super().handle(event)


def test_event_that_breaks_the_scheduler_is_recorded() -> None:
    call = Recorded(CHAIN)
    call.scheduler = Broken(CHAIN)
    call(CallAdmitted({"x": "v"}))
    with pytest.raises(ZeroDivisionError):
        call(ActivationAccepted(1))
    assert [(recorded.event, recorded.has_raised) for recorded in call.events[1:]] == [(ActivationAccepted(1), True)]


def test_bytes_that_are_no_record_are_refused() -> None:
    call = Recorded(CHAIN)
    fill(call, 2)
    entries, texts = call.recorder.entries, call.recorder.texts
    for damaged, named in ((entries[:-1], texts), (entries, texts[:1]), (b"\x0f" + entries[1:], texts)):
        with pytest.raises(ValueError):
            list(events_of(damaged, named))


def test_details_of_an_event_that_never_came_are_passed_over() -> None:
    call = Recorded(CHAIN)
    fill(call, 2)
    detail = bytes([Kind.STORED]) + bytes(ENTRY_BYTES - 1)
    entries = call.recorder.entries + detail
    assert len(list(events_of(entries, call.recorder.texts))) == 3
    assert count_events(entries) == 3
