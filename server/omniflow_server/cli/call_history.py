"""What became of each activation of a call, found by replaying its record.

A replay's values are stand-ins that say by which event they came, so an activation's inputs tell which yields caused it.
Its place in the tree is below the yield that it belongs to: that of its single source, the anchor's for a prefix join, the
call itself for a count join.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from omniflow.graph.v1 import inspection_pb2 as pb
from omniflow_core.control.commands import Command, Emit, FailCall, FinishCall, StartActivation
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    Event,
    ExitYielded,
)
from omniflow_core.control.replay import StandIn, Step
from omniflow_core.errors import Reason
from omniflow_core.graph.plan import GraphPlan, JoinKind

CALL = 0
"""The call itself where an activation's identifier is expected."""


@dataclass(slots=True, kw_only=True)
class Life:
    """An activation from its start to its end. Times in microseconds since the call was accepted, None for not yet."""

    activation_id: int
    node: str
    group: str
    parent: int
    """Activation that it stands below."""
    sources: tuple[int, ...] = ()
    """Activations whose yields it took."""
    origin_path: tuple[int, ...] = ()
    begin_us: int | None = None
    accepted_us: int | None = None
    first_yield_us: int | None = None
    end_us: int | None = None
    attempt: int = 1
    yields: int = 0
    state: str = "sent"
    """sent, running, finished, failed, stopped, or ended when the record does not reach to its end."""
    error: str = ""

    @property
    def has_ended(self) -> bool:
        return self.state not in ("sent", "running", "held")


@dataclass(slots=True, kw_only=True)
class CallHistory:
    """A call as its record tells it."""

    plan: GraphPlan
    lives: dict[int, Life] = field(default_factory=dict)
    outputs: Counter[str] = field(default_factory=Counter)
    """Values given, by graph output."""
    events: int = 0
    commands: int = 0
    now_us: int = 0
    """Time of the last event."""
    end: FinishCall | FailCall | None = None
    end_us: int | None = None
    end_event: int = -1
    """The event that ended the call."""
    first_difference: Step | None = None
    _yielders: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(activation, ordinal) of the yield that each event brought."""

    def add(self, step: Step) -> None:
        """The next step of the replay."""
        recorded = step.recorded
        self.events += 1
        self.commands += len(step.commands)
        self.now_us = recorded.time_us
        if not step.agrees and self.first_difference is None:
            self.first_difference = step
        self._take_event(recorded.event, recorded.index)
        for command in step.commands:
            self._take_command(command, recorded.event, recorded.index)

    def add_live(self, snapshot: pb.SchedulerSnapshot, *, now_us: int, is_complete: bool) -> None:
        """What the scheduler holds now: the record may be full, and what waits at a gate was never commanded."""
        self.now_us = max(self.now_us, now_us)
        phases = {
            pb.ACTIVATION_PHASE_HELD: "held",
            pb.ACTIVATION_PHASE_SENT: "sent",
            pb.ACTIVATION_PHASE_RUNNING: "running",
        }
        listed = {view.activation_id: view for view in snapshot.activations}
        for activation_id, view in listed.items():
            life = self.lives.get(activation_id)
            if life is None:
                life = self.lives[activation_id] = Life(
                    activation_id=activation_id,
                    node=view.node,
                    group=view.input_group,
                    parent=CALL,
                    origin_path=tuple(view.origin_path),
                )
            life.state = phases.get(view.phase, life.state)
            life.yields, life.attempt = view.yields, view.attempt
        for activation_id, life in self.lives.items():
            is_gone = activation_id not in listed and not snapshot.activations_left_out
            if not life.has_ended and is_gone and not is_complete:
                life.state = "ended"

    def _take_event(self, event: Event, index: int) -> None:
        if not isinstance(
            event, ActivationAccepted | ActivationYielded | ExitYielded | ActivationFinished | ActivationFailed
        ):
            return
        life = self.lives.get(event.activation_id)
        if life is None or event.attempt != life.attempt or life.has_ended:
            return
        match event:
            case ActivationAccepted():
                self._run(life)
            case ActivationYielded() | ExitYielded():
                self._run(life)
                self._yielders[index] = (life.activation_id, event.ordinal)
                life.yields = max(life.yields, event.ordinal + 1)
                life.first_yield_us = self.now_us if life.first_yield_us is None else life.first_yield_us
            case ActivationFinished():
                life.state, life.end_us = "finished", self.now_us
            case ActivationFailed():
                is_stopped = self.end is not None or event.error.reason is Reason.CALL_CANCELLED
                life.state, life.end_us = "stopped" if is_stopped else "failed", self.now_us
                life.error = f"{event.error.reason}: {event.error.message}".rstrip(": ")

    def _run(self, life: Life) -> None:
        if life.state == "sent":
            life.state, life.accepted_us = "running", self.now_us

    def _take_command(self, command: Command, event: Event, index: int) -> None:
        if isinstance(command, StartActivation):
            self._start(command, event)
        elif isinstance(command, Emit):
            self.outputs[command.output] += 1
        elif isinstance(command, FinishCall | FailCall):
            self.end, self.end_us, self.end_event = command, self.now_us, index

    def _start(self, command: StartActivation, event: Event) -> None:
        known = self.lives.get(command.activation_id)
        if known is not None:  # another attempt, elsewhere
            known.state, known.attempt, known.error = "sent", command.attempt, ""
            known.end_us = None
            return
        sources = tuple(sorted(set(self._sources_of(command))))
        trigger = event.activation_id if isinstance(event, ActivationFinished | ActivationFailed) else CALL
        self.lives[command.activation_id] = Life(
            activation_id=command.activation_id,
            node=command.node.name,
            group=command.group,
            parent=self._parent(command, sources[0] if sources else trigger),
            sources=sources,
            origin_path=command.origin_path,
            begin_us=self.now_us,
            attempt=command.attempt,
        )

    def _sources_of(self, command: StartActivation) -> Iterable[int]:
        """Activations whose yields are among the inputs; the call for its own inputs."""
        for facet in command.facets:
            for values in facet.fields.values():
                for value in values:
                    if isinstance(value, StandIn):
                        yield self._yielders.get(value.event, (CALL, 0))[0]

    def _parent(self, command: StartActivation, source: int) -> int:
        group = next((g for g in self.plan.groups if (g.node, g.group) == (command.node.name, command.group)), None)
        if group is None or group.kind is JoinKind.COUNT:
            return CALL
        if group.kind is JoinKind.SINGLE:
            return source
        above = source
        while above != CALL and self.lives[above].node != group.anchor:
            above = self.lives[above].parent
        return above
