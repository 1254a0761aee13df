"""The event log of a call: bounded, gapless, followed by readers of different speed."""

from __future__ import annotations

import asyncio

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.event_log import EventLog, LogReader

OVERHEAD = 64
"""What the log counts for a fragment beside its bytes."""


def filled(count: int, *, size: int = 36, limit: int = 1_000) -> EventLog:
    """A log of `count` fragments that cost 100 bytes each."""
    log = EventLog(limit)
    for i in range(count):
        log.append(body(i + 1, size))
    return log


def body(sequence: int, size: int = 36) -> bytes:
    return sequence.to_bytes(size, "big")


def reader_of(log: EventLog, after: int = 0) -> LogReader:
    return log.attach(after, lambda _: None)


def sequences(fragments: list[bytes]) -> list[int]:
    return [int.from_bytes(fragment, "big") for fragment in fragments]


def test_log_gives_every_event_once_and_in_order() -> None:
    log = filled(3)
    reader = reader_of(log)
    assert sequences(reader.take(1_000)) == [1, 2, 3]
    assert reader.take(1_000) == []
    log.append(body(4), is_terminal=True)
    assert not reader.is_done
    assert sequences(reader.take(1_000)) == [4]
    assert reader.is_done


def test_log_tells_its_readers_of_each_event() -> None:
    log, told = EventLog(1_000), list[LogReader]()
    reader = log.attach(0, told.append)
    log.append(body(1))
    log.append(body(2))
    assert told == [reader, reader]
    reader.close()
    log.append(body(3))
    assert told == [reader, reader]
    assert log.reader_count == 0


def test_take_stops_at_the_limit_but_gives_at_least_one() -> None:
    reader = reader_of(filled(5))
    assert sequences(reader.take(36 * 2)) == [1, 2]
    assert sequences(reader.take(36 * 3 - 1)) == [3, 4]
    assert sequences(reader.take(1)) == [5]


def test_unread_events_are_never_dropped_and_make_the_log_full() -> None:
    log = filled(10)
    assert not log.is_full
    log.append(body(11))
    assert log.is_full
    assert (log.first_kept, log.last, log.kept_bytes) == (1, 11, 1_100)


def test_read_events_are_trimmed_to_the_limit() -> None:
    log = filled(25)
    reader = reader_of(log)
    reader.take(36 * 25)
    assert not log.is_full
    assert log.kept_bytes == 1_000
    assert (log.first_kept, log.last) == (16, 25)
    for i in range(26, 200):
        log.append(body(i))
        reader.take(36)
        assert log.kept_bytes <= 1_000
    assert (log.first_kept, log.last) == (190, 199)


def test_attach_after_trimmed_events_is_refused_naming_what_is_kept() -> None:
    log = filled(25)
    reader_of(log).take(36 * 25)
    with pytest.raises(OmniFlowError) as caught:
        reader_of(log, 14)
    assert caught.value.reason is Reason.EVENTS_TRIMMED
    assert caught.value.info.metadata == {"first_kept_sequence": "16"}
    assert sequences(reader_of(log, 15).take(10_000)) == list(range(16, 26))
    assert log.reader_count == 2, "the refused reader was kept"


def test_attach_beyond_the_last_event_is_refused() -> None:
    log = filled(3)
    with pytest.raises(OmniFlowError) as caught:
        reader_of(log, 4)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [v.field for v in caught.value.violations] == ["after_sequence"]
    assert reader_of(log, 3).take(100) == []


@pytest.mark.parametrize("after", range(6))
def test_attach_resumes_exactly(after: int) -> None:
    assert sequences(reader_of(filled(5), after).take(10_000)) == list(range(after + 1, 6))


def test_slow_reader_is_told_when_a_faster_one_let_events_be_trimmed() -> None:
    """It must not be given other events in their place."""
    log = filled(5)
    slow, fast = reader_of(log), reader_of(log)
    assert sequences(slow.take(36)) == [1]
    for i in range(6, 30):
        log.append(body(i))
        fast.take(10_000)
    with pytest.raises(OmniFlowError) as caught:
        slow.take(10_000)
    assert caught.value.reason is Reason.EVENTS_TRIMMED
    assert caught.value.info.metadata == {"first_kept_sequence": str(log.first_kept)}


def test_drained_callback_comes_once_when_the_log_is_no_longer_full() -> None:
    log, calls = filled(12), []
    reader = reader_of(log)
    log.when_drained(lambda: calls.append(log.last))
    reader.take(36)
    assert calls == [], "1,100 bytes are unread still"
    reader.take(36)
    assert calls == [12]
    reader.take(36)
    assert calls == [12]


async def test_wait_drained_waits_for_a_reader() -> None:
    log = filled(12)
    reader = reader_of(log)
    await reader_of(filled(2))._log.wait_drained()
    waiting = asyncio.ensure_future(log.wait_drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    reader.take(36 * 2)
    await waiting


async def test_wait_drained_waits_on_when_the_log_is_full_again() -> None:
    log = filled(12)
    reader = reader_of(log)
    waiting = asyncio.ensure_future(log.wait_drained())
    await asyncio.sleep(0)
    reader.take(36 * 2)
    log.append(body(13))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    reader.take(36)
    await waiting


def test_credit_limits_what_is_given_one_event_aside() -> None:
    reader = reader_of(filled(10))
    reader.credit_bytes = 36 * 2
    assert sequences(reader.take(10_000)) == [1, 2]
    assert reader.take(10_000) == []
    assert not reader.has_more
    reader.credit_bytes += 1
    assert sequences(reader.take(10_000)) == [3], "an event larger than the credit goes alone"
    assert reader.credit_bytes == -35
    reader.credit_bytes += 35
    assert not reader.has_more


def test_terminal_event_is_the_last() -> None:
    log = filled(1)
    log.append(body(2), is_terminal=True)
    with pytest.raises(AssertionError, match="nothing follows the terminal event"):
        log.append(body(3))


@pytest.mark.parametrize("seed", range(20))
def test_random_readers_see_a_gapless_part_or_are_told(seed: int) -> None:
    """Appends and reads of three readers in random order; accounting is recomputed after each step."""
    import random

    chance = random.Random(seed)
    log = EventLog(chance.choice([300, 1_000, 5_000]))
    places = {reader_of(log): 0 for _ in range(3)}
    for _ in range(400):
        if chance.random() < 0.4:
            log.append(body(log.last + 1, chance.randint(8, 120)))
            continue
        reader = chance.choice(list(places))
        try:
            got = sequences(reader.take(chance.choice([1, 200, 100_000])))
        except OmniFlowError as error:
            if error.reason is not Reason.EVENTS_TRIMMED or places[reader] + 1 >= log.first_kept:
                raise
            reader.close()
            del places[reader]
            places[reader_of(log, log.first_kept - 1)] = log.first_kept - 1
            continue
        assert got == list(range(places[reader] + 1, places[reader] + 1 + len(got)))
        places[reader] += len(got)
        kept = sum(len(f) + OVERHEAD for f in log._fragments)
        unread = sum(len(f) + OVERHEAD for i, f in enumerate(log._fragments, log.first_kept) if i > log._read_sequence)
        assert (log.kept_bytes, log._unread_bytes) == (kept, unread)
        assert kept <= log._limit_bytes or log.first_kept == log._read_sequence + 1
