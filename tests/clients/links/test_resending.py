"""Messages are numbered and kept, and go again over the next transport."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniflow.links import outbox as outbox_module
from omniflow.links.outbox import Outbox
from omniflow.links.receipts import TOLD_AFTER_BYTES, TOLD_AFTER_MESSAGES, Receipts
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.errors import OmniFlowError, Reason

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "write", "deliver", "tell", "break"]), st.integers(1, 5)), max_size=60
)


class Line:
    """An outbox, a transport that loses what it holds when it breaks, and a peer."""

    def __init__(self) -> None:
        self.outbox = Outbox(keeps=True)
        self.sent: list[int] = []
        self.held: list[bytes] = []
        self.delivered: list[bytes] = []

    def step(self, what: str, count: int) -> None:
        if what == "send":
            self.sent.append(len(self.sent))
            self.outbox.send(bytes([self.sent[-1]]))
        elif what == "write":
            for _ in range(count):
                message = self.outbox.take()
                if message is not None:
                    self.held.append(message)
        elif what == "deliver":
            self.delivered += self.held[:count]
            del self.held[:count]
        elif what == "tell":
            self.outbox.received(max(0, len(self.delivered) - count + 1))
        else:
            self.held.clear()
            self.outbox.rewind(len(self.delivered))


@settings(deadline=None)
@given(STEPS)
def test_nothing_is_lost_or_doubled_whenever_transports_break(steps: list[Step]) -> None:
    line = Line()
    for what, count in steps:
        line.step(what, count)
    for what in ("break", "write", "deliver"):
        line.step(what, 1_000)
    assert list(b"".join(line.delivered)) == line.sent
    assert line.outbox.is_idle


def taken(*frames: bytes, keeps: bool = True) -> Outbox:
    """An outbox from which each frame was taken as a message."""
    outbox = Outbox(keeps=keeps)
    for frame in frames:
        outbox.send(frame)
        assert outbox.take() == frame
    return outbox


def test_what_the_peer_has_is_not_kept() -> None:
    outbox = taken(b"1", b"2", b"3")
    outbox.received(2)
    assert [outbox.can_rewind(count) for count in (1, 2, 3, 4)] == [False, True, True, False]
    outbox.rewind(2)
    assert (outbox.take(), outbox.take()) == (b"3", None)


def test_late_word_of_the_peer_changes_nothing() -> None:
    outbox = taken(b"1", b"2", b"3")
    outbox.received(2)
    outbox.received(1)
    assert outbox.can_rewind(2)


def test_receipt_for_what_was_never_sent_is_a_violation() -> None:
    with pytest.raises(OmniFlowError) as caught:
        taken(b"1").received(2)
    assert caught.value.reason is Reason.PROTOCOL_VIOLATION


def test_messages_that_go_again_go_first_and_keep_their_bounds() -> None:
    outbox = taken(b"1", b"2")
    outbox.send(b"new")
    outbox.rewind(0)
    outbox.close()
    assert not outbox.is_finished
    assert [outbox.take() for _ in range(3)] == [b"1", b"2", b"new"]
    assert outbox.is_finished
    assert outbox.message_count == 3


def test_link_without_a_name_keeps_nothing() -> None:
    outbox = taken(b"1", keeps=False)
    assert not outbox.can_rewind(1)


@pytest.mark.parametrize("limit", ["KEPT_MESSAGES", "KEPT_BYTES"])
def test_peer_that_never_tells_costs_a_bounded_amount(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, limit, 10)
    outbox = taken(*[b"1"] * 10)
    assert outbox.can_rewind(0)
    outbox.send(b"2")
    outbox.take()
    assert not outbox.can_rewind_all
    assert not outbox.can_rewind(outbox.message_count)
    outbox.received(11)


def told(size_bytes: int) -> int:
    """After how many messages of this size the peer is told."""
    receipts = Receipts()
    while not receipts.add(size_bytes):
        pass
    return receipts.count


def test_peer_is_told_after_64_messages_or_a_mebibyte() -> None:
    assert told(1) == TOLD_AFTER_MESSAGES == 64
    assert told(TOLD_AFTER_BYTES // 4) == 4


def test_receipt_says_the_count_once_in_both_directions() -> None:
    receipts = Receipts()
    assert receipts.frame() == b""
    for _ in range(3):
        receipts.add(10)
    frame = receipts.frame()
    assert messages.ExecuteRequest.FromString(frame).received_messages == 3
    assert messages.ExecuteResponse.FromString(frame).received_messages == 3
    assert receipts.frame() == b""
    assert not receipts.add(10)
