"""The thread pool that replaces abandoned threads."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait

import pytest

from omniflow.threads import ThreadPool


def test_pool_runs_jobs_and_hands_on_results_and_errors() -> None:
    pool = ThreadPool(2)
    assert pool.submit(lambda x: x + 1, 1).result(5) == 2
    assert isinstance(pool.submit(int, "x").exception(5), ValueError)
    assert pool.submit(lambda: 3).result(5) == 3  # the thread outlived the error
    pool.shutdown()


def test_pool_starts_no_more_threads_than_it_needs_or_may() -> None:
    pool = ThreadPool(3)
    for _ in range(10):
        pool.submit(lambda: None).result(5)
    assert pool.thread_count <= 2
    gate = threading.Event()
    jobs = [pool.submit(gate.wait, 10) for _ in range(8)]
    assert pool.thread_count == 3
    gate.set()
    wait(jobs, 5)
    pool.shutdown()


def test_abandoned_thread_is_replaced_and_goes_when_it_comes_back() -> None:
    pool = ThreadPool(1)
    gate, running = threading.Event(), threading.Event()

    def block() -> None:
        running.set()
        gate.wait(10)

    stuck = pool.submit(block)
    assert running.wait(5)
    behind = pool.submit(lambda: "ran")
    assert not behind.done()
    pool.abandon(stuck)
    pool.abandon(stuck)
    assert behind.result(5) == "ran"
    assert pool.abandoned_count == 1
    assert pool.thread_count == 2
    gate.set()
    stuck.result(5)
    pool.submit(lambda: None).result(5)
    pool.shutdown()
    assert pool.abandoned_count == 0


def test_abandon_of_an_ended_job_changes_nothing() -> None:
    pool = ThreadPool(1)
    job = pool.submit(lambda: None)
    job.result(5)
    pool.submit(lambda: None).result(5)
    pool.abandon(job)
    assert pool.abandoned_count == 0
    pool.shutdown()


def test_jobs_wait_when_too_many_threads_are_abandoned() -> None:
    pool = ThreadPool(1, max_abandoned=1)
    gate = threading.Event()
    stuck: list[Future[bool]] = []
    for _ in range(2):
        running = threading.Event()
        stuck.append(pool.submit(lambda r=running: r.set() or gate.wait(10)))  # type: ignore[misc]
        assert running.wait(5)
        pool.abandon(stuck[-1])
    waiting = pool.submit(lambda: "ran")
    assert pool.thread_count == 2
    assert not waiting.done()
    gate.set()
    assert waiting.result(5) == "ran"
    pool.shutdown()


def test_shutdown_refuses_new_jobs_and_cancels_waiting_ones() -> None:
    pool = ThreadPool(1)
    gate, running = threading.Event(), threading.Event()
    first = pool.submit(lambda: running.set() or gate.wait(10))  # type: ignore[func-returns-value]
    assert running.wait(5)
    second = pool.submit(lambda: None)
    pool.shutdown(wait=False, cancel_futures=True)
    assert second.cancelled()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(lambda: None)
    gate.set()
    pool.shutdown()
    assert first.done()
