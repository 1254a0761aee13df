"""An event costs the same however much has finished, and planning is linear: counted in executed lines, not by a clock."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

from omniflow_core.control.commands import AckYields, FinishCall, StartActivation
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    Event,
    ExitYielded,
    InputArrived,
)
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.control.segments import ENTRY, RunInner, SegmentCommand, SegmentRun
from omniflow_core.control.work_items import HostedSegment
from omniflow_core.graph.inside import segment_graph
from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.spec import ChunkSpec, GraphSpec, NodeSpec
from tests.support.graphs import graph, node

VALUES = 160
"""Streamed values of the long call; about 30 activations each."""

TURNS = 3
"""Iterations of the loop for each value."""


def fan_and_loop() -> GraphSpec:
    """Each value goes through five branches into a join, from there round a loop, through a gate and into chunks."""
    branches = [f"b{i}" for i in range(5)]
    nodes = (
        node("a"),
        *map(node, branches),
        node("j", " ".join(branches)),
        node("l", "main: x; loop: x", "y again", loop_bound=VALUES * (TURNS + 1)),
        node("s", is_session_ordered=True),
        node("c", "x"),
        node("k", "t", counts="t=3"),
    )
    edges = " ".join(f"a.y>{b}.x {b}.y>j.{b}" for b in branches)
    return graph(
        nodes,
        f"p>a.x {edges} j.y>l.main.x l.again>l.loop.x l.y>s.x l.y>c.x l.y>k.t s.y>out c.y>out k.y>out",
        inputs="",
        streaming="p",
        chunks={"l.y>c.x": ChunkSpec(size=2, left_context=1)},
    )


@dataclass(slots=True)
class LongCall:
    """A call whose activations run in the order of their starts, four values at a time."""

    scheduler: CallScheduler
    waiting: deque[StartActivation] = field(default_factory=deque)
    lines: list[int] = field(default_factory=list)
    """Executed lines of the core, by event."""
    sizes: list[int] = field(default_factory=list)
    """Objects that the scheduler keeps after every four values."""
    has_finished: bool = False

    def run(self) -> None:
        self.give(CallAdmitted({}, frozenset({"p"})))
        for i in range(VALUES):
            self.give(InputArrived("p", i, is_last=i == VALUES - 1, size_bytes=10))
            if i % 4 == 3:
                while self.waiting:
                    self.play(self.waiting.popleft())
                self.sizes.append(objects_kept_by(self.scheduler))

    def play(self, start: StartActivation) -> None:
        self.give(ActivationAccepted(start.activation_id))
        names: list[tuple[str, ...]] = [("y",)]
        if start.node.name == "l":
            iteration = len(start.origin_path) - 2  # below the yields of the port and of a
            names = [("y", "again")] if iteration < TURNS else [("y",), ("y",)]
        for ordinal, fields in enumerate(names):
            values = dict.fromkeys(fields, ordinal)
            self.give(ActivationYielded(start.activation_id, ordinal, values, 10))
        self.give(ActivationFinished(start.activation_id, len(names)))

    def give(self, event: Event) -> None:
        with CountedLines() as counter:
            commands = self.scheduler.handle(event)
        self.lines.append(counter.count)
        self.waiting.extend(c for c in commands if isinstance(c, StartActivation))
        self.has_finished |= any(isinstance(c, FinishCall) for c in commands)


class CountedLines:
    """Counts the executed lines of the core inside a `with`."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> CountedLines:
        self._before = sys.gettrace()
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _enter_frame(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        return self._line if "omniflow_core" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        self.count += event == "line"
        return self._line


def objects_kept_by(root: object) -> int:
    """Objects that can be reached from a scheduler or a run, its plan included."""
    seen: set[int] = set()
    frontier: list[object] = [root]
    count = 0
    while frontier:
        for found in gc.get_referents(frontier.pop()):
            if id(found) not in seen and not isinstance(found, type | FrameType) and not callable(found):
                seen.add(id(found))
                count += 1
                frontier.append(found)
    return count


def test_event_costs_the_same_at_the_start_and_at_the_end_of_a_long_call() -> None:
    call = LongCall(CallScheduler(plan_graph(fan_and_loop())))
    call.run()
    assert call.has_finished
    tenth = len(call.lines) // 10
    first, last = sum(call.lines[tenth : 2 * tenth]), sum(call.lines[-2 * tenth : -tenth])
    assert last <= 1.1 * first, f"{tenth} events took {first} lines early in the call, {last} late"
    assert call.sizes[-2] <= call.sizes[1] + 20, f"the scheduler keeps {call.sizes} objects"


def streaming_segment() -> GraphSpec:
    """Each yield of a goes through two branches into a join, all of one role; what the join gives goes out."""
    nodes = (_served("a"), _served("b"), _served("c"), _served("j", "b c"))
    return graph(nodes, "x>a.x a.y>b.x a.y>c.x b.y>j.b c.y>j.c j.y>out")


def _served(name: str, inputs: str = "x") -> NodeSpec:
    return node(name, inputs, is_inline=False, role="r")


@dataclass(slots=True)
class LongSegment:
    """A segment whose entry yields again and again, on its replica and in its call, each told the same at once."""

    scheduler: CallScheduler
    hosted: HostedSegment = field(init=False)
    run: SegmentRun = field(init=False)
    ids: dict[int, int] = field(default_factory=lambda: {ENTRY: 1})
    """The call's ids of the activations that run, by the replica's."""
    waiting: deque[int] = field(default_factory=deque)
    lines: list[int] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """Objects that the call and the run keep after every yield of the entry."""

    def play(self) -> None:
        self.scheduler.handle(CallAdmitted({"x": "v"}))
        self.scheduler.handle(ActivationAccepted(1, hosts_segment=True))
        hosted = self.scheduler.segment_of(1)
        assert hosted is not None
        self.hosted, plan = hosted, hosted.plan
        inside = segment_graph(plan.nodes, plan.edges, plan.entry)
        exits = {name: frozenset(fields) for name, fields in plan.exits.items()}
        self.run = SegmentRun(inside, plan.entry, exits, yield_window=64, byte_credit=1 << 20)
        for ordinal in range(4 * VALUES):
            self.yields(ENTRY, ordinal)
            while self.waiting:
                inner_id = self.waiting.popleft()
                self.yields(inner_id, 0)
                self.tell(ActivationFinished(self.ids[inner_id], 1), partial(self.run.finished, inner_id, 1))
                del self.ids[inner_id]
            self.sizes.append((objects_kept_by(self.scheduler), objects_kept_by(self.run)))

    def yields(self, inner_id: int, ordinal: int) -> None:
        event = ActivationYielded(self.ids[inner_id], ordinal, {"y": ordinal}, 10)
        self.tell(event, partial(self.run.yielded, inner_id, ordinal, {"y": ordinal}, 10, 0))

    def tell(self, event: Event, happen: Callable[[], list[SegmentCommand]]) -> None:
        with CountedLines() as counter:
            commands = happen()
            answers = self.scheduler.handle(event)
            for command in commands:
                if isinstance(command, RunInner):
                    parent = (self.ids[command.parent_id], command.parent_ordinal)
                    own_id = self.hosted.take(command.node, command.group, *parent)
                    assert own_id is not None
                    self.ids[command.inner_id] = own_id
                    self.waiting.append(command.inner_id)
            for answer in answers:
                if isinstance(answer, AckYields):
                    inner_id = next(inner for inner, own in self.ids.items() if own == answer.activation_id)
                    self.run.acknowledged(inner_id, answer.next_ordinal)
        self.lines.append(counter.count)


def test_event_inside_a_segment_costs_the_same_at_the_start_and_at_the_end() -> None:
    segment = LongSegment(CallScheduler(plan_graph(streaming_segment())))
    segment.play()
    assert len(segment.lines) == 4 * VALUES * 7
    tenth = len(segment.lines) // 10
    first, last = sum(segment.lines[tenth : 2 * tenth]), sum(segment.lines[-2 * tenth : -tenth])
    assert last <= 1.1 * first, f"{tenth} events took {first} lines early in the segment, {last} late"
    call, run = zip(*segment.sizes, strict=True)
    assert call[-1] <= call[200] + 20, f"the call keeps {call} objects"
    assert run[-1] <= run[200] + 20, f"the run keeps {run} objects"


def test_exit_of_a_pipeline_costs_the_same_at_the_start_and_at_the_end() -> None:
    nodes = (_served("a"), node("b", is_inline=False, role="s"))
    scheduler = CallScheduler(plan_graph(graph(nodes, "x>a.x a.y>b.x b.y>out")))
    scheduler.handle(CallAdmitted({"x": "v"}))
    lines, sizes = [], []
    for ordinal in range(10 * VALUES):
        event = ExitYielded(1, ordinal, {"y": ordinal}, (0, ordinal // 4, ordinal % 4), 10)
        with CountedLines() as counter:
            scheduler.handle(event)
        lines.append(counter.count)
        if ordinal % VALUES == VALUES - 1:
            sizes.append(objects_kept_by(scheduler))
    assert sum(lines[-VALUES:]) == sum(lines[VALUES : 2 * VALUES])
    assert sizes[-1] <= sizes[1] + 20, f"the scheduler keeps {sizes} objects"


def _chain_of_diamonds(length: int) -> GraphSpec:
    nodes, edges = [], []
    source = "x"
    for i in range(length):
        nodes += [node(f"a{i}"), node(f"b{i}"), node(f"c{i}"), node(f"j{i}", "b c")]
        edges += [f"{source}>a{i}.x", f"a{i}.y>b{i}.x", f"a{i}.y>c{i}.x", f"b{i}.y>j{i}.b", f"c{i}.y>j{i}.c"]
        source = f"j{i}.y"
    return graph(tuple(nodes), " ".join([*edges, f"{source}>out"]))


def _lines_to_plan(length: int) -> Iterator[int]:
    spec = _chain_of_diamonds(length)
    with CountedLines() as counter:
        plan_graph(spec)
    yield counter.count


def test_planning_is_linear_in_the_edges() -> None:
    (short,), (long,) = _lines_to_plan(40), _lines_to_plan(160)
    assert long <= 4.6 * short, f"40 diamonds took {short} lines, 160 took {long}"
