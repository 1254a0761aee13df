"""CPU time of the pure core: `CallScheduler.handle` over a recorded call, and planning.

    frame ─▶ pre ─┬─▶ img ─┐                    fan5: five nodes, the aggregation joins three branches below pre's yield
                  ├─▶ aud ─┼─▶ agg ─▶ out ─▶ text
                  └────────┘    └──▶ llm ⇄ tool          a bounded loop of three rounds, its tokens to a second output
                            agg (100 times) ─▶ total     a count join over the whole call

The trace is recorded once, by fake replicas that answer in a shuffled order, and then given to a fresh scheduler in every
round, event by event; the clock is that of the thread's CPU time. "First" and "last" are the tenths of the trace: what an
event costs must not grow with what the call has finished.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Sequence

from omniflow_core.control.commands import Command, FailCall, FinishCall, StartActivation
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    Event,
    InputArrived,
)
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.graph.plan import GraphPlan, plan_graph
from omniflow_core.graph.spec import GraphSpec
from tests.bench.harness import noise
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report
from tests.bench.harness.statistics import median, percentile
from tests.support.graphs import graph, node

EVENTS = 100_000
SIDE_BY_SIDE = 8
"""Frames that are on their way at the same time."""
LOOP_ROUNDS = 3
PLANNED_NODES = 200
_NS_PER_US = 1_000


async def run(options: Options) -> Report:
    """The bench."""
    looks = [await noise.look()]
    plan = plan_graph(fan5_and_loop())
    trace = record(plan, options.scaled(EVENTS))
    passes = [replay(plan, trace) for _ in range(options.rounds + 1)][1:]
    looks.append(await noise.look())
    typical, slowest = median([median(p) for p in passes]), median([percentile(p, 0.99) for p in passes])
    tenth = len(trace) // 10
    first, last = (median([sum(p[part]) / tenth for p in passes]) for part in (slice(tenth), slice(-tenth, None)))
    mean = median([sum(p) / len(trace) for p in passes])
    planning = [_plan_ms(spec) for spec in (diamonds(PLANNED_NODES), nest(PLANNED_NODES)) for _ in range(5)]
    looks.append(await noise.look())
    rows = [
        ["handle(), median", f"{typical:.1f} us"],
        ["handle(), mean", f"{mean:.1f} us"],
        ["handle(), p99", f"{slowest:.1f} us"],
        ["first tenth, mean", f"{first:.1f} us"],
        ["last tenth, mean", f"{last:.1f} us"],
        [f"planning {PLANNED_NODES} nodes", f"{max(planning):.1f} ms"],
    ]
    return Report(
        name="core",
        title=f"CPU time of the core; {len(trace)} events of one call, {options.rounds} passes",
        columns=["what", "CPU time"],
        rows=rows,
        checks=[
            Check(what="CPU time an event, median", value=typical, at_most=20, unit="us"),
            Check(what="CPU time an event, p99", value=slowest, at_most=100, unit="us"),
            Check(what="last tenth of the call against the first", value=last / first, at_most=1.2),
            Check(what=f"planning {PLANNED_NODES} nodes", value=max(planning), at_most=50, unit="ms"),
        ],
        looks=looks,
        details={
            "events": len(trace),
            "median_us": typical,
            "p99_us": slowest,
            "mean_us": mean,
            "planning_ms": planning,
        },
    )


def fan5_and_loop() -> GraphSpec:
    """The graph of the module's drawing."""
    nodes = (
        node("pre", outputs="y"),
        node("img"),
        node("aud"),
        node("agg", inputs="img aud pre"),
        node("out"),
        node("llm", "first: x; more: result", outputs="token call", loop_bound=EVENTS),
        node("tool"),
        node("total", "part", counts="part=100"),
    )
    edges = (
        "frame>pre.x pre.y>img.x pre.y>aud.x pre.y>agg.pre img.y>agg.img aud.y>agg.aud agg.y>out.x out.y>text "
        "agg.y>llm.x llm.call>tool.x tool.y>llm.result llm.token>tokens agg.y>total.part total.y>sum"
    )
    return graph(nodes, edges, inputs="", streaming="frame", outputs="text tokens", unordered="sum")


