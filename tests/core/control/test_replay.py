"""Replays: the same events give the same commands, and what differs is told by the first event."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from omniflow_core.control.commands import (
    AckYields,
    CallUsage,
    CancelActivations,
    Command,
    Emit,
    Facet,
    FailCall,
    FinishCall,
    ReleaseCall,
    StartActivation,
)
from omniflow_core.control.events import ActivationAccepted, ActivationFinished, ActivationYielded, CallAdmitted, Event
from omniflow_core.control.replay import RecordedEvent, Replay, StandIn, checksum_of, replay
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.plan import GraphPlan, plan_graph
from tests.support.graphs import graph, node

CHAIN = plan_graph(graph((node("a"), node("b")), "x>a.x a.y>b.x b.y>out"))
COUNTED = plan_graph(
    graph((node("p", outputs="y n#"), node("d", "img n#", counts="img=n")), "x>p.x p.y>d.img p.n>d.n d.y>out")
)
EVENTS: tuple[Event, ...] = (
    CallAdmitted({"x": StandIn(0, "x")}),
    ActivationAccepted(1),
    ActivationYielded(1, 0, {"y": StandIn(2, "y")}),
    ActivationFinished(1, 1),
    ActivationYielded(2, 0, {"y": StandIn(4, "y")}),
    ActivationFinished(2, 1),
)


def recorded(plan: GraphPlan, events: tuple[Event, ...]) -> list[RecordedEvent]:
    """What a recorder would have kept."""
    scheduler = CallScheduler(plan)
    return [
        RecordedEvent(index=i, time_us=i, event=event, checksum=checksum_of(scheduler.handle(event)))
        for i, event in enumerate(events)
    ]


def test_replay_gives_the_commands_of_the_call() -> None:
    scheduler = CallScheduler(CHAIN)
    steps = list(replay(CHAIN, {}, recorded(CHAIN, EVENTS)))
    assert [step.commands for step in steps] == [scheduler.handle(event) for event in EVENTS]
    assert all(step.agrees for step in steps)
    assert [type(command) for command in steps[-1].commands] == [FinishCall, ReleaseCall]


def test_stand_ins_tell_what_came_from_where() -> None:
    steps = list(replay(CHAIN, {}, recorded(CHAIN, EVENTS)))
    (start,) = steps[2].commands
    assert isinstance(start, StartActivation)
    assert start.fields == {"x": (StandIn(2, "y"),)}


def test_replay_names_the_first_event_that_differs() -> None:
    events = recorded(CHAIN, EVENTS)
    events[3] = dataclasses.replace(events[3], checksum=events[3].checksum ^ 1)
    assert [step.recorded.index for step in replay(CHAIN, {}, events) if not step.agrees] == [3]


def test_replay_on_another_graph_differs() -> None:
    other = plan_graph(graph((node("a"), node("b"), node("c")), "x>a.x a.y>c.x c.y>b.x b.y>out"))
    steps = list(replay(other, {}, recorded(CHAIN, EVENTS)))
    assert next(step.recorded.index for step in steps if not step.agrees) == 2


def test_replay_with_other_limits_differs() -> None:
    steps = list(replay(CHAIN, {"max_activations": 1}, recorded(CHAIN, EVENTS)))
    assert [step.agrees for step in steps[:3]] == [True, True, False]


def test_replay_stands_where_the_call_stood() -> None:
    run = Replay(CHAIN, {})
    for event in recorded(CHAIN, EVENTS)[:3]:
        run.step(event)
    inspection = run.scheduler.inspect()
    assert [(view.activation_id, view.node, view.yields) for view in inspection.activations] == [
        (1, "a", 1),
        (2, "b", 0),
    ]


# --- answers about values -----------------------------------------------------------------------------------------------

COUNTING: tuple[Event, ...] = (
    CallAdmitted({"x": StandIn(0, "x")}),
    ActivationYielded(1, 0, {"y": StandIn(1, "y")}),
    ActivationYielded(1, 1, {"n": StandIn(2, "n")}),
)


def counted(*counts: int | None) -> list[RecordedEvent]:
    scheduler = CallScheduler(COUNTED, count_of=lambda value: 1)
    events = [
        RecordedEvent(index=i, time_us=i, event=event, checksum=checksum_of(scheduler.handle(event)))
        for i, event in enumerate(COUNTING)
    ]
    events[2] = dataclasses.replace(events[2], counts=counts)
    return events


def test_replay_answers_as_the_record_does() -> None:
    steps = list(replay(COUNTED, {}, counted(1)))
    assert [step.agrees for step in steps] == [True, True, True]
    assert [type(command) for command in steps[2].commands] == [StartActivation]


@pytest.mark.parametrize("counts", [(), (1, 1), (2,), (None,)])
def test_replay_with_other_questions_or_answers_differs(counts: tuple[int | None, ...]) -> None:
    assert [step.agrees for step in replay(COUNTED, {}, counted(*counts))] == [True, True, False]


def test_event_that_broke_the_scheduler_differs_when_it_does_so_no_more() -> None:
    events = recorded(CHAIN, EVENTS)
    events[1] = dataclasses.replace(events[1], has_raised=True)
    assert [step.agrees for step in replay(CHAIN, {}, events)][:3] == [True, False, True]


# --- checksums ----------------------------------------------------------------------------------------------------------

A, B = CHAIN.nodes["a"], CHAIN.nodes["b"]
USAGE = CallUsage(activations=2, output_tokens=5)
START = StartActivation(1, A, (Facet("main", {"x": ("v", "w")}),), (0, 1))
JOINED = Facet("main", {"p": ("v", "w")}, {"p": ((0, 1), (0, 2))})
ERROR = ErrorInfo(reason=Reason.INTERNAL, message="")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Emit("out", "a", (0, 1), "v"), Emit("other", "a", (0, 1), "v")),
        (Emit("out", "a", (0, 1), "v"), Emit("out", "a", (1, 0), "v")),
        (AckYields(1, 2), AckYields(2, 1)),
        (AckYields(1, 2), AckYields(1, 3)),
        (START, dataclasses.replace(START, activation_id=2)),
        (START, dataclasses.replace(START, node=B)),
        (START, dataclasses.replace(START, attempt=2)),
        (START, dataclasses.replace(START, origin_path=(1, 0))),
        (START, dataclasses.replace(START, delivered=({},))),
        (START, dataclasses.replace(START, facets=(Facet("other", {"x": ("v", "w")}),))),
        (START, dataclasses.replace(START, facets=(Facet("main", {"z": ("v", "w")}),))),
        (START, dataclasses.replace(START, facets=(Facet("main", {"x": ("v",)}),))),
        (START, dataclasses.replace(START, facets=(Facet("main", {"x": ("v", "w")}, None, {"x": 1}),))),
        (
            dataclasses.replace(START, facets=(JOINED,)),
            dataclasses.replace(START, facets=(dataclasses.replace(JOINED, paths={"p": ((0, 2), (0, 1))}),)),
        ),
        (FinishCall("stop", USAGE), FinishCall("length", USAGE)),
        (FinishCall("stop", USAGE), FinishCall("stop", CallUsage(activations=2, output_tokens=6))),
        (FinishCall("stop", USAGE), FinishCall("stop", USAGE, ("history",))),
        (FailCall(ERROR, USAGE), FailCall(dataclasses.replace(ERROR, reason=Reason.REPLICA_LOST), USAGE)),
        (FinishCall("stop", USAGE), FailCall(ERROR, USAGE)),
        (CancelActivations("why"), ReleaseCall()),
    ],
)
def test_checksum_tells_commands_apart(one: Command, other: Command) -> None:
    assert checksum_of([one]) != checksum_of([other])


@pytest.mark.parametrize(
    "change",
    [lambda commands: commands[:-1], lambda commands: commands[::-1], lambda commands: [*commands, ReleaseCall()]],
)
def test_checksum_is_over_all_commands_in_order(change: Callable[[list[Command]], list[Command]]) -> None:
    commands: list[Command] = [Emit("out", "a", (0,), "v"), AckYields(1, 1), START]
    assert checksum_of(commands) != checksum_of(change(commands))


def test_checksum_does_not_look_at_values_or_reasons_for_people() -> None:
    assert checksum_of([Emit("out", "a", (0,), "v")]) == checksum_of([Emit("out", "a", (0,), "w")])
    assert checksum_of([CancelActivations("why")]) == checksum_of([CancelActivations("because")])


def test_checksum_is_the_same_in_every_process() -> None:
    """A record is checked where it was not made: texts must not be hashed by the process's own seed. When the rule is meant
    to change, the format of records changes with it."""
    assert checksum_of([Emit("out", "a", (0, 1), "v"), START, AckYields(3, 4)]) == 2777640915
