"""From the messages of a call's event log to its events: order, repeats, and values that come in pieces.

No I/O and no clock. Sequence numbers decide: 0 is a heartbeat, one that was seen is a repeat after a resume, the next
one is new, anything else means that an event was lost.

    messages   1 accepted   2 value(chunked, transfer 7, 5 bytes)   3 value "b"   4 chunk 7 "abc"   5 chunk 7 "de"
    events     Accepted(1)                                          Output(3)                       Output(5)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from omniflow.codec.common import ValueHeader, crc32c, header_of, payload_of, value_with_payload
from omniflow.codec.error import status_from_proto
from omniflow.codec.graph import (
    accepted_from_proto,
    finished_from_proto,
    output_from_proto,
    progress_from_proto,
    tool_call_from_proto,
)
from omniflow.events import Accepted, Event, Output, OutputPiece, Started
from omniflow.graph.v1 import graph_event_pb2
from omniflow_core.errors import OmniFlowError, Reason

MAX_VALUE_BYTES = 1024 * 1024 * 1024 - 1
"""Largest value that is put together in memory, the server's own default limit for one."""


@dataclass(slots=True)
class _Transfer:
    """A value whose bytes are arriving."""

    announcement: graph_event_pb2.GraphEvent
    header: ValueHeader
    total_bytes: int
    received_bytes: int = 0
    parts: list[bytes] = field(default_factory=list)


class EventAssembler:
    """Turns the messages of one call into events.

    `as_pieces` gives large values as `OutputPiece`s instead of one `Output`.
    """

    __slots__ = ("_as_pieces", "_transfers", "accepted", "failure", "is_ended", "last_sequence")

    def __init__(self, *, after_sequence: int = 0, as_pieces: bool = False) -> None:
        self._as_pieces = as_pieces
        self._transfers: dict[int, _Transfer] = {}
        self.last_sequence = after_sequence
        """The last event that was taken."""
        self.accepted: Accepted | None = None
        self.failure: OmniFlowError | None = None
        self.is_ended = False
        """The terminal event was taken; `failure` is set when it was no success."""

    @property
    def checkpoint(self) -> int:
        """Resuming after this sequence loses nothing, even while a value is arriving."""
        started = [transfer.announcement.sequence - 1 for transfer in self._transfers.values()]
        return min(started, default=self.last_sequence)

    def take(self, event: graph_event_pb2.GraphEvent, ready: deque[Event]) -> None:
        """Appends what the message completes. Raises OmniFlowError (inferred) when the log is broken."""
        sequence = event.sequence
        if sequence != self.last_sequence + 1:
            if sequence <= self.last_sequence:
                if event.WhichOneof("event") == "failed" and not self.is_ended:
                    self._take_failed(event)  # no repeat: a conversation's stream refuses to carry the call on
                return
            raise _broken(
                f"an event was lost: {sequence} came after {self.last_sequence}",
                expected=self.last_sequence + 1,
                received=sequence,
            )
        self.last_sequence = sequence
        kind = event.WhichOneof("event")
        if kind == "value":
            self._take_value(event, ready)
        elif kind == "chunk":
            self._take_chunk(event, ready)
        elif kind == "progress":
            ready.append(progress_from_proto(event))
        elif kind == "tool_call":
            ready.append(tool_call_from_proto(event))
        elif kind == "accepted":
            self.accepted = accepted_from_proto(event)
            ready.append(self.accepted)
        elif kind == "started":
            ready.append(Started(sequence))
        elif kind == "finished":
            self._take_finished(event, ready)
        elif kind == "failed":
            self._take_failed(event)
        # Kinds from a later version are counted and passed over, as the contract says.

    def _take_value(self, event: graph_event_pb2.GraphEvent, ready: deque[Event]) -> None:
        kind = event.value.WhichOneof("kind")
        if kind in ("text", "tokens"):  # these come by the thousand, and have no payload
            ready.append(output_from_proto(event))
            return
        payload = payload_of(event.value)
        if payload is None or payload.WhichOneof("place") != "chunked":
            ready.append(output_from_proto(event))
            return
        announced = payload.chunked
        if announced.total_bytes > MAX_VALUE_BYTES and not self._as_pieces:
            raise OmniFlowError(
                Reason.PAYLOAD_TOO_LARGE,
                f"output {event.field!r} has {announced.total_bytes} bytes; take it in pieces with chunks=True",
                is_stated=False,
            )
        if announced.transfer_id in self._transfers:
            raise _broken(f"transfer {announced.transfer_id} was announced twice", field=event.field)
        transfer = _Transfer(event, header_of(event.value), announced.total_bytes)
        if announced.total_bytes:
            self._transfers[announced.transfer_id] = transfer
        else:
            ready.append(self._piece(transfer, b"", event.sequence) if self._as_pieces else _whole(transfer, event))

    def _take_chunk(self, event: graph_event_pb2.GraphEvent, ready: deque[Event]) -> None:
        chunk = event.chunk
        transfer = self._transfers.get(chunk.transfer_id)
        if transfer is None:
            if chunk.data:
                raise _broken("a piece of a value that was not announced", transfer_id=chunk.transfer_id)
            return  # the empty last piece of an empty value
        data = chunk.data
        _check_chunk(transfer, event)
        if self._as_pieces:
            ready.append(self._piece(transfer, data, event.sequence))
        else:
            transfer.parts.append(data)
        transfer.received_bytes += len(data)
        if transfer.received_bytes == transfer.total_bytes:
            del self._transfers[chunk.transfer_id]
            if not self._as_pieces:
                ready.append(_whole(transfer, event))

    def _take_finished(self, event: graph_event_pb2.GraphEvent, ready: deque[Event]) -> None:
        if self._transfers:
            fields = sorted({transfer.announcement.field for transfer in self._transfers.values()})
            raise _broken(f"the call finished before all bytes of {', '.join(fields)} had come")
        self.is_ended = True
        ready.append(finished_from_proto(event))

    def _take_failed(self, event: graph_event_pb2.GraphEvent) -> None:
        self.is_ended = True
        self.failure = OmniFlowError.of(status_from_proto(event.failed.status))

    def _piece(self, transfer: _Transfer, data: bytes, sequence: int) -> OutputPiece:
        header, announcement = transfer.header, transfer.announcement
        return OutputPiece(
            field=announcement.field,
            type=header.type,
            mime_type=header.mime_type,
            element_type=header.element_type,
            shape=header.shape,
            data=data,
            offset_bytes=transfer.received_bytes,
            total_bytes=transfer.total_bytes,
            is_last=transfer.received_bytes + len(data) == transfer.total_bytes,
            node=announcement.node,
            origin_path=tuple(announcement.origin_path),
            sequence=sequence,
        )


