"""Drives a scheduler through one random interleaving, with repeats, and holds it to what must be true after every step."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from omniflow_core.control.commands import (
    AckYields,
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
from tests.properties.flow_evaluator import Script
from tests.properties.flow_graphs import Shape
from tests.properties.flow_routes import Kind
from tests.properties.flow_values import Activation, Inputs, Value, Yielded, facet

CANCELLED = ErrorInfo(reason=Reason.CALL_CANCELLED, message="stop")
BROKEN = ErrorInfo(reason=Reason.INTERFACE_FAILED, message="it broke")

MOST_STEPS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What befalls a call besides its own course."""

    repeats: float = 0.1
    """Chance that a step hands an old event in again."""
    stop_after: int | None = None
    """Steps until the call is cancelled."""
    injure_after: int | None = None
    """Steps until some activation fails that would not have."""
    input_window: int = 4
    """Values of streaming placeholders that may wait for delivery."""
    default_window: int = 4
    """Yield window of nodes that name none."""
    is_checked: bool = True
    """Whether the scheduler recomputes its invariants after every step."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start that was commanded."""

    activation: Activation
    origin_path: tuple[int, ...]
    paths: Mapping[str, Mapping[str, tuple[tuple[int, ...], ...]] | None]
    """Origin paths of the values, by group and field; None for those of the activation."""


@dataclass(slots=True)
class Times:
    """In which step what happened. A step is one event handed in."""

    now: int = 0
    yielded: dict[Yielded, int] = field(default_factory=dict)
    ended: dict[Activation, int] = field(default_factory=dict)
    """Ports of the call end together, with the last of them."""
    started: dict[Activation, int] = field(default_factory=dict)
    emitted: dict[tuple[str, Value], int] = field(default_factory=dict)
    """By output and value."""
    terminal: int = -1


@dataclass(slots=True)
class _Running:
    """The fake interface's side of one activation."""

    activation_id: int
    activation: Activation
    window: int
    script: Script
    is_accepted: bool = False
    sent: int = 0
    acked: int = 0

    @property
    def is_stuck(self) -> bool:
        """It has to wait for an acknowledgement."""
        return self.is_accepted and self.sent < len(self.script.yields) and self.sent - self.acked >= self.window


