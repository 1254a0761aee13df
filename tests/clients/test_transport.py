"""Backoff, background work and the rule of one event loop."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

import omniflow
from omniflow import OmniFlowError
from omniflow.transport import Background, Backoff, claim_loop, release_loop
from tests.clients.fake_server import FakeServer


def test_backoff_doubles_with_jitter_up_to_its_maximum() -> None:
    backoff = Backoff(now_s=0, timeout_s=1000, rng=random.Random(1))
    ceilings = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    for ceiling in ceilings:
        delay = backoff.next_delay_s(0)
        assert delay is not None
        assert ceiling / 2 <= delay <= ceiling
    assert backoff.attempts == len(ceilings)


def test_backoff_honours_the_servers_hint() -> None:
    assert Backoff(now_s=0, timeout_s=10, rng=random.Random(1)).next_delay_s(0, at_least_s=3) == 3


def test_backoff_ends_when_the_time_is_used_up() -> None:
    backoff = Backoff(now_s=10, timeout_s=1, rng=random.Random(1))
    assert backoff.next_delay_s(10.5) is not None
    assert backoff.next_delay_s(11.0) is None
    assert Backoff(now_s=0, timeout_s=0, rng=random.Random(1)).next_delay_s(0) is None


async def test_background_waits_for_its_work_and_cancels_what_hangs() -> None:
    background, done = Background(), []

    async def short() -> None:
        await asyncio.sleep(0)
        done.append("short")

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            done.append("cancelled")

    background.start(short())
    background.start(endless())
    await background.drain(0.05)
    assert sorted(done) == ["cancelled", "short"]
    await background.drain(0)


async def test_second_loop_is_refused_while_the_first_is_in_use(server: FakeServer) -> None:
    async def connect() -> None:
        async with omniflow.connect(server.target):
            pass

    errors: list[BaseException] = []

    def other_loop() -> None:
        try:
            asyncio.run(connect())
        except OmniFlowError as error:
            errors.append(error)

    async with omniflow.connect(server.target) as client:
        thread = threading.Thread(target=other_loop)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert "one loop per process" in str(errors[0])
        await client.run("echo", text="a")


async def test_loop_is_free_again_after_its_last_client() -> None:
    loop = asyncio.get_running_loop()
    claim_loop()
    claim_loop()
    release_loop(loop)

    async def claim() -> None:
        claim_loop()
        release_loop(asyncio.get_running_loop())

    with pytest.raises(OmniFlowError):
        await asyncio.to_thread(asyncio.run, claim())
    release_loop(loop)
    await asyncio.to_thread(asyncio.run, claim())


def test_constructing_a_client_does_nothing() -> None:
    threads = threading.active_count()
    omniflow.connect("nowhere.invalid:1")
    assert threading.active_count() == threads
