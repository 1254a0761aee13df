"""Faulty streams of messages, on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.clock import fast_clock
from tests.support.faults import (
    Delay,
    Drop,
    Duplicate,
    Fault,
    FaultyStream,
    Overtaken,
    ScriptedFaults,
    SeededFaults,
)


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


async def given(count: int, faults: dict[int, Fault]) -> list[int]:
    return [message async for message in FaultyStream(numbers(count), ScriptedFaults(faults))]


@fast_clock
async def test_stream_without_faults_is_itself() -> None:
    assert await given(4, {}) == [0, 1, 2, 3]


@fast_clock
async def test_stream_drops_a_message() -> None:
    assert await given(4, {1: Drop()}) == [0, 2, 3]


@fast_clock
async def test_stream_duplicates_a_message() -> None:
    assert await given(3, {1: Duplicate(3)}) == [0, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("by", "expected"), [(1, [0, 2, 1, 3, 4]), (2, [0, 2, 3, 1, 4]), (9, [0, 2, 3, 4, 1])], ids=["one", "two", "all"]
)
@fast_clock
async def test_stream_lets_a_message_be_overtaken(by: int, expected: list[int]) -> None:
    assert await given(5, {1: Overtaken(by)}) == expected


@fast_clock
async def test_stream_counts_only_messages_that_come_as_overtaking() -> None:
    assert await given(5, {0: Overtaken(1), 1: Drop(), 2: Drop()}) == [3, 0, 4]


@fast_clock
async def test_stream_delays_a_message_and_those_after_it() -> None:
    loop = asyncio.get_running_loop()
    before_s = loop.time()
    times = [loop.time() - before_s async for _ in FaultyStream(numbers(3), ScriptedFaults({1: Delay(2.0)}))]
    assert times == [0.0, 2.0, 2.0]


@fast_clock
async def test_stream_gives_an_overtaken_message_when_the_source_waits_for_it() -> None:
    seen: list[str] = []
    answered = asyncio.Event()

    async def asker() -> AsyncIterator[str]:
        yield "question"
        await answered.wait()
        yield "thanks"

    async for message in FaultyStream(asker(), ScriptedFaults({0: Overtaken(3)}), pause_s=0.5):
        seen.append(message)
        answered.set()
    assert seen == ["question", "thanks"]


@fast_clock
async def test_stream_passes_an_error_on_and_closes_its_source() -> None:
    closed: list[bool] = []

    async def failing() -> AsyncIterator[int]:
        try:
            yield 1
            raise ValueError("broken")
        finally:
            closed.append(True)

    stream = aiter(FaultyStream(failing(), ScriptedFaults({})))
    assert await anext(stream) == 1
    with pytest.raises(ValueError, match="broken"):
        await anext(stream)
    assert closed == [True]


@fast_clock
async def test_seeded_faults_are_the_same_for_the_same_seed() -> None:
    async def run(seed: int) -> tuple[list[int], list[tuple[int, Fault]]]:
        plan = SeededFaults(seed=seed, drop=0.2, duplicate=0.2, reorder=0.2, delay=0.2)
        stream = FaultyStream(numbers(200), plan)
        return [message async for message in stream], stream.history

    first, again, other = await run(7), await run(7), await run(8)
    assert first == again
    assert first != other
    kinds = {type(fault) for _, fault in first[1]}
    assert kinds == {Drop, Duplicate, Overtaken, Delay}


@fast_clock
async def test_seeded_faults_keep_every_message_that_is_not_dropped() -> None:
    plan = SeededFaults(seed=3, drop=0.3, duplicate=0.3, reorder=0.3)
    stream = FaultyStream(numbers(500), plan)
    seen = [message async for message in stream]
    dropped = {position for position, fault in stream.history if isinstance(fault, Drop)}
    doubled = [position for position, fault in stream.history if isinstance(fault, Duplicate)]
    assert sorted(seen) == sorted([*(set(range(500)) - dropped), *doubled])
    assert seen != sorted(seen)
    assert 100 < len(dropped) < 200
