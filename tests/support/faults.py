"""Streams of messages that lose, delay, double and reorder on purpose.

    async for message in FaultyStream(source, SeededFaults(seed=7, drop=0.1)): ...

What happens to a message depends on the plan and the message's position only, never on time or on earlier draws: a
failing seed can be run again, and `FaultyStream.history` says what was done. For connections see `fault_proxy`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Drop:
    """The message is lost."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The message comes `times` times."""

    times: int = 2


@dataclass(frozen=True, slots=True)
class Delay:
    """The message and all after it come later, in seconds of the loop's clock."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The message comes after up to `by` later ones; earlier when the source pauses or ends, for it may wait for us."""

    by: int = 1


Fault = Drop | Duplicate | Delay | Overtaken


class FaultPlan(Protocol):
    """Says what happens to each message."""

    def fault(self, position: int) -> Fault | None:
        """The fault of the message at a position from 0; None lets it pass."""


@dataclass(frozen=True, slots=True)
class ScriptedFaults:
    """Faults by position: `ScriptedFaults({3: Drop(), 5: Duplicate()})`."""

    by_position: Mapping[int, Fault]

    def fault(self, position: int) -> Fault | None:
        return self.by_position.get(position)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededFaults:
    """Each message draws its fault, with the given probabilities; at most one. The same seed gives the same faults."""

    seed: int
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    most_positions: int = 4
    """A reordered message is overtaken by 1 to this many others."""
    most_delay_s: float = 0.05
    """A delayed message is delayed by up to this."""

    def fault(self, position: int) -> Fault | None:
        draw = random.Random(f"{self.seed}:{position}")
        kind = draw.random()
        for probability, make in self._kinds(draw):
            if kind < probability:
                return make()
            kind -= probability
        return None

    def _kinds(self, draw: random.Random) -> tuple[tuple[float, Callable[[], Fault]], ...]:
        return (
            (self.drop, Drop),
            (self.duplicate, Duplicate),
            (self.reorder, lambda: Overtaken(draw.randint(1, self.most_positions))),
            (self.delay, lambda: Delay(draw.uniform(0.0, self.most_delay_s))),
        )


class FaultyStream(Generic[T]):
    """An async iterator over a stream's messages after the faults of a plan. Iterate once; errors pass through.

    pause_s: silence of the source after which overtaken messages are given, in seconds of the loop's clock.
    """

    def __init__(self, source: AsyncIterable[T], plan: FaultPlan, *, pause_s: float = 0.02) -> None:
        self.history: list[tuple[int, Fault]] = []
        """Position and fault of every message that had one."""
        self._source = source
        self._plan = plan
        self._pause_s = pause_s
        self._held: list[_Held[T]] = []

    async def __aiter__(self) -> AsyncIterator[T]:
        position = 0
        async for message in _with_pauses(self._source, self._pause_s, lambda: bool(self._held)):
            if message is None:
                for late in self._release_all():
                    yield late
                continue
            fault = self._plan.fault(position)
            if fault is not None:
                self.history.append((position, fault))
            position += 1
            async for given in self._apply(message.value, fault):
                yield given
        for late in self._release_all():
            yield late

    async def _apply(self, message: T, fault: Fault | None) -> AsyncIterator[T]:
        match fault:
            case Drop():
                return
            case Overtaken(by=by):
                self._held.append(_Held(message, by))
                return
            case Delay(delay_s=delay_s):
                await asyncio.sleep(delay_s)
        for _ in range(fault.times if isinstance(fault, Duplicate) else 1):
            yield message
        for late in self._release_due():
            yield late

    def _release_due(self) -> list[T]:
        for held in self._held:
            held.left -= 1
        due = [held.message for held in self._held if held.left <= 0]
        self._held = [held for held in self._held if held.left > 0]
        return due

    def _release_all(self) -> list[T]:
        held, self._held = self._held, []
        return [item.message for item in held]


@dataclass(slots=True)
class _Held(Generic[T]):
    message: T
    left: int


@dataclass(frozen=True, slots=True)
class _Message(Generic[T]):
    value: T


async def _with_pauses(
    source: AsyncIterable[T], pause_s: float, is_watching: Callable[[], bool]
) -> AsyncIterator[_Message[T] | None]:
    """The messages of a source, and None whenever it is silent for `pause_s` while somebody watches."""
    iterator = aiter(source)
    pending: asyncio.Future[T] | None = None
    try:
        while True:
            if pending is None:
                pending = asyncio.ensure_future(anext(iterator))
            await asyncio.wait((pending,), timeout=pause_s if is_watching() else None)
            if not pending.done():
                yield None
                continue
            try:
                message = pending.result()
            except StopAsyncIteration:
                return
            pending = None
            yield _Message(message)
    finally:
        if pending is not None and not pending.done():
            pending.cancel()
            await asyncio.wait((pending,))
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()
