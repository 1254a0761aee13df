"""The accounting of undelivered yields."""

from __future__ import annotations

from omniflow.send_window import SendWindow


def test_window_closes_at_its_number_of_yields() -> None:
    window = SendWindow(2, 1000)
    window.sent(1)
    assert window.is_open
    window.sent(1)
    assert not window.is_open
    window.ack(1)
    assert window.is_open


def test_window_lets_one_yield_go_past_the_byte_credit() -> None:
    window = SendWindow(64, 100)
    window.sent(99)
    assert window.is_open
    window.sent(5000)
    assert not window.is_open
    window.ack(1)
    assert not window.is_open
    window.ack(2)
    assert window.is_open


def test_window_without_credit_has_one_yield_under_way() -> None:
    window = SendWindow(64, 0)
    assert window.is_open
    window.sent(10)
    assert not window.is_open
    window.ack(1)
    assert window.is_open


def test_ack_repeated_or_ahead_changes_nothing_more() -> None:
    window = SendWindow(4, 100)
    window.sent(10)
    window.ack(1)
    window.ack(1)
    window.ack(7)
    assert window.undelivered_bytes == 0
    assert window.next_ordinal == 1
    window.sent(10)
    assert window.undelivered_bytes == 10


def test_resize_corrects_an_estimate() -> None:
    window = SendWindow(4, 100)
    window.sent(10)
    window.sent(10)
    window.resize(1, 200)
    assert window.undelivered_bytes == 210
    window.ack(1)
    window.resize(0, 5)  # delivered already
    assert window.undelivered_bytes == 200


def test_yields_before_the_first_ordinal_count_as_delivered() -> None:
    window = SendWindow(2, 100, first_ordinal=7)
    assert (window.is_open, window.next_ordinal, window.undelivered_bytes) == (True, 7, 0)
    window.sent(10)
    window.sent(10)
    window.resize(7, 20)
    window.ack(7)  # of an earlier attempt
    assert not window.is_open
    window.ack(8)
    assert window.is_open
    assert window.undelivered_bytes == 10
