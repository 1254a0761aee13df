"""The clocks of tests."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.clock import START_S, FastClockLoop, ManualClock, StuckError, fast_clock, run_fast


def test_manual_clock_stands_still_until_advanced() -> None:
    clock = ManualClock()
    assert (clock(), clock()) == (START_S, START_S)
    assert clock.advance(2.5) == clock() == START_S + 2.5


def test_manual_clock_refuses_to_go_back() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1.0)
    assert clock() == START_S


@fast_clock
async def test_fast_clock_passes_an_hour_at_once() -> None:
    loop, started = asyncio.get_running_loop(), time.perf_counter()
    before_s = loop.time()
    await asyncio.sleep(3600)
    assert loop.time() == before_s + 3600
    assert time.perf_counter() - started < 1.0


@fast_clock
async def test_fast_clock_wakes_timers_in_their_order() -> None:
    woken: list[float] = []

    async def sleeper(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        woken.append(delay_s)

    async with asyncio.TaskGroup() as tasks:
        for delay_s in (30.0, 0.5, 7200.0, 30.25):
            tasks.create_task(sleeper(delay_s))
    assert woken == [0.5, 30.0, 30.25, 7200.0]


@fast_clock
async def test_fast_clock_does_what_is_ready_before_it_jumps() -> None:
    loop, steps = asyncio.get_running_loop(), 0
    before_s = loop.time()

    async def busy() -> None:
        nonlocal steps
        for _ in range(1000):
            await asyncio.sleep(0)
            steps += 1

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(busy())
        tasks.create_task(asyncio.sleep(5.0))
    assert (steps, loop.time()) == (1000, before_s + 5.0)


@fast_clock
async def test_fast_clock_waits_for_a_thread_of_its_executor() -> None:
    loop = asyncio.get_running_loop()
    before_s = loop.time()
    async with asyncio.timeout(1.0):
        await asyncio.to_thread(time.sleep, 0.05)
    assert loop.time() == before_s


@fast_clock
async def test_fast_clock_stands_still_while_it_is_held() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FastClockLoop)
    before_s, came = loop.time(), loop.create_future()
    timer = loop.call_later(10.0, came.set_result, "timer")
    with loop.holding_time():
        worker = loop.run_in_executor(None, time.sleep, 0.02)
        await worker
        assert (loop.time(), came.done()) == (before_s, False)
    assert await came == "timer"
    timer.cancel()


def test_fast_clock_without_anything_to_wait_for_says_so() -> None:
    with (
        pytest.raises(StuckError, match="nothing has happened"),
        asyncio.Runner(loop_factory=lambda: FastClockLoop(stuck_after_s=0.01)) as runner,
    ):
        runner.run(_wait_for_ever())


async def _wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def test_run_fast_returns_the_result() -> None:
    async def main() -> str:
        await asyncio.sleep(100)
        return "done"

    assert run_fast(main()) == "done"
