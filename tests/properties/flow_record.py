"""What came out of a driven call, and in which step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from omniflow_core.control.commands import Command, FailCall, FinishCall
from omniflow_core.control.events import Event
from omniflow_core.graph.routing import SegmentPlan
from tests.properties.flow_evaluator import Script
from tests.properties.flow_values import Activation, Value, Yielded

UNLIMITED = 10_000
"""More yields than any call has."""

YIELD_BYTES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What befalls a call besides its own course."""

    repeats: float = 0.1
    """Chance that a step hands an old event in again."""
    stop_after: int | None = None
    """Steps until the call is cancelled."""
    injure_after: int | None = None
    """Steps until some activation fails that would not have."""
    losses: float = 0.0
    """Chance that a step loses the replica of an activation."""
    input_window: int = 4
    """Values of streaming placeholders that may wait for delivery."""
    default_window: int = 4
    """Yield window of nodes that name none."""
    byte_credit: int = UNLIMITED
    """Yields whose bytes an activation may have outstanding, whatever its window."""
    workers: int = UNLIMITED
    """Activations that a node takes in at a time. Nodes on a cycle take in all: they can wait for their own children."""
    store_limit: int = UNLIMITED
    """Yields that joins, chunks, gates and held outputs may keep together."""
    hosts: float = 0.0
    """Chance that the replica of a segment's entry runs the segment itself."""
    lag: float = 0.0
    """Chance that the control plane hears nothing of it in a step in which something else can happen."""
    pipes: float = 0.0
    """Chance that the replicas of a pipeline run it themselves."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start that was commanded."""

    activation: Activation
    origin_path: tuple[int, ...]
    paths: Mapping[str, Mapping[str, tuple[tuple[int, ...], ...]] | None] | None
    """Origin paths of the values, by group and field; None for those of the activation.

    None in the place of all where a replica started it itself: the call's scheduler keeps none of them.
    """


@dataclass(frozen=True, slots=True)
class Registered:
    """An activation that a replica starts itself, as the call has registered it."""

    activation_id: int
    activation: Activation
    origin_path: tuple[int, ...]


@dataclass(slots=True)
class Times:
    """In which step what happened. A step is one event handed in."""

    now: int = 0
    yielded: dict[Yielded, int] = field(default_factory=dict)
    """The first time that the yield was handed in."""
    started: dict[Activation, int] = field(default_factory=dict)
    ended: dict[Activation, int] = field(default_factory=dict)
    """A port of the call ends with its last value, the one of single placeholders at admission."""
    emitted: dict[tuple[str, Value], int] = field(default_factory=dict)
    """By output and value."""
    terminal: int = 0


@dataclass(slots=True)
class Record:
    """One call."""

    started: list[Start] = field(default_factory=list)
    emitted: dict[str, list[Value]] = field(default_factory=lambda: defaultdict(list))
    times: Times = field(default_factory=Times)
    terminal: FinishCall | FailCall | None = None
    is_released: bool = False
    cuts: dict[Activation, Script] = field(default_factory=dict)
    """What activations did that were made to fail."""
    last_failed: str = ""
    """The node of the last activation that failed before the terminal event."""
    most_held: int = 0
    """Starts that waited at gates at a time."""
    retried: int = 0
    hosted: dict[Activation, SegmentPlan] = field(default_factory=dict)
    """Activations that replicas started themselves, with the segment of each."""
    most_hosts: int = 0
    """Runs of segments at a time."""
    broken_hosts: int = 0
    """Runs that were lost or told to stop."""
    piped: dict[Activation, int] = field(default_factory=dict)
    """Activations of pipelines that replicas started themselves, with the place of their node in it, from 1."""
    most_pipes: int = 0
    """Runs of pipelines at a time."""
    skipped_in_pipe: int = 0
    """Yields that started nothing in a pipeline."""
    broken_pipes: int = 0
    """Pipelines in which something failed."""
    paths: dict[Yielded, tuple[int, ...]] = field(default_factory=dict)
    """Paths of the yields that something was given out of."""
    history: list[Event | Command | Registered] = field(default_factory=list)
    """Every event, each followed by what was commanded and registered."""

    def start_in_pipe(self, activation: Activation, path: tuple[int, ...], stage: int) -> None:
        """A replica starts an activation of a pipeline itself. The call hears of it no more than of what it takes."""
        if self.terminal is None:
            self.started.append(Start(activation, path, None))
            self.times.started.setdefault(activation, self.times.now)
            self.piped[activation] = stage

    def note_passed(self, activation: Activation, ordinal: int) -> None:
        """A yield was taken in a pipeline, which is no step of the call."""
        if self.terminal is None:
            self.times.yielded.setdefault((activation, ordinal), self.times.now)

    def note_end(self, activation: Activation) -> None:
        """An activation of a pipeline has given all, which is no step of the call."""
        if self.terminal is None:
            self.times.ended.setdefault(activation, self.times.now)

    def register(self, registered: Registered, segment: SegmentPlan) -> None:
        """A replica starts an activation itself."""
        activation = registered.activation
        self.started.append(Start(activation, registered.origin_path, None))
        self.times.started.setdefault(activation, self.times.now)
        self.hosted[activation] = segment
        self.history.append(registered)