def record(plan: GraphPlan, length: int) -> Sequence[Event]:
    """A trace of at least so many events, from admission to the end of the call."""
    chance = random.Random(5)
    scheduler = CallScheduler(plan)
    trace: list[Event] = [CallAdmitted({}, frozenset({"frame"}))]
    waiting: list[list[Event]] = []
    rounds: dict[tuple[int, ...], int] = {}
    has_finished = False

    def give(event: Event) -> None:
        nonlocal has_finished
        trace.append(event)
        take(scheduler.handle(event))

    def take(commands: Sequence[Command]) -> None:
        nonlocal has_finished
        for command in commands:
            if isinstance(command, StartActivation):
                waiting.append(_answers(command, rounds))
            assert not isinstance(command, FailCall), command
            has_finished = has_finished or isinstance(command, FinishCall)

    take(scheduler.handle(trace[0]))
    frames = 0
    while not has_finished:
        if len(trace) < length and len(waiting) < SIDE_BY_SIDE:
            give(InputArrived("frame", frames, size_bytes=100))
            frames += 1
        elif not waiting:
            give(InputArrived("frame", is_last=True))
        else:
            events = chance.choice(waiting)
            give(events.pop(0))
            if not events:
                waiting.remove(events)
    return trace


def _answers(command: StartActivation, rounds: dict[tuple[int, ...], int]) -> list[Event]:
    """What the fake replica says, in order."""
    fields: dict[str, object] = {"y": command.activation_id}
    if command.node.name == "llm":
        frame = command.origin_path[:1]
        rounds[frame] = rounds.get(frame, 0) + 1
        fields = {"token": command.activation_id}
        if rounds[frame] < LOOP_ROUNDS:
            fields["call"] = command.activation_id
    return [
        ActivationAccepted(command.activation_id),
        ActivationYielded(command.activation_id, 0, fields, 100),
        ActivationFinished(command.activation_id, 1),
    ]


def replay(plan: GraphPlan, trace: Sequence[Event]) -> list[float]:
    """CPU time of each event, in microseconds."""
    scheduler = CallScheduler(plan)
    handle, clock = scheduler.handle, time.thread_time_ns
    times: list[float] = []
    gc.collect()
    gc.disable()  # a collection belongs to no event; what the core keeps is checked by the memory tests
    try:
        for event in trace:
            begin = clock()
            handle(event)
            times.append((clock() - begin) / _NS_PER_US)
    finally:
        gc.enable()
    assert scheduler.active_count == scheduler.open_buckets == scheduler.lease_count == 0
    return times


def diamonds(nodes: int) -> GraphSpec:
    """Diamonds one after another."""
    made = [node("n")]
    edges, previous = "x>n.x", "n.y"
    for i in range((nodes - 1) // 3):
        made += [node(f"b{i}"), node(f"c{i}"), node(f"j{i}", inputs="p q")]
        edges += f" {previous}>b{i}.x {previous}>c{i}.x b{i}.y>j{i}.p c{i}.y>j{i}.q"
        previous = f"j{i}.y"
    return graph(tuple(made), f"{edges} {previous}>out")


def nest(nodes: int) -> GraphSpec:
    """Diamonds inside one another."""
    depth = nodes // 3
    made = []
    edges = "x>a0.x j0.y>out"
    for i in range(depth):
        made += [node(f"a{i}"), node(f"k{i}"), node(f"j{i}", inputs="p q")]
        edges += f" a{i}.y>k{i}.x k{i}.y>j{i}.q"
        edges += f" a{i}.y>a{i + 1}.x j{i + 1}.y>j{i}.p" if i < depth - 1 else f" a{i}.y>j{i}.p"
    return graph(tuple(made), edges)


def _plan_ms(spec: GraphSpec) -> float:
    begin = time.thread_time_ns()
    plan_graph(spec)
    return (time.thread_time_ns() - begin) / 1e6
