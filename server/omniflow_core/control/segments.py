"""A segment as its replica runs it: which activations start inside, and when their yields are delivered.

The same scheduler decides as in the control plane, over the graph inside the segment (`graph.inside`). What happens is told
to the control plane in order; it takes the same events in and registers the same activations, so leases, paths and order are
those of the graph without segments. What a node gives to the rest of the graph is delivered when the control plane says so
and its receivers inside have it.

    yielded(0, ordinal 0)  -> RunInner(1: step), RunInner(2: cond), RunInner(3: uncond)
    yielded(2), finished(2), yielded(3), finished(3)  -> RunInner(4: combine)
    finished(4)            -> EndSegment(None)

Pure, like all of the core. Inner ids count from 1; the activation that was started with the segment is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omniflow_core.control.commands import AckYields, FailCall, FinishCall, StartActivation
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    Event,
    Value,
)
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.errors import ErrorInfo
from omniflow_core.graph.inside import START
from omniflow_core.graph.plan import GraphPlan

ENTRY = 0
"""Inner id of the activation that was started with the segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInner:
    """Start an activation. To be told before anything that it does."""

    inner_id: int
    node: str
    interface: str
    group: str
    fields: Mapping[str, tuple[Value, ...]]
    parent_id: int
    """Last token of its path: activation and yield."""
    parent_ordinal: int
    yield_window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AckInner:
    """All its yields below the ordinal are delivered, inside and outside."""

    inner_id: int
    next_ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSegment:
    """Nothing runs inside any more; or, with an error, what still runs is to be stopped."""

    error: ErrorInfo | None


SegmentCommand = RunInner | AckInner | EndSegment


class SegmentRun:
    """One run of a segment, from its entry's acceptance. Methods return what to do, in order; nothing after the end."""

    def __init__(
        self, plan: GraphPlan, entry: str, exits: Mapping[str, frozenset[str]], *, yield_window: int, byte_credit: int
    ) -> None:
        self._exits = exits
        self._yield_window = yield_window
        self._scheduler = CallScheduler(plan, yield_window=yield_window, byte_credit=byte_credit)
        self._delivered: dict[int, _Delivered] = {}
        """Activations of nodes with exits: what is delivered inside, outside and told."""
        self.has_ended = False
        self._scheduler.handle(CallAdmitted({START: None}))
        self._scheduler.handle(ActivationAccepted(_FIRST))
        if entry in exits:
            self._delivered[ENTRY] = _Delivered()

    def yielded(
        self, inner_id: int, ordinal: int, fields: Mapping[str, Value], size_bytes: int, stored_bytes: int
    ) -> list[SegmentCommand]:
        """One output, with all fields that are present."""
        return self._handle(
            ActivationYielded(inner_id + _FIRST, ordinal, fields, size_bytes, stored_bytes=stored_bytes)
        )

    def finished(
        self,
        inner_id: int,
        yield_count: int,
        last: Mapping[str, Value] | None = None,
        size_bytes: int = 0,
        stored_bytes: int = 0,
    ) -> list[SegmentCommand]:
        """The activation has given all it gives; `last` is its last yield, when that came with the end."""
        self._delivered.pop(inner_id, None)
        event = ActivationFinished(inner_id + _FIRST, yield_count)
        event.last, event.size_bytes, event.stored_bytes = last, size_bytes, stored_bytes
        return self._handle(event)

    def failed(self, inner_id: int, error: ErrorInfo) -> list[SegmentCommand]:
        """The activation failed; with it the segment, unless its node says otherwise."""
        self._delivered.pop(inner_id, None)
        return self._handle(ActivationFailed(inner_id + _FIRST, error))

    def accepted(self, inner_id: int) -> list[SegmentCommand]:
        """The replica has taken a RunInner in. Until then the yield that caused it is not delivered."""
        return self._handle(ActivationAccepted(inner_id + _FIRST))

    def acknowledged(self, inner_id: int, next_ordinal: int) -> list[SegmentCommand]:
        """The control plane has an activation's yields below the ordinal."""
        delivered = self._delivered.get(inner_id)
        if self.has_ended or delivered is None:
            return []
        delivered.outside = max(delivered.outside, next_ordinal)
        return self._tell(inner_id, delivered)

    def _handle(self, event: Event) -> list[SegmentCommand]:
        commands: list[SegmentCommand] = []
        if self.has_ended:
            return commands
        for command in self._scheduler.handle(event):
            if isinstance(command, StartActivation):
                commands.append(self._run(command))
            elif isinstance(command, AckYields):
                commands.extend(self._ack(command.activation_id - _FIRST, command.next_ordinal))
            elif isinstance(command, FinishCall | FailCall):
                self.has_ended = True
                self._delivered.clear()
                commands.append(EndSegment(error=command.error if isinstance(command, FailCall) else None))
        return commands

    def _run(self, command: StartActivation) -> RunInner:
        spec = command.node.spec
        assert spec is not None, "only the source has no spec"
        inner_id = command.activation_id - _FIRST
        parent_id, parent_ordinal = self._scheduler.origin_of(command.activation_id)
        if spec.name in self._exits:
            self._delivered[inner_id] = _Delivered()
        return RunInner(
            inner_id=inner_id,
            node=spec.name,
            interface=spec.interface,
            group=command.group,
            fields=command.fields,
            parent_id=parent_id - _FIRST,
            parent_ordinal=parent_ordinal,
            yield_window=spec.yield_window or self._yield_window,
        )

    def _ack(self, inner_id: int, next_ordinal: int) -> list[SegmentCommand]:
        delivered = self._delivered.get(inner_id)
        if delivered is None:
            return [AckInner(inner_id=inner_id, next_ordinal=next_ordinal)]
        delivered.inside = next_ordinal
        return self._tell(inner_id, delivered)

    def _tell(self, inner_id: int, delivered: _Delivered) -> list[SegmentCommand]:
        both = min(delivered.inside, delivered.outside)
        if both <= delivered.told:
            return []
        delivered.told = both
        return [AckInner(inner_id=inner_id, next_ordinal=both)]


_FIRST = 1
"""Id that a scheduler gives to the first activation of a call."""


class _Delivered:
    """Ordinals below which an activation's yields are delivered."""

    __slots__ = ("inside", "outside", "told")

    def __init__(self) -> None:
        self.inside = self.outside = self.told = 0
