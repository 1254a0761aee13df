"""Messages to events: order, repeats and values in pieces, without a server."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow import Event, Finished, OmniFlowError, Output, OutputPiece, Reason
from omniflow.assembly import MAX_VALUE_BYTES, EventAssembler
from omniflow.codec.common import crc32c
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2
from tests.clients.fake_server import GraphEvent, chunked_output, failed, finished, output


def numbered(*events: GraphEvent, first: int = 1) -> list[GraphEvent]:
    for sequence, event in enumerate(events, first):
        event.sequence = sequence
    return list(events)


def assemble(events: Iterable[GraphEvent], assembler: EventAssembler | None = None) -> list[Event]:
    assembler = assembler or EventAssembler()
    ready: deque[Event] = deque()
    for event in events:
        assembler.take(event, ready)
    return list(ready)


def announcement(total_bytes: int, transfer_id: int = 1) -> GraphEvent:
    message = value_pb2.Value()
    message.data.chunked.transfer_id = transfer_id
    message.data.chunked.total_bytes = total_bytes
    return GraphEvent(field="data", value=message)


def piece(data: bytes, offset: int, *, last: bool = False, crc: int | None = None, transfer_id: int = 1) -> GraphEvent:
    chunk = tensor_pb2.PayloadChunk(transfer_id=transfer_id, offset_bytes=offset, data=data, last=last, crc32c=crc)
    return GraphEvent(chunk=chunk)


@given(st.data())
def test_any_repeats_after_resumes_change_nothing(data: st.DataObject) -> None:
    log = numbered(
        *(output("text", str(number)) for number in range(5)),
        *chunked_output("data", b"0123456789", 1, piece_bytes=3),
        finished(),
    )
    sent, position = [], 0
    while position < len(log):
        end = data.draw(st.integers(position + 1, len(log)))
        start = data.draw(st.integers(0, position))
        sent += [GraphEvent(heartbeat=graph_event_pb2.Heartbeat()), *log[start:end]]
        position = end
    assert assemble(sent) == assemble(log)


def test_empty_value_in_pieces_is_complete_at_once() -> None:
    for events in ([announcement(0), finished()], [announcement(0), piece(b"", 0, last=True), finished()]):
        outputs = [event for event in assemble(numbered(*events)) if isinstance(event, Output)]
        assert [event.value for event in outputs] == [b""]


def test_empty_value_in_pieces_is_one_empty_piece() -> None:
    pieces = assemble(numbered(announcement(0), finished()), EventAssembler(as_pieces=True))
    assert isinstance(pieces[0], OutputPiece)
    assert (pieces[0].data, pieces[0].is_last) == (b"", True)


def test_checksum_that_fits_is_accepted() -> None:
    (event,) = assemble(numbered(announcement(3), piece(b"abc", 0, last=True, crc=crc32c(b"abc"))))
    assert isinstance(event, Output)
    assert event.value == b"abc"


BROKEN = {
    "gap in the bytes": [announcement(6), piece(b"ab", 0), piece(b"ef", 4)],
    "repeated bytes": [announcement(6), piece(b"ab", 0), piece(b"ab", 0)],
    "too many bytes": [announcement(3), piece(b"abcd", 0)],
    "last piece too early": [announcement(6), piece(b"ab", 0, last=True)],
    "not announced": [piece(b"ab", 0)],
    "announced twice": [announcement(6), announcement(6)],
    "finished too early": [announcement(6), piece(b"ab", 0), finished()],
    "bytes kept elsewhere": [
        GraphEvent(
            value=value_pb2.Value(
                data=tensor_pb2.Payload(remote=tensor_pb2.RemoteRef(endpoint="unix:/x", value_id="v"))
            )
        )
    ],
}


@pytest.mark.parametrize("events", BROKEN.values(), ids=BROKEN.keys())
def test_broken_log_is_a_protocol_violation(events: list[GraphEvent]) -> None:
    with pytest.raises(OmniFlowError) as caught:
        assemble(numbered(*events))
    assert caught.value.reason is Reason.PROTOCOL_VIOLATION


def test_piece_that_does_not_match_its_checksum_is_data_loss() -> None:
    with pytest.raises(OmniFlowError) as caught:
        assemble(numbered(announcement(3), piece(b"abc", 0, last=True, crc=1)))
    assert (caught.value.reason, caught.value.is_stated) == (Reason.CHECKSUM_MISMATCH, False)


def test_value_beyond_the_limit_is_refused_when_announced_and_may_come_in_pieces() -> None:
    with pytest.raises(OmniFlowError, match="chunks=True") as caught:
        assemble(numbered(announcement(MAX_VALUE_BYTES + 1)))
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE
    events = assemble(numbered(announcement(MAX_VALUE_BYTES + 1), piece(b"ab", 0)), EventAssembler(as_pieces=True))
    assert isinstance(events[0], OutputPiece)
    assert not events[0].is_last


def test_refusal_of_a_resume_ends_the_call_whatever_its_sequence() -> None:
    assembler = EventAssembler()
    refusal = failed(Reason.OWNER_LOST, "gone")
    refusal.sequence = 1
    assemble([*numbered(output("text", "a"), output("text", "b")), refusal], assembler)
    assert assembler.is_ended
    assert assembler.failure is not None
    assert assembler.failure.reason is Reason.OWNER_LOST


def test_checkpoint_is_before_a_value_that_is_arriving() -> None:
    assembler = EventAssembler()
    log = numbered(output("text", "a"), announcement(4), output("text", "b"), piece(b"ab", 0), piece(b"cd", 2))
    checkpoints = []
    for event in log:
        assemble([event], assembler)
        checkpoints.append(assembler.checkpoint)
    assert checkpoints == [1, 1, 1, 1, 5]


def test_unknown_finish_reason_is_unspecified() -> None:
    event = finished()
    event.finished.reason = 99  # type: ignore[assignment]
    (ended,) = assemble(numbered(event))
    assert isinstance(ended, Finished)
    assert ended.reason.name == "UNSPECIFIED"


def test_history_results_are_kept() -> None:
    event = finished()
    event.finished.histories.add(field="h", boundary_tokens=3, prefill_tokens=4, history_tokens=9)
    (ended,) = assemble(numbered(event))
    assert isinstance(ended, Finished)
    assert (ended.histories[0].field, ended.histories[0].history_tokens) == ("h", 9)
