"""A flag that threads may wait for."""

from __future__ import annotations

import threading

from omniflow.cancel_flag import CancelFlag


def test_flag_is_set_once_and_for_all() -> None:
    flag = CancelFlag()
    assert not flag.is_set()
    flag.set()
    flag.set()
    assert flag.is_set()
    assert flag.wait(0)


def test_waiting_ends_with_the_time() -> None:
    flag = CancelFlag()
    assert not flag.wait(0.001)
    flag.set()
    assert flag.wait(0.001)


def test_every_thread_that_waits_is_woken() -> None:
    flag = CancelFlag()
    begun = threading.Barrier(5)
    woken: list[bool] = []

    def wait() -> None:
        begun.wait(10)
        woken.append(flag.wait(10))

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait(10)
    flag.set()
    for thread in threads:
        thread.join(10)
    assert woken == [True] * 4
