"""Threads for interfaces that block, replaced when their work is given up.

    busy ──job ends──▶ idle ──job──▶ busy
      └─abandon─▶ abandoned (a new thread takes its place) ──job ends──▶ the thread goes, or is idle if there is room

A thread cannot be stopped in Python. So a cancelled activation that still blocks is *abandoned*: its results are dropped,
its thread is counted, and another thread serves the next activation. Their number is bounded too: beyond it new jobs wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Job(NamedTuple):
    future: Future[Any]
    call: Callable[[], Any]


class ThreadPool(Executor):
    """At most `max_threads` threads at work, and at most `max_abandoned` that are still in work nobody waits for.

    Threads start when they are needed and are daemons: one that blocks for ever does not hold up the end of the process.
    """

    def __init__(self, max_threads: int, *, max_abandoned: int = 64, name: str = "worker") -> None:
        if max_threads < 1:
            raise ValueError("a pool needs at least one thread")
        self._max_threads = max_threads
        self._max_abandoned = max_abandoned
        self._name = name
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._running: set[Future[Any]] = set()
        self._abandoned: set[Future[Any]] = set()
        self._thread_count = 0
        self._idle_count = 0
        self._started = 0
        self._is_shut_down = False

    @property
    def abandoned_count(self) -> int:
        """Threads still in work that was given up."""
        return len(self._abandoned)

    @property
    def thread_count(self) -> int:
        """Threads that exist, abandoned ones included."""
        return self._thread_count

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queues a call. Raises RuntimeError after `shutdown`."""
        future: Future[T] = Future()
        with self._changed:
            if self._is_shut_down:
                raise RuntimeError("the thread pool is shut down")
            self._jobs.append(_Job(future, lambda: fn(*args, **kwargs)))
            self._grow()
            self._changed.notify()
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Stop counting a running job's thread against the pool. Nothing happens when the job has ended."""
        with self._changed:
            if future in self._running:
                self._abandoned.add(future)
                self._grow()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more jobs. `wait` waits for those queued and running, abandoned ones aside."""
        with self._changed:
            self._is_shut_down = True
            if cancel_futures:
                for job in self._jobs:
                    job.future.cancel()
                self._jobs.clear()
            self._changed.notify_all()
            while wait and (self._jobs or self._running - self._abandoned):
                self._changed.wait()

    def _grow(self) -> None:
        """One more thread when a job waits and there is room for it."""
        is_full = self._thread_count - len(self._abandoned) >= self._max_threads
        if len(self._jobs) <= self._idle_count or is_full or len(self._abandoned) > self._max_abandoned:
            return
        self._thread_count += 1
        self._started += 1
        threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if job.future.set_running_or_notify_cancel():
                _perform(job)
            with self._changed:
                self._running.discard(job.future)
                self._abandoned.discard(job.future)
                if self._is_shut_down:
                    self._changed.notify_all()
            # An idle thread must not keep the last job's arguments and result alive.
            del job

    def _next(self) -> _Job | None:
        """The next job; None when this thread is to end."""
        with self._changed:
            while not self._is_surplus:
                if self._jobs:
                    job = self._jobs.popleft()
                    self._running.add(job.future)
                    return job
                if self._is_shut_down:
                    break
                self._idle_count += 1
                self._changed.wait()
                self._idle_count -= 1
            self._thread_count -= 1
            return None

    @property
    def _is_surplus(self) -> bool:
        """An abandoned thread came back and its place has been taken."""
        return self._thread_count - len(self._abandoned) > self._max_threads


def _perform(job: _Job) -> None:
    try:
        result = job.call()
    except BaseException as error:  # a thread of the pool outlives whatever its job raises
        job.future.set_exception(error)
    else:
        job.future.set_result(result)
