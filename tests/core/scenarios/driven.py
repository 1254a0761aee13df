"""Drives one call by the names of its nodes and holds it to its invariants after every event.

Activations are named by node and turn: "h" is the first activation of node h that was started, "h#1" the second.

    drive = Driven(spec)
    drive.admit(x="v")                 -> ["start a main(x=v)"]
    drive.give("a", y="w")             -> ["start b main(x=w)"]
    drive.run("b", "r")                -> ["emit out=r"]          gives field y, then finishes
    drive.finish("a")                  -> ["finish stop", "release"]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from omniflow_core.control.commands import (
    AckYields,
    CancelActivations,
    Command,
    Emit,
    Facet,
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
    ExitYielded,
    InputArrived,
    Value,
)
from omniflow_core.control.scheduler import CallPhase, CallScheduler
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.spec import GraphSpec

STOP = ErrorInfo(reason=Reason.CALL_CANCELLED, message="stop")
BROKEN = ErrorInfo(reason=Reason.INTERFACE_FAILED, message="it broke")
LOST = ErrorInfo(reason=Reason.REPLICA_LOST, message="gone", metadata={"node": "b", "replica": "worker-0"})


class Driven:
    """A scheduler and what came out of it. Checks of whole calls with thousands of activations wait for the end."""

    def __init__(self, spec: GraphSpec, *, checks_every_step: bool = True, **options: Any) -> None:
        self.plan = plan_graph(spec)
        self._checks_every_step = checks_every_step
        self.scheduler = CallScheduler(self.plan, **options)
        self.commands: list[Command] = []
        self.starts: dict[str, StartActivation] = {}
        """The latest start of each activation, in order of their first one."""
        self.running: dict[str, int] = {}
        """Yields that each running activation has given, by name."""
        self.acked: dict[str, int] = {}
        self.emitted: list[Emit] = []
        self.terminal: FinishCall | FailCall | None = None
        self.is_released = False
        self._names: dict[int, str] = {}
        self._turns: Counter[str] = Counter()

    # --- events ----------------------------------------------------------------------------------------------------

    def __call__(self, event: Event) -> list[str]:
        """Hands an event in; says what came of it."""
        commands = self.scheduler.handle(event)
        if self._checks_every_step:
            self.scheduler.check_integrity()
        self.commands += commands
        shown = [self._take(command) for command in commands]
        if self.is_released:
            self._check_nothing_is_left()
        return shown

    def admit(self, **inputs: Value) -> list[str]:
        return self(CallAdmitted(inputs, frozenset(self.plan.streaming_inputs)))

    def push(self, name: str, value: Value | None = None, *, last: bool = False, size: int = 0) -> list[str]:
        return self(InputArrived(name, value, last, size))

    def accept(self, name: str, attempt: int = 0) -> list[str]:
        return self(ActivationAccepted(self._id(name), attempt or self.starts[name].attempt))

    def give(self, name: str, size: int = 0, /, **values: Value) -> list[str]:
        """The activation's next yield."""
        ordinal = self.running[name]
        self.running[name] += 1
        return self(ActivationYielded(self._id(name), ordinal, values, size, self.starts[name].attempt))

    def give_out(self, name: str, size: int = 0, /, *, below: tuple[int, ...], **values: Value) -> list[str]:
        """The next exit of the activation's pipeline; `below` is its path below that of the activation."""
        ordinal = self.running[name]
        self.running[name] += 1
        path = (*self.starts[name].origin_path, *below)
        return self(ExitYielded(self._id(name), ordinal, values, path, size))

    def finish(self, name: str, *, histories: tuple[object, ...] = (), started: int = 0) -> list[str]:
        """With `started`, so many activations ended below it in its pipeline."""
        count = self.running.pop(name)
        attempt = self.starts[name].attempt
        finished = ActivationFinished(self._id(name), count, attempt=attempt, histories=histories)
        finished.started_activations = started
        return self(finished)

    def run(self, name: str, *yields: Value) -> list[str]:
        """Gives each value as a yield, in field y unless it is a mapping of fields, and finishes."""
        shown = []
        for value in yields:
            shown += self.give(name, **(value if isinstance(value, Mapping) else {"y": value}))
        return shown + self.finish(name)

    def fail(self, name: str, error: ErrorInfo = BROKEN) -> list[str]:
        del self.running[name]
        return self(ActivationFailed(self._id(name), error, self.starts[name].attempt))

    def cancel(self, error: ErrorInfo = STOP) -> list[str]:
        return self(CancelRequested(error))

    def stop_all(self) -> list[str]:
        """Everything that runs answers the cancel."""
        return [shown for name in list(self.running) for shown in self.fail(name, STOP)]

    # --- what came out -----------------------------------------------------------------------------------------------

    def inputs_of(self, node: str) -> list[tuple[tuple[int, ...], Mapping[str, tuple[Value, ...]]]]:
        """Origin path and fields of each activation of a node that is no count join, in order of the paths."""
        starts = [start for start in self.starts.values() if start.node.name == node]
        return sorted(((s.origin_path, s.fields) for s in starts), key=lambda found: found[0])

    def values(self, output: str = "out") -> list[Value]:
        return [event.value for event in self.emitted if event.output == output]

    @property
    def error(self) -> ErrorInfo:
        assert isinstance(self.terminal, FailCall)
        return self.terminal.error

    @property
    def leftovers(self) -> dict[str, int]:
        """What the core still keeps."""
        scheduler = self.scheduler
        kept = {
            "activations": scheduler.active_count,
            "buckets": scheduler.open_buckets,
            "leases": scheduler.lease_count,
            "held": scheduler.held_count,
            "stored bytes": scheduler.inspect().stored_bytes,
        }
        return {what: count for what, count in kept.items() if count}

    # --- inside ------------------------------------------------------------------------------------------------------

    def _id(self, name: str) -> int:
        return self.starts[name].activation_id

    def _take(self, command: Command) -> str:
        assert not self.is_released, "the release is the last command"
        if isinstance(command, ReleaseCall):
            assert self.terminal is not None, "released before its terminal event"
            self.is_released = True
            return "release"
        assert self.terminal is None, f"{command} follows the terminal event"
        match command:
            case StartActivation():
                return self._start(command)
            case AckYields():
                name = self._names[command.activation_id]
                self.acked[name] = command.next_ordinal
                return f"ack {name}<{command.next_ordinal}"
            case Emit():
                self.emitted.append(command)
                return f"emit {command.output}={command.value}"
            case FinishCall():
                self.terminal = command
                return f"finish {command.finish_reason}"
            case FailCall():
                self.terminal = command
                return f"fail {command.error.reason}"
            case CancelActivations():
                return "cancel"

    def _start(self, command: StartActivation) -> str:
        name = self._names.get(command.activation_id)
        if name is None:
            node = command.node.name
            name = f"{node}#{self._turns[node]}" if self._turns[node] else node
            self._turns[node] += 1
            self._names[command.activation_id] = name
        self.starts[name] = command
        self.running[name] = len(command.delivered)
        self.acked[name] = len(command.delivered)
        again = f" attempt {command.attempt}" if command.attempt > 1 else ""
        return f"start {name}{''.join(' ' + shown(facet) for facet in command.facets)}{again}"

    def _check_nothing_is_left(self) -> None:
        self.scheduler.check_integrity()
        assert self.scheduler.phase is CallPhase.ENDED
        assert self.leftovers == {}
        assert self.scheduler.open_inputs == frozenset()


def shown(facet: Facet) -> str:
    """A facet as "group(field=value+value)", fields by name."""
    pairs = (f"{name}={'+'.join(map(str, values))}" for name, values in sorted(facet.fields.items()))
    return f"{facet.group}({','.join(pairs)})"
