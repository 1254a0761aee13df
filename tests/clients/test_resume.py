"""A lost connection: the stream goes on without a lost or doubled event, or fails saying who said so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

import omniflow
from omniflow import Checkpoint, Event, Finished, OmniFlowError, Output, OutputPiece, Reason
from omniflow.calls import is_resumable
from omniflow_core.errors import ErrorInfo
from tests.clients.fake_server import FakeCall, FakeServer, Fault, GraphEvent, chunked_output, echo, finished, output
from tests.clients.tcp_proxy import TcpProxy

RESET = "Received RST_STREAM with error code 2"
CUTS = {
    "unavailable": Fault(code=grpc.StatusCode.UNAVAILABLE, details="Socket closed"),
    "reset by a proxy": Fault(code=grpc.StatusCode.INTERNAL, details=RESET),
    "cancelled by a proxy": Fault(code=grpc.StatusCode.CANCELLED, details="maximum duration"),
    "ended without a terminal event": Fault(),
    "draining": Fault(info=ErrorInfo(reason=Reason.DRAINING, message="stopping", retry_after_s=0.01)),
}


def cut(kind: str, after: int) -> Fault:
    like = CUTS[kind]
    return Fault(after=after, code=like.code, details=like.details, info=like.info)


async def collect(stream: omniflow.EventStream) -> list[Event]:
    return [event async for event in stream]


def text_of(events: list[Event]) -> str:
    return "".join(str(event.value) for event in events if isinstance(event, Output))


@pytest.mark.parametrize("kind", CUTS)
@pytest.mark.parametrize("after", [2, 3, 6])
async def test_cut_stream_is_resumed_without_a_lost_or_doubled_event(
    server: FakeServer, client: omniflow.Client, kind: str, after: int
) -> None:
    server.faults.append(cut(kind, after))
    events = await collect(client.stream("echo", text="hello"))
    assert [event.sequence for event in events] == list(range(1, 9))
    assert text_of(events) == "hello"
    assert server.requests == {"StreamCall": 1, "ResumeCall": 1}
    assert len(server.calls) == 1


@pytest.mark.parametrize("kind", ["unavailable", "draining", "ended without a terminal event"])
async def test_stream_cut_before_acceptance_is_started_again_under_the_same_request_id(
    server: FakeServer, client: omniflow.Client, kind: str
) -> None:
    server.faults.append(cut(kind, 0))
    events = await collect(client.stream("echo", text="hello"))
    assert text_of(events) == "hello"
    assert server.requests == {"StreamCall": 2}
    assert len(server.calls) == 1


async def test_stream_that_is_cut_again_and_again_goes_on(server: FakeServer, client: omniflow.Client) -> None:
    server.faults.extend(cut("unavailable", 1) for _ in range(5))
    events = await collect(client.stream("echo", text="hello"))
    assert [event.sequence for event in events] == list(range(1, 9))
    assert server.requests["ResumeCall"] == 5


async def test_events_that_come_again_are_dropped(server: FakeServer, client: omniflow.Client) -> None:
    server.faults.append(Fault(after=5, repeats=3))
    events = await collect(client.stream("echo", text="hello"))
    assert [event.sequence for event in events] == list(range(1, 9))


async def test_lost_event_is_an_error_after_the_events_before_it(server: FakeServer, client: omniflow.Client) -> None:
    server.faults.append(Fault(after=4, loses=1))
    stream, seen = client.stream("echo", text="hello"), []
    with pytest.raises(OmniFlowError) as caught:  # what came before the error counts
        async for event in stream:
            seen.append(event.sequence)
    assert seen == [1, 2, 3, 4]
    assert (caught.value.reason, caught.value.is_stated) == (Reason.PROTOCOL_VIOLATION, False)
    assert caught.value.info.metadata == {"expected": "5", "received": "6"}
    await server.until(lambda: len(server.cancels) == 1 and server.active_rpcs == 0)


@pytest.mark.parametrize("reason", [Reason.UNKNOWN_CALL, Reason.EVENTS_TRIMMED, Reason.OWNER_LOST])
async def test_resume_that_the_server_refuses_raises_what_it_states(
    server: FakeServer, client: omniflow.Client, reason: Reason
) -> None:
    info = ErrorInfo(reason=reason, message="no", metadata={"first_kept_sequence": "9"})
    server.faults.extend([cut("unavailable", 3), Fault(info=info)])
    with pytest.raises(OmniFlowError) as caught:
        await collect(client.stream("echo", text="hello"))
    assert caught.value.info == info
    assert caught.value.is_stated
    assert server.requests["ResumeCall"] == 1
    # Trimmed events mean that the call still runs for nobody.
    await client.run("echo", text="")
    await server.until(lambda: len(server.cancels) == (1 if reason is Reason.EVENTS_TRIMMED else 0))


async def test_connection_that_does_not_come_back_is_inferred_and_says_how_long(server: FakeServer) -> None:
    async with omniflow.connect(server.target, resume_timeout_s=0.3) as client:
        server.faults.append(cut("unavailable", 3))
        server.faults.extend(cut("unavailable", 0) for _ in range(50))
        with pytest.raises(OmniFlowError, match=r"gave up after \d+ attempts in 0.3 s") as caught:
            await collect(client.stream("echo", text="hello"))
        assert (caught.value.reason, caught.value.is_stated) == (Reason.CONNECTION_LOST, False)
        server.faults.clear()


async def test_resume_timeout_of_a_call_overrides_the_clients(server: FakeServer, client: omniflow.Client) -> None:
    server.faults.append(cut("unavailable", 3))
    with pytest.raises(OmniFlowError) as caught:
        await collect(client.stream("echo", text="hello", resume_timeout_s=0))
    assert caught.value.reason is Reason.CONNECTION_LOST


@pytest.mark.usefixtures("brief_cancels")
async def test_call_with_a_timeout_waits_no_longer_for_its_connection() -> None:
    async with omniflow.connect("127.0.0.1:1", resume_timeout_s=30) as client:
        with pytest.raises(OmniFlowError, match=r"in 0\.2 s") as caught:
            await client.run("echo", text="a", timeout_s=0.2)
        assert caught.value.reason is Reason.CONNECTION_LOST


@pytest.mark.usefixtures("brief_cancels")
async def test_server_that_is_not_there_is_inferred() -> None:
    async with omniflow.connect("127.0.0.1:1", resume_timeout_s=0.1) as client:
        with pytest.raises(OmniFlowError) as caught:
            await client.run("echo", text="a")
    assert (caught.value.reason, caught.value.is_stated) == (Reason.CONNECTION_LOST, False)


async def test_large_output_is_put_together_across_a_cut(server: FakeServer, client: omniflow.Client) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        for event in chunked_output("data", b"0123456789", 1, piece_bytes=2):
            yield event
        yield finished()

    server.script("large", script)
    server.faults.append(cut("unavailable", 5))
    assert (await client.run("large")).value("data") == b"0123456789"


async def test_upload_that_is_cut_is_sent_again(server: FakeServer, client: omniflow.Client) -> None:
    async def script(call: FakeCall) -> AsyncIterator[GraphEvent]:
        value = await call.input("data")
        assert isinstance(value, bytes)
        yield output("size", str(len(value)))
        yield finished()

    server.script("size", script)
    server.faults.append(cut("unavailable", 1))
    result = await client.run("size", data=bytes(3 * 2**20 + 5))
    assert result.text("size") == str(3 * 2**20 + 5)
    assert server.requests == {"ConverseCall": 2}
    assert len(server.calls) == 1


async def test_call_whose_upload_has_arrived_is_resumed_without_it(server: FakeServer, client: omniflow.Client) -> None:
    async def script(call: FakeCall) -> AsyncIterator[GraphEvent]:
        value = await call.input("data")
        assert isinstance(value, bytes)
        for number in range(5):
            yield output("number", str(number))
        yield finished()

    server.script("counts", script)
    server.faults.append(cut("unavailable", 4))
    result = await client.run("counts", data=bytes(2**20))
    assert result.text("number") == "01234"
    assert server.requests == {"ConverseCall": 1, "ResumeCall": 1}


# Real connections.


async def test_reset_connections_lose_nothing(server: FakeServer) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        for number in range(300):
            yield output("number", f"{number} ")
            await asyncio.sleep(0.001)
        yield finished()

    server.script("slow", script)
    async with TcpProxy(server.port) as proxy, omniflow.connect(proxy.target) as client:
        seen = []
        async for event in client.stream("slow"):
            seen.append(event.sequence)
            if event.sequence % 100 == 50:
                proxy.cut()
        assert seen == list(range(1, 304))
        assert proxy.connections >= 4
    assert len(server.calls) == 1


async def test_server_that_is_away_for_a_moment_is_waited_for(server: FakeServer) -> None:
    async with TcpProxy(server.port) as proxy, omniflow.connect(proxy.target) as client:
        stream = client.stream("endless")
        async for event in stream:
            if event.sequence == 10:
                break
        proxy.is_refusing = True
        proxy.cut()
        last = event.sequence

        async def come_back() -> None:
            await asyncio.sleep(0.3)
            proxy.is_refusing = False

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(come_back())
            while last < 200:
                event = await anext(stream)
                assert event.sequence == last + 1
                last = event.sequence
        await stream.aclose()
    assert server.requests["ResumeCall"] >= 1


async def test_server_that_stops_makes_the_client_resume_elsewhere_or_say_so() -> None:
    async with FakeServer() as first:
        first.script("echo", echo)

        async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
            await asyncio.Event().wait()
            yield finished()

        first.script("silent", script)
        async with omniflow.connect(first.target) as client:
            stream = client.stream("silent")
            assert [(await anext(stream)).sequence, (await anext(stream)).sequence] == [1, 2]
            await first._server.stop(0)
            async with FakeServer(port=first.port):
                with pytest.raises(OmniFlowError) as caught:
                    await anext(stream)
            assert (caught.value.reason, caught.value.is_stated) == (Reason.UNKNOWN_CALL, True)


async def test_leaving_while_the_connection_is_away_is_quick(server: FakeServer) -> None:
    async with TcpProxy(server.port) as proxy, omniflow.connect(proxy.target) as client:
        async with client.stream("endless") as events:
            for _ in range(3):
                await anext(events)
            proxy.is_refusing = True
            proxy.cut()
            reader = asyncio.create_task(collect(events))
            await asyncio.sleep(0.05)
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
        async with asyncio.timeout(3):
            await client._connection.background.drain(3)


# Resuming by hand.


async def test_call_is_taken_up_by_another_client(server: FakeServer, client: omniflow.Client) -> None:
    stream = client.stream("endless")
    for _ in range(5):
        await anext(stream)
    await stream.next_batch()
    checkpoint = stream.checkpoint
    assert checkpoint is not None
    async with omniflow.connect(server.target) as other:
        async with other.resume(checkpoint) as resumed:
            assert (await anext(resumed)).sequence == checkpoint.after_sequence + 1
        assert server.cancels[0].call_id == checkpoint.call_id


async def test_resume_by_token_replays_from_a_sequence(server: FakeServer, client: omniflow.Client) -> None:
    result = await client.run("echo", text="hello")
    events = await collect(client.resume(f"token {result.call_id}", 5))
    assert [event.sequence for event in events] == [6, 7, 8]
    assert isinstance(events[-1], Finished)
    everything = await collect(client.resume(f"token {result.call_id}"))
    assert text_of(everything) == "hello"


async def test_resume_past_what_is_kept_is_typed(server: FakeServer, client: omniflow.Client) -> None:
    result = await client.run("echo", text="hello")
    server.calls[result.call_id].first_kept = 4
    with pytest.raises(OmniFlowError) as caught:
        await collect(client.resume(f"token {result.call_id}", 2))
    assert caught.value.reason is Reason.EVENTS_TRIMMED
    assert caught.value.info.metadata["first_kept_sequence"] == "4"


async def test_resume_of_an_unknown_call_is_typed(client: omniflow.Client) -> None:
    with pytest.raises(OmniFlowError) as caught:
        await collect(client.resume("token none"))
    assert (caught.value.reason, caught.value.is_stated) == (Reason.UNKNOWN_CALL, True)


async def test_leaving_a_resumed_stream_without_its_call_id_only_detaches(
    server: FakeServer, client: omniflow.Client
) -> None:
    stream = client.stream("endless")
    for _ in range(5):
        await anext(stream)
    async with client.resume("token call-1", 3) as resumed:
        await anext(resumed)
    assert server.cancels == []
    await stream.aclose()
    assert len(server.cancels) == 1


async def test_checkpoint_while_a_large_value_arrives_is_before_it(server: FakeServer, client: omniflow.Client) -> None:
    gate = asyncio.Event()

    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        pieces = list(chunked_output("data", b"0123456789", 1, piece_bytes=2))
        for event in pieces[:3]:
            yield event
        yield output("text", "between")
        await gate.wait()
        for event in pieces[3:]:
            yield event
        yield finished()

    server.script("large", script)
    stream = client.stream("large")
    while not isinstance(event := await anext(stream), Output):
        pass
    checkpoint = stream.checkpoint
    assert (event.sequence, checkpoint) == (
        6,
        Checkpoint(resume_token="token call-1", after_sequence=2, call_id="call-1"),
    )
    gate.set()
    assert checkpoint is not None
    async with client.resume(checkpoint) as resumed:
        assert [event.value async for event in resumed if isinstance(event, Output)] == ["between", b"0123456789"]
    pieces = [event async for event in client.resume(checkpoint, chunks=True) if isinstance(event, OutputPiece)]
    assert len(pieces) == 5


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (OmniFlowError(Reason.CONNECTION_LOST, "", is_stated=False), True, True),
        (OmniFlowError(Reason.DRAINING, ""), True, True),
        (OmniFlowError(Reason.STORE_UNAVAILABLE, ""), True, True),
        (OmniFlowError(Reason.CALL_CANCELLED, "", is_stated=False), True, True),
        (OmniFlowError(Reason.CALL_CANCELLED, ""), False, False),
        (OmniFlowError(Reason.OWNER_LOST, ""), False, False),
        (OmniFlowError(Reason.NO_REPLICA, ""), False, False),
        (OmniFlowError(Reason.INTERNAL, "", metadata={"grpc_code": "UNKNOWN"}, is_stated=False), False, True),
        (OmniFlowError(Reason.INTERNAL, "", metadata={"grpc_code": "INTERNAL"}, is_stated=False), False, True),
        (OmniFlowError(Reason.MESSAGE_TOO_LARGE, "", is_stated=False), False, False),
        (OmniFlowError(Reason.UNAUTHENTICATED, "", is_stated=False), False, False),
    ],
)
def test_error_is_resumable_by_who_said_so(error: OmniFlowError, before: bool, after: bool) -> None:
    assert is_resumable(error, is_accepted=False) is before
    assert is_resumable(error, is_accepted=True) is after
