"""A replica that runs a segment by itself: fake interfaces at a `SegmentRun`, and a log of what nobody has heard yet."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from omniflow_core.control.segments import ENTRY, AckInner, EndSegment, RunInner, SegmentCommand, SegmentRun
from omniflow_core.errors import ErrorInfo
from omniflow_core.graph.inside import segment_graph
from omniflow_core.graph.routing import SegmentPlan
from tests.properties.flow_evaluator import Script
from tests.properties.flow_graphs import Shape
from tests.properties.flow_record import YIELD_BYTES, Plan
from tests.properties.flow_routes import Kind
from tests.properties.flow_running import Running
from tests.properties.flow_values import Activation, Value, facet, values_of


@dataclass(frozen=True, slots=True)
class InnerStarted:
    """The replica has started an activation: by node, input group and the last token of its path."""

    inner_id: int
    node: str
    group: str
    parent_id: int
    parent_ordinal: int
    activation: Activation


@dataclass(frozen=True, slots=True)
class InnerYielded:
    """One output, with its values."""

    inner_id: int
    ordinal: int
    fields: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class InnerEnded:
    """The activation has finished, perhaps with its last output, or failed with an error."""

    inner_id: int
    yield_count: int
    error: ErrorInfo | None = None
    last: Mapping[str, Value] | None = None


Report = InnerStarted | InnerYielded | InnerEnded


def new_run(segment: SegmentPlan, plan: Plan) -> SegmentRun:
    return SegmentRun(
        segment_graph(segment.nodes, segment.edges, segment.entry),
        segment.entry,
        {name: frozenset(fields) for name, fields in segment.exits.items()},
        yield_window=plan.default_window,
        byte_credit=plan.byte_credit * YIELD_BYTES,
    )


def feed(run: SegmentRun, report: InnerYielded | InnerEnded) -> list[SegmentCommand]:
    """Tells a run what happened inside."""
    if isinstance(report, InnerYielded):
        return run.yielded(report.inner_id, report.ordinal, report.fields, YIELD_BYTES, 0)
    if report.error is not None:
        return run.failed(report.inner_id, report.error)
    return run.finished(report.inner_id, report.yield_count, report.last, YIELD_BYTES)


class HostingReplica:
    """One run of a segment, from the acceptance of its entry."""

    def __init__(self, shape: Shape, plan: Plan, segment: SegmentPlan, entry: Running) -> None:
        self._shape = shape
        self._plan = plan
        self._segment = segment
        self._run = new_run(segment, plan)
        self._outside: dict[int, int] = {}
        """Yields that the control plane has acknowledged."""
        self.running = {
            ENTRY: Running(ENTRY, entry.activation, entry.spec, entry.window, entry.script, is_accepted=True)
        }
        self.log: deque[Report] = deque()
        self.acks: deque[tuple[int, int]] = deque()
        """Acknowledgements of the control plane that are on their way: activation, next ordinal."""
        self._old_acks: list[tuple[int, int]] = []
        self.has_ended = False

    # --- what happens on it -------------------------------------------------------------------------------------------

    def ready(self) -> list[Running]:
        """Activations that can go on."""
        return [running for running in self.running.values() if self._can_go_on(running)]

    def _can_go_on(self, running: Running) -> bool:
        if running.is_accepted or self._shape.is_cyclic(running.spec.name):
            return not running.is_stuck
        beside = sum(r.is_accepted and r.spec.name == running.spec.name for r in self.running.values())
        return beside < self._plan.workers

    def go_on(self, running: Running, chance: random.Random, error: ErrorInfo) -> None:
        """One step of an activation; `error` is what it fails with if it does."""
        if not running.is_accepted and chance.random() < 0.85:
            running.is_accepted = True
            self._perform(self._run.accepted(running.activation_id))
        elif running.sent < len(running.script.yields):
            running.is_accepted = True  # the first yield says so too
            fields = running.script.yields[running.sent]
            running.sent += 1
            if running.gave_all and chance.random() < 0.3:
                self._end(running, last=fields)
            else:
                self._tell(InnerYielded(running.activation_id, running.sent - 1, fields))
        else:
            self._end(running, error if running.script.fails else None)

    def injure(self, running: Running, error: ErrorInfo) -> Script:
        """Ends an activation early. Says what it did."""
        done = Script(running.script.yields[: running.sent], fails=True)
        self._end(running, error)
        return done

    def acknowledge(self, chance: random.Random) -> None:
        """An acknowledgement of the control plane arrives, or an old one once more."""
        if self._old_acks and chance.random() < self._plan.repeats:
            self._perform(self._run.acknowledged(*chance.choice(self._old_acks)))
        inner_id, next_ordinal = ack = self.acks.popleft()
        self._old_acks.append(ack)
        self._outside[inner_id] = next_ordinal
        self._perform(self._run.acknowledged(inner_id, next_ordinal))

    def _end(self, running: Running, error: ErrorInfo | None = None, last: Mapping[str, Value] | None = None) -> None:
        del self.running[running.activation_id]
        self._tell(InnerEnded(running.activation_id, running.sent, error, last))

    def _tell(self, report: InnerYielded | InnerEnded) -> None:
        self.log.append(report)
        self._perform(feed(self._run, report))

    # --- what its run says --------------------------------------------------------------------------------------------

    def _perform(self, commands: Sequence[SegmentCommand]) -> None:
        for command in commands:
            assert not self.has_ended, f"{command} follows the end of the segment"
            match command:
                case RunInner():
                    self._start(command)
                case AckInner():
                    self._ack(command)
                case EndSegment():
                    self._finish(command)
        self._run._scheduler.check_integrity()

    def _start(self, command: RunInner) -> None:
        assert command.inner_id not in self.running, "each activation has an id of its own"
        activation = activation_of(self._shape, command)
        spec = self._shape.routes.nodes[command.node]
        assert command.yield_window == (spec.yield_window or self._plan.default_window)
        window = min(command.yield_window, self._plan.byte_credit)
        script = self._shape.script(activation)
        self.running[command.inner_id] = Running(command.inner_id, activation, spec, window, script)
        self.log.append(
            InnerStarted(
                command.inner_id,
                command.node,
                command.group,
                command.parent_id,
                command.parent_ordinal,
                activation,
            )
        )

    def _ack(self, command: AckInner) -> None:
        running = self.running.get(command.inner_id)
        if running is None:  # its last yield came with its end
            return
        assert running.acked < command.next_ordinal <= running.sent, "an ack goes forward, over what was sent"
        running.acked = command.next_ordinal
        if running.spec.name in self._segment.exits:
            outside = self._outside.get(command.inner_id, 0)
            assert running.acked <= outside, f"{running.activation} was acked before the control plane had its yields"
        for other in self.running.values():
            if not other.is_accepted and self._is_single(other.activation):
                causes = [v.ordinal for v in values_of(other.activation) if v.producer is running.activation]
                is_early = bool(causes) and max(causes) < running.acked
                assert not is_early, f"a yield was acked before {other.activation}, which it started, was accepted"

    def _is_single(self, activation: Activation) -> bool:
        return all(self._shape.routes.kinds[activation.node, g] is Kind.SINGLE for g in activation.groups)

    def _finish(self, command: EndSegment) -> None:
        self.has_ended = True
        if command.error is None:
            assert not self.running, f"the segment has ended, and {list(self.running)} run"
        self.running.clear()  # what still runs is stopped
        scheduler = self._run._scheduler
        left = (scheduler.open_buckets, scheduler.lease_count, scheduler.inspect().stored_bytes)
        assert not any(left), f"the segment has ended, and keeps (buckets, leases, bytes): {left}"


def activation_of(shape: Shape, command: RunInner) -> Activation:
    """The activation that a run starts, by the values that it is given."""
    fields = cast("Mapping[str, tuple[Value, ...]]", command.fields)
    assert all(isinstance(v, Value) for values in fields.values() for v in values), "inside values are native"
    return shape.identities.activation(command.node, (facet(command.group, fields),))
