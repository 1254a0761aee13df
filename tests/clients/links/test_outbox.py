"""What a link has queued, and how it is joined to messages."""

from __future__ import annotations

import pytest

from omniflow.links import outbox as outbox_module
from omniflow.links.outbox import Outbox
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.errors import OmniFlowError


def drained(outbox: Outbox) -> list[bytes]:
    """Every message that it has."""
    found = []
    while (message := outbox.take()) is not None:
        found.append(message)
    return found


def test_send_wakes_the_transport_and_append_alone_wakes_nobody() -> None:
    outbox, woken = Outbox(), list[int]()
    outbox.attach(lambda: woken.append(1))
    woken.clear()
    outbox.append(b"a")
    assert not woken
    assert outbox.take() is None
    assert not outbox.is_idle
    outbox.send(b"b")
    assert len(woken) == 1
    assert drained(outbox) == [b"ab"]
    assert outbox.is_idle


def test_transport_is_told_of_what_is_queued_when_it_is_attached() -> None:
    outbox, woken = Outbox(), list[int]()
    outbox.send(b"a")
    outbox.attach(lambda: woken.append(1))
    assert len(woken) == 1
    outbox.detach()
    outbox.send(b"b")
    assert len(woken) == 1
    assert drained(outbox) == [b"ab"]


def test_messages_stay_below_the_limit_unless_one_frame_is_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MESSAGE_BYTES", 10)
    outbox = Outbox()
    for frame in (b"1234", b"5678", b"9abc", b"x" * 30, b"d"):
        outbox.append(frame)
    outbox.wake()
    assert drained(outbox) == [b"12345678", b"9abc", b"x" * 30, b"d"]
    assert outbox.message_count == 4


def test_peer_that_never_reads_ends_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MESSAGE_BYTES", 10)
    monkeypatch.setattr(outbox_module, "QUEUE_LIMIT_BYTES", 100)
    outbox = Outbox()
    for _ in range(20):
        outbox.send(b"1234567")
    with pytest.raises(OmniFlowError, match="does not read"):
        outbox.take()


def test_closed_outbox_is_finished_when_everything_was_taken() -> None:
    outbox = Outbox()
    outbox.append(b"last words")
    outbox.close()
    assert not outbox.is_finished
    assert drained(outbox) == [b"last words"]
    assert outbox.is_finished


def test_joined_frames_are_one_message_of_many_items() -> None:
    outbox = Outbox()
    for handle in (7, 8):
        outbox.send(messages.ExecuteRequest(commands=[messages.ExecuteCommand(handle=handle)]).SerializeToString())
    joined = outbox.take()
    assert joined is not None
    assert [command.handle for command in messages.ExecuteRequest.FromString(joined).commands] == [7, 8]
