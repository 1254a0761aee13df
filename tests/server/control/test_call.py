"""One call between its scheduler, its dispatcher and its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.values import Json
from omniflow_core.control.events import ActivationYielded
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.call import CHUNK_BYTES, EVENT_LIMIT_BYTES, Call
from omniflow_server.control.carried import CarriedValue
from tests.server.control.table import Table, call_table, events_of, kinds


@pytest.fixture
async def table() -> AsyncIterator[Table]:
    async with call_table(event_log_size_bytes=2 * CHUNK_BYTES) as made:
        yield made


async def settled() -> None:
    """Lets tasks that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


def remote(value_id: str, size_bytes: int) -> CarriedValue:
    ref = tensor_pb2.RemoteRef(endpoint="unix:/role", value_id=value_id, size_bytes=size_bytes, incarnation_id="role")
    return CarriedValue(message=value_pb2.Value(data=tensor_pb2.Payload(remote=ref)))


def gives(call: Call, activation_id: int, value: CarriedValue, ordinal: int = 0) -> None:
    call.handle(ActivationYielded(activation_id, ordinal, {"b": value}))


async def test_call_logs_its_life_with_gapless_sequences(table: Table) -> None:
    call = table.accept(call_key="k")
    table.yields(call, 1, y="one")
    table.yields(call, 2, y="two")
    table.finishes(call, 1, 1)
    table.finishes(call, 2, 1)
    events = table.read(call)
    assert kinds(events) == ["accepted", "started", "value", "finished"]
    assert [event.sequence for event in events] == [1, 2, 3, 4]
    assert {event.call_key for event in events} == {"k"}
    assert (events[2].node, events[2].field, list(events[2].origin_path)) == ("b", "text", [0, 0, 0])
    assert events[3].finished.usage.activations == 2
    assert table.dispatcher.released == [call.call_id]


async def test_inline_activation_that_ends_within_its_cancel_keeps_the_order(table: Table) -> None:
    """Its end is told while the cancel is being performed; the failure still comes first and the release last."""
    table.dispatcher.ends_at_once = True
    order: list[str] = []
    call = table.accept()
    reader = call.read(2, lambda _: order.append("terminal"))
    release = table.dispatcher.release

    def recording_release(released: Call) -> None:
        order.append("release")
        release(released)

    table.dispatcher.release = recording_release  # type: ignore[method-assign, assignment]
    assert call.cancel(Reason.CALL_CANCELLED, "stop")
    assert order == ["terminal", "release"]
    reader.close()
    assert kinds(table.read(call)) == ["accepted", "started", "failed"]


