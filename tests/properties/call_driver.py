"""Drives a scheduler through one random interleaving, with repeats, and holds it to what must be true after every step."""

from __future__ import annotations

import random
from collections import defaultdict
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
from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.spec import SOURCE, OnFailure
from tests.properties.call_graphs import Shape
from tests.properties.call_tree import Key, Value

CANCELLED = ErrorInfo(reason=Reason.CALL_CANCELLED, message="stop")
BROKEN = ErrorInfo(reason=Reason.INTERFACE_FAILED, message="it broke")


@dataclass(slots=True)
class _Running:
    """The fake interface's side of one activation."""

    activation_id: int
    cause: Key
    node: str
    group: str
    window: int
    script: tuple[frozenset[str], ...]
    fails: bool
    is_accepted: bool = False
    sent: int = 0
    acked: int = 0

    @property
    def is_stuck(self) -> bool:
        """It has to wait for an acknowledgement."""
        return self.is_accepted and self.sent < len(self.script) and self.sent - self.acked >= self.window


@dataclass(slots=True)
class CallDriver:
    """One call. `run` ends it; then `emitted` and `started` hold what came out."""

    shape: Shape
    chance: random.Random
    repeats: bool = True
    scheduler: CallScheduler = field(init=False)
    emitted: dict[str, list[Value]] = field(default_factory=lambda: defaultdict(list))
    started: list[tuple[Key, str, str, dict[str, Value]]] = field(default_factory=list)
    terminal: FinishCall | FailCall | None = None
    is_released: bool = False
    failed_node: str = ""
    """The node whose failure was injected."""
    _running: dict[int, _Running] = field(default_factory=dict)
    _past: list[Event] = field(default_factory=list)
    _unsent_inputs: list[Event] = field(default_factory=list)
    _most_open: int = 0

    def __post_init__(self) -> None:
        self.scheduler = CallScheduler(plan_graph(self.shape.spec), yield_window=4)

    def run(self, *, stop_after: int | None = None, injure_after: int | None = None) -> None:
        """Goes on until the call is released; may cancel it, or fail one of its activations, after some steps."""
        steps = 0
        if stop_after == 0:
            self._give(CancelRequested(CANCELLED))
        self._admit()
        while not self.is_released:
            steps += 1
            if stop_after == steps:
                self._give(CancelRequested(CANCELLED))
            elif injure_after is not None and steps >= injure_after and self._running and not self.failed_node:
                self._injure()
            else:
                self._step()
            assert steps < 20_000, "the call does not end"
        for event in (*self._past, CancelRequested(CANCELLED)):
            assert self.scheduler.handle(event) == [], "something follows the release"
        self._check_nothing_is_left()

    # --- events ----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        names = [p.field.name for p in self.shape.spec.placeholders]
        yields = self.shape.source_yields
        if not self.shape.is_streaming:
            self._give(CallAdmitted({name: _value(source_key(0), name) for name in yields[0]}))
            return
        self._unsent_inputs = [
            InputArrived(name, _value(source_key(i), name)) for i, given in enumerate(yields) for name in given
        ]
        self._unsent_inputs += [InputArrived(name, is_last=True) for name in names]
        self._give(CallAdmitted({}, frozenset(names)))

    def _step(self) -> None:
        """One event of somebody who can go on, or the repeat of an old one."""
        if self.repeats and self._past and self.chance.random() < 0.15:
            self._give(self.chance.choice(self._past))
            return
        if self.terminal is not None and self.chance.random() < 0.5 and self._running:
            self._stop(self.chance.choice(list(self._running.values())))  # it has been told to
            return
        ready = [r for r in self._running.values() if not r.is_stuck or self.terminal is not None]
        choices = len(ready) + bool(self._unsent_inputs)
        assert choices, "everything waits for an acknowledgement that will not come"
        index = self.chance.randrange(choices)
        if index == len(ready):
            self._give(self._unsent_inputs.pop(0))
        else:
            self._go_on(ready[index])

    def _go_on(self, running: _Running) -> None:
        if not running.is_accepted and self.chance.random() < 0.7:
            running.is_accepted = True
            self._send(ActivationAccepted(running.activation_id))
        elif running.sent < len(running.script):
            running.is_accepted = True  # the first yield says so too
            ordinal, names = running.sent, running.script[running.sent]
            running.sent += 1
            key = (*running.cause, (running.node, running.group, ordinal))
            fields = {name: _value(key, name) for name in names}
            self._send(ActivationYielded(running.activation_id, ordinal, fields, 10))
        else:
            del self._running[running.activation_id]
            if running.fails:
                self._send(ActivationFailed(running.activation_id, BROKEN))
            else:
                self._send(ActivationFinished(running.activation_id, running.sent, output_tokens=1))

    def _send(self, event: Event) -> None:
        self._past.append(event)
        self._give(event)

    def _stop(self, running: _Running) -> None:
        del self._running[running.activation_id]
        self._send(ActivationFailed(running.activation_id, CANCELLED))

    def _injure(self) -> None:
        running = self.chance.choice(list(self._running.values()))
        del self._running[running.activation_id]
        spec = next(n for n in self.shape.spec.nodes if n.name == running.node)
        if spec.on_failure is OnFailure.FAIL_CALL:
            self.failed_node = running.node
        self._send(ActivationFailed(running.activation_id, BROKEN))

    # --- commands --------------------------------------------------------------------------------------------------

    def _give(self, event: Event) -> None:
        commands = self.scheduler.handle(event)
        self.scheduler.check_integrity()
        for command in commands:
            self._take(command)
        self._most_open = max(self._most_open, len(self._running))

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
        fields = command.fields
        assert all(len(values) == 1 for values in fields.values())
        inputs = {name: cast("Value", values[0]) for name, values in fields.items()}
        (cause,) = {value[0] for value in inputs.values()}
        assert command.origin_path == tuple(step[2] for step in cause)
        spec = command.node.spec
        assert spec is not None
        self.started.append((cause, spec.name, command.group, inputs))
        assert command.activation_id not in self._running
        self._running[command.activation_id] = _Running(
            command.activation_id,
            cause,
            spec.name,
            command.group,
            spec.yield_window or 4,
            self.shape.script(cause, spec.name, command.group),
            spec.on_failure is OnFailure.SKIP and self.shape.fails(cause, spec.name, command.group),
        )

    def _ack(self, command: AckYields) -> None:
        running = self._running.get(command.activation_id)
        if running is not None:  # its last event may have crossed the acknowledgement
            assert running.acked < command.next_ordinal <= running.sent, "an ack goes forward, over what was sent"
            running.acked = command.next_ordinal
            for child in self._running.values():
                *above, (node, group, ordinal) = child.cause
                is_child = (tuple(above), node, group) == (running.cause, running.node, running.group)
                assert child.is_accepted or not is_child or ordinal >= command.next_ordinal, "acked before delivered"

    def _emit(self, command: Emit) -> None:
        key, name = cast("Value", command.value)
        assert command.origin_path == tuple(step[2] for step in key)
        assert command.node == key[-1][0]
        assert name in self._fields_of(command.node, command.output)
        self.emitted[command.output].append((key, name))

    def _fields_of(self, node: str, output: str) -> set[str]:
        edges = self.shape.spec.edges
        return {e.source_field for e in edges if (e.source_node, e.target_node, e.target_field) == (node, "", output)}

    def _check_nothing_is_left(self) -> None:
        assert self.scheduler.phase is CallPhase.ENDED
        assert self.scheduler.active_count == 0
        assert self.scheduler.open_inputs == frozenset()
        assert self.scheduler.lease_count == self.scheduler.open_buckets == self.scheduler.held_count == 0
        assert self.scheduler.inspect().stored_bytes == 0


def source_key(ordinal: int) -> Key:
    """A yield of the call itself."""
    return ((SOURCE, "", ordinal),)


def _value(key: Key, name: str) -> Value:
    return (key, name)