def _check_chunk(transfer: _Transfer, event: graph_event_pb2.GraphEvent) -> None:
    chunk, field_name = event.chunk, transfer.announcement.field
    end = transfer.received_bytes + len(chunk.data)
    is_in_order = chunk.offset_bytes == transfer.received_bytes
    if not is_in_order or end > transfer.total_bytes or (chunk.last and end < transfer.total_bytes):
        raise _broken(
            f"the pieces of {field_name!r} do not fit together",
            offset_bytes=chunk.offset_bytes,
            received_bytes=transfer.received_bytes,
            total_bytes=transfer.total_bytes,
        )
    if chunk.HasField("crc32c") and crc32c(chunk.data) != chunk.crc32c:
        raise OmniFlowError(
            Reason.CHECKSUM_MISMATCH, f"a piece of {field_name!r} does not match its checksum", is_stated=False
        )


def _whole(transfer: _Transfer, last: graph_event_pb2.GraphEvent) -> Output:
    announcement = transfer.announcement
    return Output(
        announcement.field,
        value_with_payload(announcement.value, b"".join(transfer.parts), path=announcement.field),
        announcement.node,
        tuple(announcement.origin_path),
        last.sequence,
    )


def _broken(message: str, **facts: object) -> OmniFlowError:
    metadata = {key: str(value) for key, value in facts.items()}
    return OmniFlowError(Reason.PROTOCOL_VIOLATION, message, metadata=metadata, is_stated=False)