async def test_value_that_cannot_be_sent_fails_the_call_and_leaves_nothing_running(table: Table) -> None:
    """The commands behind the one that failed are performed: what was to start is started and then stopped."""
    call = table.accept()
    table.yields(call, 1, y="ok", b=Json(float("nan")))
    (failed,) = table.read(call)[2:]
    assert failed.failed.status.message == (
        "The value of node 'a' for output 'data' cannot be sent: json: NaN and infinity are no JSON numbers"
    )
    assert call.error is not None
    assert call.error.reason is Reason.INVALID_OUTPUT
    assert call.error.metadata == {"node": "a", "output": "data"}
    assert table.dispatcher.cancelled == [call.call_id]
    assert table.activations(call) == [(1, "a"), (2, "b")]
    table.stops(call, 1)
    table.stops(call, 2)
    assert table.dispatcher.released == [call.call_id]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("secret"), Reason.INVALID_OUTPUT),
        (OmniFlowError(Reason.INVALID_FIELD, "bad tensor"), Reason.INVALID_OUTPUT),
        (OmniFlowError(Reason.BUFFER_FULL, "no room", retry_after_s=1.0), Reason.BUFFER_FULL),
        (RuntimeError("secret"), Reason.INTERNAL),
    ],
)
async def test_start_that_cannot_be_sent_fails_its_activation(
    table: Table, error: Exception, reason: Reason, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    table.dispatcher.fail_start = error
    call = table.accept()
    assert call.error is not None
    assert (call.error.reason, call.error.metadata["node"]) == (reason, "a")
    assert "secret" not in call.error.message
    assert kinds(table.read(call)) == ["accepted", "started", "failed"]
    assert table.dispatcher.released == [call.call_id]


async def test_event_that_no_client_could_take_fails_the_call(table: Table) -> None:
    call = table.accept()
    table.yields(call, 1, y="x")
    table.yields(call, 2, y="z" * EVENT_LIMIT_BYTES)
    assert call.error is not None
    assert call.error.reason is Reason.MESSAGE_TOO_LARGE
    assert call.error.metadata["output"] == "text"


# --- large outputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
async def test_large_output_is_logged_in_pieces(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    async with call_table() as table:
        call = table.accept()
        reader = table.attach(call)
        gives(call, 1, CarriedValue(native=data[:size]))
        table.finishes(call, 1, 1)
        await settled()
        assert assembled(events_of(reader)[2:-1]) == data[:size]
        assert call.state == graph_service_pb2.CALL_STATE_FINISHED


@pytest.mark.parametrize("pieces", [[], [b"a"], [b"ab", b"c"]])
async def test_output_kept_by_a_replica_is_fetched_in_pieces(table: Table, pieces: list[bytes]) -> None:
    table.dispatcher.payloads["v"] = pieces
    call = table.accept()
    gives(call, 1, remote("v", len(b"".join(pieces))))
    table.finishes(call, 1, 1)
    assert table.dispatcher.released == [], "the replica must keep it until it has been read"
    await settled()
    assert assembled(table.read(call)[2:-1]) == b"".join(pieces)
    assert table.dispatcher.released == [call.call_id]


def assembled(events: list[graph_event_pb2.GraphEvent]) -> bytes:
    announced, *chunks = events
    place = announced.value.data
    if place.WhichOneof("place") in ("inline", None):
        assert not chunks
        return place.inline
    assert [c.chunk.transfer_id for c in chunks] == [place.chunked.transfer_id] * len(chunks)
    data = b"".join(c.chunk.data for c in chunks)
    assert [c.chunk.offset_bytes for c in chunks] == [
        sum(len(d.chunk.data) for d in chunks[:i]) for i in range(len(chunks))
    ]
    assert [c.chunk.last for c in chunks] == [False] * (len(chunks) - 1) + [True]
    assert {c.field for c in chunks} == {announced.field}
    assert len(data) == place.chunked.total_bytes
    return data


async def test_what_follows_a_large_output_waits_its_turn(table: Table) -> None:
    table.dispatcher.payloads["v"] = [b"x" * 10]
    call = table.accept()
    gives(call, 1, remote("v", 10))
    call.append_event(graph_event_pb2.GraphEvent(node="a", progress=graph_event_pb2.Progress(completed=1)))
    table.yields(call, 1, 1, b=b"small", y="")
    table.finishes(call, 1, 2)
    table.finishes(call, 2)
    await settled()
    assert kinds(table.read(call)) == ["accepted", "started", "value", "chunk", "progress", "value", "finished"]


async def test_cancel_ends_a_call_whose_replica_does_not_give_its_output(table: Table) -> None:
    table.dispatcher.payloads["v"] = None
    call = table.accept()
    gives(call, 1, remote("v", 10))
    await settled()
    assert call.cancel(Reason.CALL_CANCELLED, "stop")
    assert kinds(table.read(call)) == ["accepted", "started", "value", "failed"]
    assert table.calls.active_count == 0
    table.stops(call, 1)
    await settled()
    assert table.dispatcher.released == [call.call_id]
    assert len(table.tasks) == 0


@pytest.mark.parametrize("is_finished", [True, False])
async def test_cancel_ends_a_call_whose_reader_does_not_read(table: Table, is_finished: bool) -> None:
    """Also when all its work is done and only its output is not taken: the log is full for ever."""
    call = table.accept()
    gives(call, 1, CarriedValue(native=bytes(5 * CHUNK_BYTES)))
    if is_finished:
        table.finishes(call, 1, 1)
    await settled()
    assert call.log.is_full
    assert call.state == graph_service_pb2.CALL_STATE_RUNNING
    assert call.cancel(Reason.CLIENT_LOST, "nobody is there")
    assert not call.cancel(Reason.CALL_CANCELLED, "again")
    assert kinds(table.read(call))[-1] == "failed"
    assert call.has_ended
    assert table.calls.active_count == 0
    if not is_finished:
        table.stops(call, 1)
    await settled()
    assert table.dispatcher.released == [call.call_id]
    assert len(table.tasks) == 0


async def test_output_that_cannot_be_read_fails_the_call(table: Table) -> None:
    async def lost(ref: tensor_pb2.RemoteRef) -> AsyncIterator[bytes]:
        yield b"x"
        raise OmniFlowError(Reason.UNKNOWN_RESOURCE, "gone")

    table.dispatcher.stream_payload = lost  # type: ignore[method-assign,assignment]
    call = table.accept()
    gives(call, 1, remote("v", 10))
    table.finishes(call, 1, 1)
    await settled()
    assert call.error is not None
    assert (call.error.reason, call.error.metadata) == (Reason.UNKNOWN_RESOURCE, {"node": "a", "output": "data"})
    assert kinds(table.read(call)) == ["accepted", "started", "value", "chunk", "failed"]
    assert table.dispatcher.released == [call.call_id]


async def test_fault_while_an_output_is_read_ends_the_call(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(ref: tensor_pb2.RemoteRef) -> AsyncIterator[bytes]:
        raise RuntimeError("secret")
        yield b""

    table.dispatcher.stream_payload = broken  # type: ignore[method-assign,assignment]
    call = table.accept()
    gives(call, 1, remote("v", 10))
    table.finishes(call, 1, 1)
    await settled()
    assert call.error is not None
    assert call.error.reason is Reason.INTERNAL
    assert "secret" not in call.error.message
    assert "secret" in caplog.text
    assert table.dispatcher.released == [call.call_id]


async def test_progress_after_the_end_is_dropped(table: Table) -> None:
    progress = graph_event_pb2.GraphEvent(node="a", progress=graph_event_pb2.Progress(completed=1))
    table.dispatcher.payloads["v"] = None
    for is_pumping in (False, True):
        call = table.accept()
        if is_pumping:
            gives(call, table.activations(call)[0][0], remote("v", 10))
        call.cancel(Reason.CALL_CANCELLED, "stop")
        call.append_event(progress)
        assert kinds(table.read(call))[-1] == "failed"


# --- backpressure ------------------------------------------------------------------------------------------------------


async def test_acks_are_held_back_while_the_log_is_full(table: Table) -> None:
    call = table.accept()
    reader = table.attach(call)
    table.yields(call, 1, y="go")
    for i in range(200):
        table.yields(call, 2, i, y="z" * 10_000)
    given = [ack for ack in table.dispatcher.host.acks if ack[0] == 2]
    assert call.log.is_full
    assert given[-1][1] < 100
    while reader.take(100_000):
        pass
    assert [ack for ack in table.dispatcher.host.acks if ack[0] == 2][-1] == (2, 192)


async def test_yields_are_acknowledged_when_their_large_outputs_are_in_the_log(table: Table) -> None:
    """A replica that gives faster than its values are fetched is held back by its window."""
    table.dispatcher.payloads["v"] = None
    call = table.accept()
    for i in range(64):
        gives(call, 1, remote("v", 10), i)
    await settled()
    assert table.dispatcher.host.acks == []
    call.cancel(Reason.CALL_CANCELLED, "stop")
    table.dispatcher.payloads["v"] = [b"x" * 10]
    other = table.accept()
    for i in range(64):
        gives(other, 1, remote("v", 10), i)
    assert table.dispatcher.host.acks == []
    reader = table.attach(other)
    while (1, 64) not in table.dispatcher.host.acks:
        await settled()
        while reader.take(1 << 20):
            pass
    assert table.dispatcher.host.acks == [(1, 32), (1, 64)]


async def test_progress_does_not_fill_a_log_that_nobody_reads(table: Table) -> None:
    call = table.accept()
    for i in range(50_000):
        progress = graph_event_pb2.Progress(completed=i, message="x" * 100)
        call.append_event(graph_event_pb2.GraphEvent(node="a", progress=progress))
    assert call.log.kept_bytes < 2 * CHUNK_BYTES + 1_000
    table.dispatcher.payloads["v"] = None
    other = table.accept()
    gives(other, 1, remote("v", 10))
    await settled()
    for i in range(1_000):
        progress = graph_event_pb2.Progress(completed=i)
        other.append_event(graph_event_pb2.GraphEvent(node="ab"[i // 500], progress=progress))
    waiting = [item for item in other._waiting if isinstance(item, graph_event_pb2.GraphEvent)]
    assert [(item.node, item.progress.completed) for item in waiting] == [("a", 499), ("b", 999)]


async def test_held_acks_of_an_ended_activation_go_nowhere(table: Table) -> None:
    call = table.accept()
    reader = table.attach(call)
    table.yields(call, 1, y="go")
    for i in range(200):
        table.yields(call, 2, i, y="z" * 10_000)
    count = len(table.dispatcher.host.acks)
    table.finishes(call, 2, 200)
    while reader.take(100_000):
        pass
    assert [ack for ack in table.dispatcher.host.acks[count:] if ack[0] == 2] == []


# --- inputs are let go -------------------------------------------------------------------------------------------------


async def test_inputs_are_let_go_when_the_call_starts(table: Table) -> None:
    call = table.accept(call_key="k", session="sessions/s", priority=3)
    assert call.spec == graph_service_pb2.CallSpec(call_key="k", session="sessions/s", priority=3)
    (_, command) = table.dispatcher.started[0]
    value = command.fields["x"][0]
    assert isinstance(value, CarriedValue)
    assert value.native == "hello"