@dataclass(slots=True)
class FlowDriver:
    """One call. `run` ends it; then the public fields say what came out."""

    shape: Shape
    chance: random.Random
    plan: Plan = field(default_factory=Plan)
    scheduler: CallScheduler = field(init=False)
    started: list[Start] = field(default_factory=list)
    emitted: dict[str, list[Value]] = field(default_factory=lambda: defaultdict(list))
    handled: dict[Yielded, int] = field(default_factory=dict)
    """When each yield was handled for the first time."""
    cuts: dict[Activation, Script] = field(default_factory=dict)
    """What activations did that were made to fail."""
    last_failed: str = ""
    """The node of the last activation that failed by itself or by injury."""
    times: Times = field(default_factory=Times)
    terminal: FinishCall | FailCall | None = None
    is_released: bool = False
    most_held: int = 0
    history: list[Event | Command] = field(default_factory=list)
    """Every event, each followed by what was commanded."""
    _running: dict[int, _Running] = field(default_factory=dict)
    _past: list[Event] = field(default_factory=list)
    _unsent: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = CallScheduler(
            self.shape.plan, yield_window=self.plan.default_window, count_of=lambda value: cast("Value", value).count
        )

    def run(self) -> None:
        """Goes on until the call is released."""
        steps = 0
        if self.plan.stop_after == 0:
            self._give(CancelRequested(CANCELLED))
        self._admit()
        injure_after = self.plan.injure_after
        while not self.is_released:
            steps += 1
            if self.plan.stop_after == steps:
                self._give(CancelRequested(CANCELLED))
            elif (
                injure_after is not None
                and steps >= injure_after
                and self._running
                and not self.cuts
                and self.terminal is None
            ):
                self._injure(self.chance.choice(list(self._running.values())))
            else:
                self._step()
            assert steps < MOST_STEPS, "the call does not end"
        for event in (*self._past, CancelRequested(CANCELLED)):
            assert self.scheduler.handle(event) == [], "something follows the release"
        self._check_nothing_is_left()

    # --- events -----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        streaming = [p.field.name for p in self.shape.spec.placeholders if p.is_streaming]
        single: Mapping[str, Value] = {}
        last = {name: -1 for name in streaming}
        for port, ordinal, fields in self.shape.source:
            ((name, value), *more) = fields.items()
            if name in last:
                last[name] = len(self._unsent)
                self._unsent.append(InputArrived(name, value, size_bytes=1))
            else:
                single = dict([(name, value), *more])
                self.handled[port, ordinal] = 0
        self._close_inputs(last)
        self._give(CallAdmitted(single, frozenset(streaming)))

    def _close_inputs(self, last: Mapping[str, int]) -> None:
        """The end of each placeholder: with its last value, or after it at any time."""
        for name, index in sorted(last.items(), key=lambda item: -item[1]):
            if index >= 0 and self.chance.random() < 0.5:
                event = cast("InputArrived", self._unsent[index])
                self._unsent[index] = InputArrived(name, event.value, is_last=True, size_bytes=1)
            else:
                self._unsent.insert(self.chance.randint(index + 1, len(self._unsent)), InputArrived(name, is_last=True))

    def _step(self) -> None:
        """One event of somebody who can go on, or the repeat of an old one."""
        if self._past and self.chance.random() < self.plan.repeats:
            self._give(self.chance.choice(self._past))
            return
        if self.terminal is not None and self._running and self.chance.random() < 0.5:
            self._stop(self.chance.choice(list(self._running.values())))  # it has been told to
            return
        ready = [r for r in self._running.values() if not r.is_stuck or self.terminal is not None]
        choices = len(ready) + self._can_send_input()
        assert choices, "nothing can go on, and the call has not ended"
        index = self.chance.randrange(choices)
        if index == len(ready):
            self._send_input()
        else:
            self._go_on(ready[index])

    def _can_send_input(self) -> bool:
        if not self._unsent:
            return False
        has_value = cast("InputArrived", self._unsent[0]).value is not None
        return not has_value or self.scheduler.undelivered_inputs < self.plan.input_window

    def _send_input(self) -> None:
        event = cast("InputArrived", self._unsent.pop(0))
        if event.value is not None and self.terminal is None:
            value = cast("Value", event.value)
            self.handled[value.producer, value.ordinal] = len(self.handled)
        self._give(event)

    def _go_on(self, running: _Running) -> None:
        if not running.is_accepted and self.chance.random() < 0.7:
            running.is_accepted = True
            self._send(ActivationAccepted(running.activation_id))
        elif running.sent < len(running.script.yields):
            running.is_accepted = True  # the first yield says so too
            ordinal = running.sent
            running.sent += 1
            if self.terminal is None:
                self.handled[running.activation, ordinal] = len(self.handled)
            self._send(ActivationYielded(running.activation_id, ordinal, running.script.yields[ordinal], 1))
        else:
            del self._running[running.activation_id]
            if running.script.fails:
                self._note_failure(running)
                self._send(ActivationFailed(running.activation_id, BROKEN))
            else:
                self._send(ActivationFinished(running.activation_id, running.sent))

    def _send(self, event: Event) -> None:
        self._past.append(event)
        self._give(event)

    def _stop(self, running: _Running) -> None:
        del self._running[running.activation_id]
        self._send(ActivationFailed(running.activation_id, CANCELLED))

    def _injure(self, running: _Running) -> None:
        del self._running[running.activation_id]
        self.cuts[running.activation] = Script(running.script.yields[: running.sent], fails=True)
        self._note_failure(running)
        self._send(ActivationFailed(running.activation_id, BROKEN))

    def _note_failure(self, running: _Running) -> None:
        if self.terminal is None:
            self.last_failed = running.activation.node

    # --- commands ---------------------------------------------------------------------------------------------------

    def _give(self, event: Event) -> None:
        self.history.append(event)
        commands = self.scheduler.handle(event)
        self.history.extend(commands)
        for command in commands:
            self._take(command)
        if self.plan.is_checked:
            self.scheduler.check_integrity()
        self.most_held = max(self.most_held, self.scheduler.held_count)

    def _take(self, command: Command) -> None:
        assert not self.is_released, "the release is the last command"
        if isinstance(command, ReleaseCall):
            assert self.terminal is not None, "released before its terminal event"
            assert not self._running, "released while something runs"
            self.is_released = True
            return
        assert self.terminal is None, f"{command} follows the terminal event"
        match command:
            case StartActivation():
                self._start(command)
            case AckYields():
                self._ack(command)
            case Emit():
                self._emit(command)
            case FinishCall() | FailCall():
                self.terminal = command
            case CancelActivations():
                assert self._running, "nothing is there to cancel"

    def _start(self, command: StartActivation) -> None:
        spec = command.node.spec
        assert spec is not None
        inputs = cast(
            "Inputs",
            tuple(facet(f.group, cast("Mapping[str, tuple[Value, ...]]", f.fields), f.context) for f in command.facets),
        )
        activation = self.shape.identities.activation(spec.name, inputs, command.origin_path)
        self.started.append(Start(activation, command.origin_path, {f.group: f.paths for f in command.facets}))
        assert command.activation_id not in self._running
        if spec.is_session_ordered and not spec.activate_by_count:
            beside = [r for r in self._running.values() if r.activation.node == spec.name]
            assert not beside, f"two activations of {spec.name} run at a time"
        window = spec.yield_window or self.plan.default_window
        self._running[command.activation_id] = _Running(
            command.activation_id, activation, window, self.shape.script(activation)
        )

    def _ack(self, command: AckYields) -> None:
        running = self._running.get(command.activation_id)
        if running is None:  # its last event may have crossed the acknowledgement
            return
        assert running.acked < command.next_ordinal <= running.sent, "an ack goes forward, over what was sent"
        running.acked = command.next_ordinal
        for other in self._running.values():
            if not other.is_accepted and not self._may_wait(other.activation):
                cause = max(
                    (v.ordinal for v in _values(other.activation) if v.producer is running.activation), default=-1
                )
                assert not 0 <= cause < running.acked, f"yield {cause} was acked before {other.activation} was accepted"

    def _may_wait(self, activation: Activation) -> bool:
        """Whether its inputs counted as delivered before it started: those of buckets and of starts that were held."""
        spec = self.shape.routes.nodes[activation.node]
        if spec.is_session_ordered or not _values(activation):
            return True
        kinds = self.shape.routes.kinds
        return any(kinds[activation.node, group] in (Kind.PREFIX, Kind.COUNT) for group in activation.groups)

    def _emit(self, command: Emit) -> None:
        value = cast("Value", command.value)
        assert command.node == ("" if value.producer.node.startswith("@") else value.producer.node)
        self.emitted[command.output].append(value)

    def _check_nothing_is_left(self) -> None:
        scheduler = self.scheduler
        assert scheduler.phase is CallPhase.ENDED
        left = {
            "activations": scheduler.active_count,
            "buckets": scheduler.open_buckets,
            "leases": scheduler.lease_count,
            "held starts": scheduler.held_count,
            "open inputs": len(scheduler.open_inputs),
        }
        assert not any(left.values()), f"left after the release: {left}"


def _values(activation: Activation) -> list[Value]:
    return [v for _, fields, _ in activation.inputs for _, values in fields for v in values]
