"""Who keeps its pages, who is admitted next."""

from __future__ import annotations

import pytest

from omniflow_roles.engines.scheduling.order import AdmissionOrder, FairShare, RunningOrder
from omniflow_roles.engines.scheduling.sequences import LiveSequence, SequenceSpec


def live(arrival: int, *, priority: int = 0, share: str = "", now: int = 0) -> LiveSequence:
    spec = SequenceSpec(sequence_id=arrival, content=(1,), max_tokens=1, priority=priority, share=share)
    return LiveSequence.declared(spec, arrival=arrival, now=now)


def order(shares: FairShare, waiting: list[LiveSequence], *, now: int = 0, aging_steps: int = 10) -> list[int]:
    for sequence in waiting:
        shares.enter(sequence.spec.share)
    return [sequence.arrival for sequence in AdmissionOrder(shares, aging_steps=aging_steps).pick(waiting, now)]


def served_in_turn(waiting: list[LiveSequence]) -> list[int]:
    """Each is served 10 tokens when its turn comes."""
    shares = FairShare()
    for sequence in waiting:
        shares.enter(sequence.spec.share)
    picked = []
    for sequence in AdmissionOrder(shares, aging_steps=10).pick(waiting, 0):
        picked.append(sequence.arrival)
        shares.charge(sequence.spec.share, 10)
    return picked


def test_running_order_gives_up_the_lowest_priority_then_the_latest_arrived() -> None:
    running = RunningOrder()
    sequences = [live(1), live(2, priority=1), live(3), live(4, priority=-1)]
    for sequence in sequences:
        running.add(sequence)
    running.check_integrity()
    assert [running.pop_lowest().arrival for _ in sequences] == [4, 3, 1, 2]


def test_running_order_removes_any_sequence() -> None:
    running = RunningOrder()
    sequences = [live(1), live(2, priority=1), live(3)]
    for sequence in sequences:
        running.add(sequence)
    running.remove(sequences[0])
    assert [sequence.arrival for sequence in running] == [2, 3]
    with pytest.raises((AssertionError, IndexError)):
        running.remove(sequences[0])


def test_higher_priority_is_admitted_first_then_the_earlier_arrival() -> None:
    assert order(FairShare(), [live(1), live(2, priority=1), live(3), live(4, priority=1)]) == [2, 4, 1, 3]


def test_waiting_counts_as_priority() -> None:
    waiting = [live(1, now=0), live(2, priority=1, now=8)]
    assert order(FairShare(), waiting, now=9) == [2, 1]
    assert order(FairShare(), waiting, now=10) == [1, 2]  # 0 + 10 // 10 against 1 + 2 // 10: the earlier arrival
    assert order(FairShare(), waiting, now=18) == [2, 1]


def test_only_steps_of_waiting_count() -> None:
    early = live(1, now=0)
    early.admit((), 1, now=5)
    early.restart(now=100)
    assert early.waited_steps(101) == 6
    assert order(FairShare(), [early, live(2, now=89)], now=101) == [2, 1]


def test_least_served_share_is_admitted_first() -> None:
    shares = FairShare()
    for share in "ab":
        shares.enter(share)
    shares.charge("a", 5)
    assert order(shares, [live(1, share="a"), live(2, share="b"), live(3, share="a")]) == [2, 1, 3]


def test_shares_take_turns_as_they_are_served() -> None:
    waiting = [live(arrival, share="a") for arrival in (1, 2, 3)] + [live(arrival, share="b") for arrival in (4, 5)]
    assert served_in_turn(waiting) == [1, 4, 2, 5, 3]


def test_share_served_at_a_higher_priority_comes_later_at_a_lower_one() -> None:
    assert served_in_turn([live(1, share="a", priority=1), live(2, share="a"), live(3, share="b")]) == [1, 3, 2]


def test_share_that_was_away_starts_level_with_the_least_served() -> None:
    shares = FairShare()
    shares.enter("a")
    shares.enter("b")
    shares.charge("a", 100)
    shares.charge("b", 40)
    shares.enter("late")
    assert shares.served("late") == 40


def test_share_without_sequences_is_forgotten() -> None:
    shares = FairShare()
    shares.enter("a")
    shares.enter("a")
    shares.leave("a")
    shares.check_integrity(["a"])
    shares.leave("a")
    shares.check_integrity([])
