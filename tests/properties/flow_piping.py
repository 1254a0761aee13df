"""Replicas that run a pipeline by themselves: what a node yields starts the next one, and the last one's yields go out.

                          line of a        line of b           line of c
    core ──start(a)──▶  [ a ] ──────▶  [ b0 | b1 | b2 ] ──▶  [ c0 | c1 ] ──exits, in order──▶ core
         ◀─acks of exits──────────────────────────────────────────┘

Fake interfaces yield and end in any order. Of each node only the head of the line, the activation that was started first of
those that have not given all, hands on what it has yielded. An activation has completed when it has handed all on and all
that it started has completed; the first one's end is then the core's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from omniflow_core.control.events import ActivationAccepted, ActivationFailed, ActivationFinished, ExitYielded
from omniflow_core.control.failures import partial_yield
from omniflow_core.errors import ErrorInfo
from omniflow_core.graph.routing import Delivery, NodePlan, PipelinePlan
from omniflow_core.graph.spec import OnImpossible
from tests.properties.flow_evaluator import Script
from tests.properties.flow_record import YIELD_BYTES
from tests.properties.flow_running import Running
from tests.properties.flow_values import Value, facet

if TYPE_CHECKING:
    from tests.properties.flow_driver import FlowDriver


@dataclass(slots=True, eq=False)
class Piped:
    """An activation of the pipeline. Its window is that of its node, whatever the exits have."""

    stage: int
    running: Running
    path: tuple[int, ...]
    above: Piped | None = None
    """What has started it, by its yield `ordinal`; nothing here for the first."""
    ordinal: int = 0
    waiting: deque[int] = field(default_factory=deque)
    """Yields that are not handed on."""
    delivered: set[int] = field(default_factory=set)
    """Yields that are delivered behind one that is not."""
    open_children: int = 0
    gave_all: bool = False

    def deliver(self, ordinal: int) -> None:
        """Who takes the yield has it."""
        self.delivered.add(ordinal)
        while self.running.acked in self.delivered:
            self.delivered.remove(self.running.acked)
            self.running.acked += 1


class PipeRun:
    """One run of a pipeline, from the start of its first node's activation."""

    def __init__(self, driver: FlowDriver, entry: Running, pipeline: PipelinePlan, path: tuple[int, ...]) -> None:
        self._driver = driver
        self._entry = entry
        """As the core has it: its yields are the exits."""
        self._plan = pipeline
        self._nodes: list[NodePlan] = [driver.shape.plan.nodes[node.name] for node in pipeline.nodes]
        self._lines: list[deque[Piped]] = [deque() for _ in pipeline.nodes]
        self._alive: list[list[Piped]] = [[] for _ in pipeline.nodes]
        self._unacked: deque[tuple[Piped, int]] = deque()
        """Exits in order: whose yield each is."""
        self._started = 0
        self._yields = 0
        """Of all activations that have ended well."""
        spec = entry.spec
        first = Running(0, entry.activation, spec, self._window_of(self._nodes[0]), entry.script)
        self._add(Piped(0, first, path))

    def _window_of(self, node: NodePlan) -> int:
        plan = self._driver.plan
        assert node.spec is not None
        return min(node.spec.yield_window or plan.default_window, plan.byte_credit)

    def _add(self, piped: Piped) -> None:
        self._lines[piped.stage].append(piped)
        self._alive[piped.stage].append(piped)

    # --- what can happen ------------------------------------------------------------------------------------------------

    def turns(self, error: ErrorInfo) -> Iterator[Callable[[], None]]:
        """Steps of somebody who can go on; `error` is what an activation fails with if it does."""
        first = self._alive[0][0]
        if not first.running.is_accepted:
            if self._driver.has_place_for(self._entry):
                yield partial(self._take_in, first)
            return
        for piped in (piped for stage in self._alive for piped in stage):
            if not piped.running.is_accepted:
                yield partial(self._accept, piped)
            elif not piped.gave_all and not piped.running.is_stuck:
                yield partial(self._go_on, piped, error)
        for line in self._lines:
            if line and line[0].waiting and self._has_room(line[0]):
                yield partial(self._hand_on, line[0])

    def _has_room(self, piped: Piped) -> bool:
        """What it hands on next is taken."""
        if piped.stage == len(self._nodes) - 1:
            return len(self._unacked) < self._entry.window
        return len(self._alive[piped.stage + 1]) < self._driver.plan.workers

    def _take_in(self, first: Piped) -> None:
        """The first node's replica takes its activation in, and may not say so before its first exit, or its end."""
        first.running.is_accepted = True
        if self._driver.chance.random() < 0.7:
            self._entry.is_accepted = True
            self._driver.send(ActivationAccepted(self._entry.activation_id))

    def _accept(self, piped: Piped) -> None:
        piped.running.is_accepted = True
        assert piped.above is not None, "the first one is taken in"
        piped.above.deliver(piped.ordinal)

    def _go_on(self, piped: Piped, error: ErrorInfo) -> None:
        running = piped.running
        if running.sent < len(running.script.yields):
            piped.waiting.append(running.sent)
            running.sent += 1
        elif running.script.fails:
            self._fail(piped, error)
        else:
            piped.gave_all = True
            self._yields += running.sent
            self._driver.record.note_end(running.activation)
            self._settle(piped)

    # --- what is handed on ----------------------------------------------------------------------------------------------

    def _hand_on(self, piped: Piped) -> None:
        ordinal = piped.waiting.popleft()
        fields = piped.running.script.yields[ordinal]
        if piped.stage == len(self._nodes) - 1:
            self._give_out(piped, ordinal, fields)
        else:
            self._start_next(piped, ordinal, fields, self._nodes[piped.stage].deliveries[0])
        if self._entry.activation_id in self._driver.running:
            self._settle(piped)

    def _give_out(self, piped: Piped, ordinal: int, fields: Mapping[str, Value]) -> None:
        outside = {name: value for name, value in fields.items() if name in self._plan.outputs}
        if not outside:
            self._driver.record.note_passed(piped.running.activation, ordinal)
            piped.deliver(ordinal)
            return
        self._unacked.append((piped, ordinal))
        entry = self._entry
        entry.is_accepted = True  # the first exit says so too
        entry.sent += 1
        self._driver.note_yield(piped.running.activation, ordinal)
        path = (*piped.path, ordinal)
        self._driver.send(ExitYielded(entry.activation_id, entry.sent - 1, outside, path, YIELD_BYTES, entry.attempt))

    def acknowledge(self, count: int) -> None:
        """The core has so many exits more."""
        for _ in range(count):
            piped, ordinal = self._unacked.popleft()
            piped.deliver(ordinal)

    def _start_next(self, piped: Piped, ordinal: int, fields: Mapping[str, Value], delivery: Delivery) -> None:
        present: dict[str, tuple[Value, ...]] = {}
        for route in delivery.routes:
            if route.source in fields:
                present[route.target] = (*present.get(route.target, ()), fields[route.source])
        missing = delivery.required - present.keys()
        spec = delivery.node.spec
        assert spec is not None
        path = (*piped.path, ordinal)
        if present and missing and spec.on_impossible is OnImpossible.FAIL:
            self._driver.note_yield(piped.running.activation, ordinal)
            self._fail(piped, partial_yield(delivery, missing, path))
            return
        self._driver.record.note_passed(piped.running.activation, ordinal)
        if not present or missing:
            self._driver.record.skipped_in_pipe += 1
            piped.deliver(ordinal)
            return
        shape = self._driver.shape
        activation = shape.identities.activation(spec.name, (facet(delivery.group, present),), path)
        running = Running(0, activation, spec, self._window_of(delivery.node), shape.script(activation))
        self._add(Piped(piped.stage + 1, running, path, piped, ordinal))
        piped.open_children += 1
        self._started += 1
        self._driver.record.start_in_pipe(activation, path, piped.stage + 1)

    # --- ends -----------------------------------------------------------------------------------------------------------

    def _settle(self, piped: Piped) -> None:
        """Lets the next one be head when it has given all, and completes it when nothing below it is left."""
        line = self._lines[piped.stage]
        while line and line[0].gave_all and not line[0].waiting:
            line.popleft()
        while piped.gave_all and not piped.waiting and not piped.open_children:
            self._alive[piped.stage].remove(piped)
            if piped.above is None:
                self._finish()
                return
            piped = piped.above
            piped.open_children -= 1

    def _finish(self) -> None:
        entry = self._entry
        assert not any((*self._alive, *self._lines)), "the pipeline has ended, and something of it runs"
        self._driver.end(entry)
        self._driver.send(
            ActivationFinished(
                entry.activation_id,
                entry.sent,
                output_tokens=self._yields,
                attempt=entry.attempt,
                started_activations=self._started,
            )
        )

    def injure(self, error: ErrorInfo) -> None:
        """One of its activations fails that would not have."""
        piped = self._driver.chance.choice([piped for stage in self._alive for piped in stage])
        running = piped.running
        self._driver.record.cuts[running.activation] = Script(running.script.yields[: running.sent], fails=True)
        self._fail(piped, error)

    def _fail(self, piped: Piped, error: ErrorInfo) -> None:
        driver = self._driver
        driver.end(self._entry)
        if driver.record.terminal is None:
            driver.record.last_failed = piped.running.spec.name
            driver.record.broken_pipes += 1
        driver.send(ActivationFailed(self._entry.activation_id, error, self._entry.attempt))
