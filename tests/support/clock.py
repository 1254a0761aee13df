"""Clocks that tests own: time passes when the test says so, or as soon as there is nothing else to do.

    clock = ManualClock()              for code that is given a clock; `clock.advance(5.0)`
    @fast_clock                        for tests of code with timers; an hour of `asyncio.sleep` takes no time
    async def test_...

`FastClockLoop` jumps to the next timer when nothing is ready. It is deterministic as long as the code under test waits
for timers and for itself only. A thread or another process works in real time, so a jump would overtake it: hold the
time meanwhile (`with loop.holding_time():`; `run_in_executor` does it by itself). gRPC does its work in threads of its
own; tests of it use real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import selectors
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

START_S = 1_000.0
"""Not zero, so that a forgotten default of 0 does not pass for a time."""
STUCK_AFTER_S = 10.0
"""Real time that a loop without timers waits for threads or sockets before it says that nothing will ever happen."""


class ManualClock:
    """A monotonic clock that stands still: `clock()` is its time in seconds."""

    def __init__(self, start_s: float = START_S) -> None:
        self._now_s = start_s

    def __call__(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> float:
        """Lets time pass; returns the new time. Raises ValueError for a step back."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock does not go back, by {seconds} s")
        self._now_s += seconds
        return self._now_s


class StuckError(RuntimeError):
    """The loop waits, and neither a timer nor a held time says for what."""


class FastClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when nothing is ready."""

    def __init__(self, *, start_s: float = START_S, stuck_after_s: float = STUCK_AFTER_S) -> None:
        self._now_s = start_s
        self._holders = 0
        self._stuck_after_s = stuck_after_s
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now_s

    @contextlib.contextmanager
    def holding_time(self) -> Iterator[None]:
        """Inside, time stands still: the loop waits for threads, processes and sockets instead of jumping."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """As always, and time stands still until the function has returned."""
        self._holders += 1
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._release)
        return future

    def _release(self, _: object) -> None:
        self._holders -= 1

    def _wait(self, select: Callable[[float | None], list[Any]], timeout_s: float | None) -> list[Any]:
        """What the selector is asked: `timeout_s` is the time to the next timer, None when there is none."""
        ready = select(0)
        if ready or timeout_s == 0:
            return ready
        if timeout_s is None or self._holders:
            ready = select(self._stuck_after_s)
            if not ready:
                raise StuckError(f"nothing has happened for {self._stuck_after_s:g} s, and no timer is set")
            return ready
        self._now_s += timeout_s
        return ready


class _JumpingSelector(selectors.DefaultSelector):
    """The loop's selector, with the loop's own idea of waiting."""

    def __init__(self, loop: FastClockLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return self._loop._wait(super().select, timeout)


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on a `FastClockLoop`."""
    with asyncio.Runner(loop_factory=FastClockLoop) as runner:
        return runner.run(main)


def fast_clock(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Makes an asynchronous test one that runs on a `FastClockLoop`. Its fixtures must be plain: they know no such loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_fast(test(*args, **kwargs))

    return run
