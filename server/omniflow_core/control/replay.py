"""Runs a recorded call again through the pure core, offline, and checks that it decides the same.

A scheduler never looks into values; all that it learns of them are the answers of `count_of` and `digest_of`. So the events
of a call without its values, and those answers, are enough to bring about every state that the call has been in. Stand-ins
take the place of the values: each says by which event and in which field it came, so what a replay gives also tells what
came from where.

    CallAdmitted{text: StandIn(0, "text")}      -> Start(1: parser, text=StandIn(0, "text"))
    Yielded(1, 0, {text: StandIn(1, "text")})   -> Start(2: llm, text=StandIn(1, "text"))     2 stems from event 1

Does not know how a record is kept. The checksums tell different decisions apart with near certainty, by names, numbers and
the order of contributions; they do not say what differs.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

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
from omniflow_core.control.events import Event
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.graph.plan import GraphPlan

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StandIn:
    """Takes the place of a value that came with an event (by its index in the record) in a field."""

    event: int
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event with stand-ins for its values, and what came of it."""

    index: int
    time_us: int
    """Since the call was accepted."""
    event: Event
    checksum: int
    """Of the commands that it brought about."""
    counts: tuple[int | None, ...] = ()
    """Answers of `count_of` while it was handled."""
    digests: tuple[bytes, ...] = ()
    """Answers of `digest_of` while it was handled."""
    has_raised: bool = False
    """The scheduler broke on it."""


class Step(NamedTuple):
    """One event of a replay."""

    recorded: RecordedEvent
    commands: list[Command]
    agrees: bool
    """The replay decided what the record says."""


class Replay:
    """A call that is run again, event by event. `options` are keyword arguments of CallScheduler."""

    def __init__(self, plan: GraphPlan, options: Mapping[str, int]) -> None:
        self._counts = _Answers[int | None](None)
        self._digests = _Answers[bytes](b"")
        given: dict[str, Any] = {**options, "count_of": self._counts, "digest_of": self._digests}
        self.scheduler = CallScheduler(plan, **given)

    def step(self, recorded: RecordedEvent) -> Step:
        """Hands the next event to the scheduler. Raises what the scheduler raises."""
        self._counts.expect(recorded.counts)
        self._digests.expect(recorded.digests)
        commands = self.scheduler.handle(recorded.event)
        agrees = (
            checksum_of(commands) == recorded.checksum
            and self._counts.have_matched
            and self._digests.have_matched
            and not recorded.has_raised
        )
        return Step(recorded, commands, agrees)


def replay(plan: GraphPlan, options: Mapping[str, int], events: Iterable[RecordedEvent]) -> Iterator[Step]:
    """Runs a record from its beginning. Goes on after a difference, where only the first one means much."""
    run = Replay(plan, options)
    for recorded in events:
        yield run.step(recorded)


class _Answers(Generic[T]):
    """Answers a question about values as the record says, in order."""

    def __init__(self, unknown: T) -> None:
        self._unknown = unknown
        self._left: deque[T] = deque()
        self._is_short = False

    def expect(self, answers: Sequence[T]) -> None:
        """The answers while the next event is handled."""
        self._left = deque(answers)
        self._is_short = False

    def __call__(self, value: object) -> T:
        if self._left:
            return self._left.popleft()
        self._is_short = True
        return self._unknown

    @property
    def have_matched(self) -> bool:
        """As many questions were asked as were answered in the record."""
        return not self._left and not self._is_short


# --- checksums --------------------------------------------------------------------------------------------------------

_MASK = 0xFFFF_FFFF


def checksum_of(commands: Iterable[Command]) -> int:
    """32 bits over kinds, names, numbers and the order of contributions; the same in every 64-bit CPython.

    It is made for every event of every call, so the usual commands come first and paths are hashed whole: hashes of
    numbers and of tuples of them do not change from process to process, those of texts do. Records hold these numbers, so
    another rule is another format.
    """
    total = 0
    for command in commands:
        if type(command) is Emit:
            part = _code(command.output) + hash(command.origin_path)
        elif type(command) is AckYields:
            part = 5 + 8191 * command.activation_id + command.next_ordinal
        else:
            part = _PARTS[type(command)](command)
        total = (total * 131 + part + 1) & _MASK
    return total


@lru_cache(maxsize=4096)
def _code(name: str) -> int:
    return zlib.crc32(name.encode())


@lru_cache(maxsize=4096)
def _code_of_all(names: tuple[str, ...]) -> int:
    return zlib.crc32(",".join(names).encode())


def _of_start(command: StartActivation) -> int:
    place = (command.activation_id, command.attempt, len(command.delivered), command.origin_path)
    total = _code(command.node.name) + hash(place)
    for facet in command.facets:
        fields = facet.fields
        paths = tuple(facet.paths.values()) if facet.paths is not None else ()
        counts = tuple(map(len, fields.values()))
        total = total * 31 + hash((_code(facet.group), _code_of_all(tuple(fields)), counts, paths))
        if facet.context:
            total += sum(facet.context.values())
    return total


def _of_finish(command: FinishCall) -> int:
    usage = command.usage
    counters = (usage.activations, usage.output_tokens, usage.input_tokens, usage.cached_input_tokens)
    return 11 + _code(command.finish_reason) + hash((counters, len(command.histories)))


def _of_fail(command: FailCall) -> int:
    return 13 + _code(command.error.reason) + command.usage.activations


def _of_cancel(command: CancelActivations) -> int:
    return 17


def _of_release(command: ReleaseCall) -> int:
    return 19


_PARTS: Mapping[type, Callable[..., int]] = {
    StartActivation: _of_start,
    FinishCall: _of_finish,
    FailCall: _of_fail,
    CancelActivations: _of_cancel,
    ReleaseCall: _of_release,
}
