"""Several calls over one stream."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from functools import partial

import grpc
import pytest

import omniflow
from omniflow import Accepted, Audio, Event, Finished, Json, OmniFlowError, Output, Reason, ToolCall
from omniflow.graph.v1 import graph_event_pb2
from omniflow_core.errors import ErrorInfo
from tests.clients.fake_server import FakeCall, FakeServer, Fault, GraphEvent, finished, output
from tests.clients.tcp_proxy import TcpProxy


async def collect(call: omniflow.ConversationCall) -> list[Event]:
    return [event async for event in call]


async def until_output(call: omniflow.ConversationCall) -> Output:
    async for event in call:
        if isinstance(event, Output):
            return event
    raise AssertionError("no output")


async def listener(call: FakeCall) -> AsyncIterator[GraphEvent]:
    """Gives back what is pushed to `audio`, until it is closed."""
    seen = 0
    while True:
        await call.until(partial(call.has_pushed_beyond, seen))
        pushed = call.pushed[seen]
        seen += 1
        if pushed.HasField("value"):
            yield output("heard", await call.decoded(pushed.value))
        if pushed.is_last:
            yield finished()


async def tool_user(call: FakeCall) -> AsyncIterator[GraphEvent]:
    """Asks for one tool result and gives it back."""
    yield GraphEvent(tool_call=graph_event_pb2.ToolCall(tool_call_id="t1", name="add", arguments_json="[1, 2]"))
    await call.until(lambda: "t1" in call.tool_results)
    yield output("result", await call.decoded(call.tool_results["t1"]))
    yield finished()


async def test_calls_side_by_side_share_one_stream(server: FakeServer, client: omniflow.Client) -> None:
    async with client.converse() as conversation:
        calls = [await conversation.start("echo", text=f"text {number}") for number in range(10)]
        results = await asyncio.gather(*(call.result() for call in calls))
    assert [result.text("text") for result in results] == [f"text {number}" for number in range(10)]
    assert len({result.call_id for result in results}) == 10
    assert server.requests == {"ConverseCall": 1}
    assert server.cancels == []


async def test_calls_one_after_another_share_one_stream(server: FakeServer, client: omniflow.Client) -> None:
    async with client.converse() as conversation:
        for text in ("a", "bc"):
            call = await conversation.start("echo", text=text)
            events = await collect(call)
            assert isinstance(events[0], Accepted)
            assert isinstance(events[-1], Finished)
            assert call.call_id == events[0].call_id
            assert await collect(call) == []
    await server.until(lambda: server.active_rpcs == 0)
    assert server.requests == {"ConverseCall": 1}


async def test_pushed_values_reach_a_streaming_input(server: FakeServer, client: omniflow.Client) -> None:
    server.script("listener", listener)
    async with client.converse() as conversation:
        call = await conversation.start("listener", open_inputs=["audio"])
        for number in range(3):
            await call.push("audio", Audio(bytes([number]), "audio/L16;rate=16000"))
        assert (await until_output(call)).value == Audio(b"\0", "audio/L16;rate=16000")
        await call.push("audio", Audio(bytes(300_000), "audio/L16;rate=16000"))
        await call.push("audio", last=True)
        result = await call.result()
    assert [len(value.data) for value in result.values("heard") if isinstance(value, Audio)] == [1, 1, 300_000]
    assert list(server.calls["call-1"].spec.open_inputs) == ["audio"]


async def test_push_without_a_value_must_be_the_last(server: FakeServer, client: omniflow.Client) -> None:
    server.script("listener", listener)
    async with client.converse() as conversation:
        call = await conversation.start("listener", open_inputs=["audio"])
        with pytest.raises(TypeError, match="last"):
            await call.push("audio")


async def test_push_waits_while_much_is_queued(server: FakeServer, client: omniflow.Client) -> None:
    server.script("listener", listener)
    async with client.converse() as conversation:
        call = await conversation.start("listener", open_inputs=["data"])
        await call.push("data", bytes(2 * 2**20))
        waiting = asyncio.create_task(call.push("data", b"next"))
        await asyncio.sleep(0)
        assert not waiting.done()
        await waiting
        await call.push("data", last=True)
        heard = (await call.result()).values("heard")
        assert [len(value) for value in heard if isinstance(value, bytes)] == [2 * 2**20, 4]
    assert server.largest_message_bytes < 2**20


async def test_tool_call_is_answered(server: FakeServer, client: omniflow.Client) -> None:
    server.script("tool_user", tool_user)
    async with client.converse() as conversation:
        call = await conversation.start("tool_user")
        async for event in call:
            if isinstance(event, ToolCall):
                await call.tool_result(event.id, {"sum": sum(event.arguments)})
            elif isinstance(event, Output):
                assert event.value == Json({"sum": 3})
    assert server.cancels == []


async def test_iteration_may_be_left_and_taken_up_again(server: FakeServer, client: omniflow.Client) -> None:
    async with client.converse() as conversation:
        call = await conversation.start("echo", text="hello")
        first = await until_output(call)
        second = await until_output(call)
        assert (first.value, second.value, (await call.result()).text("text")) == ("h", "e", "llo")
    assert server.cancels == []


async def test_large_inputs_are_uploaded_in_the_conversation(server: FakeServer, client: omniflow.Client) -> None:
    async def script(call: FakeCall) -> AsyncIterator[GraphEvent]:
        value = await call.input("data")
        assert isinstance(value, bytes)
        yield output("size", str(len(value)))
        yield finished()

    server.script("size", script)
    async with client.converse() as conversation:
        large = await conversation.start("size", data=bytes(16 * 2**20))
        small = await conversation.start("echo", text="quick")
        assert (await small.result()).text("text") == "quick"
        assert (await large.result()).text("size") == str(16 * 2**20)
    assert server.largest_message_bytes < 2**20


async def test_failed_call_raises_and_the_conversation_goes_on(server: FakeServer, client: omniflow.Client) -> None:
    async with client.converse() as conversation:
        first = await conversation.start("endless")
        await until_output(first)
        await first.cancel("enough")
        with pytest.raises(OmniFlowError) as caught:
            await collect(first)
        assert (caught.value.reason, caught.value.is_stated) == (Reason.CALL_CANCELLED, True)
        await first.cancel()
        with pytest.raises(OmniFlowError) as ended:
            await first.push("audio", b"late")
        assert (ended.value.reason, ended.value.is_stated) == (Reason.CALL_ENDED, False)
        assert (await (await conversation.start("echo", text="a")).result()).text("text") == "a"
    assert server.cancels == []
    assert server.requests == {"ConverseCall": 1}


async def test_key_of_a_running_call_is_refused(server: FakeServer, client: omniflow.Client) -> None:
    async with client.converse() as conversation:
        call = await conversation.start("endless", key="mine")
        with pytest.raises(ValueError, match="mine"):
            await conversation.start("endless", key="mine")
        assert call.key == "mine"
        await call.cancel()
        with pytest.raises(OmniFlowError):
            await collect(call)
        assert (await (await conversation.start("echo", text="a", key="mine")).result()).text("text") == "a"


async def test_leaving_the_conversation_cancels_its_calls(server: FakeServer, client: omniflow.Client) -> None:
    async with client.converse() as conversation:
        running = [await conversation.start("endless") for _ in range(3)]
        for call in running:
            await until_output(call)
    assert {request.call_id for request in server.cancels} == {"call-1", "call-2", "call-3"}
    await server.until(lambda: server.active_rpcs == 0)
    with pytest.raises(RuntimeError, match="block"):
        await conversation.start("echo", text="a")


async def test_dropped_call_is_cancelled(server: FakeServer, client: omniflow.Client) -> None:
    async with client.converse() as conversation:
        call = await conversation.start("endless")
        await until_output(call)
        del call
        gc.collect()
        await server.until(lambda: len(server.cancels) == 1)
        assert (await (await conversation.start("echo", text="a")).result()).text("text") == "a"


async def test_cancelled_task_cancels_the_conversations_calls(server: FakeServer, client: omniflow.Client) -> None:
    async def talk() -> None:
        async with client.converse() as conversation:
            call = await conversation.start("endless")
            await until_output(call)
            reading.set()
            await collect(call)

    reading = asyncio.Event()
    task = asyncio.create_task(talk())
    await reading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.until(lambda: len(server.cancels) == 1 and server.active_rpcs == 0)


async def test_waiting_for_an_event_with_a_timeout_does_not_leave_the_call(
    server: FakeServer, client: omniflow.Client
) -> None:
    server.script("listener", listener)
    async with client.converse() as conversation:
        call = await conversation.start("listener", open_inputs=["text"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_output(call), 0.05)
        await call.push("text", "still here", last=True)
        assert (await call.result()).text("heard") == "still here"
    assert server.cancels == []


async def test_closing_the_client_ends_its_conversations(server: FakeServer) -> None:
    async with omniflow.connect(server.target) as client:
        conversation = client.converse()
        await conversation.__aenter__()
        call = await conversation.start("endless")
        await until_output(call)
    with pytest.raises(OmniFlowError, match="client was closed"):
        await collect(call)
    assert len(server.cancels) == 1
    await conversation.__aexit__(None, None, None)


async def test_window_is_granted_and_renewed(server: FakeServer, client: omniflow.Client) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        for _number in range(40):
            yield output("data", bytes(1000))
        yield finished()

    server.script("bytes", script)
    server.frame_events = 1
    async with client.converse(window_bytes=10_000) as conversation:
        call = await conversation.start("bytes")
        assert len((await call.result()).data("data")) == 40_000
    granted = server.calls["call-1"].credits
    assert granted[0] == 10_000
    assert sum(granted[1:]) >= 30_000
    assert min(granted[1:]) >= 5_000


async def test_session_of_a_conversation_is_in_its_metadata(server: FakeServer, client: omniflow.Client) -> None:
    async with client.converse(session="s1") as conversation:
        await (await conversation.start("echo", text="a", session="s1")).result()
    assert server.metadata[0]["x-omniflow-session"] == "sessions/s1"
    assert server.calls["call-1"].spec.session == "sessions/s1"


# A lost stream.


async def test_cut_conversation_resumes_every_call(server: FakeServer) -> None:
    async def script(call: FakeCall) -> AsyncIterator[GraphEvent]:
        for number in range(200):
            yield output("number", f"{number} ")
            await asyncio.sleep(0.001)
        yield finished()

    server.script("slow", script)
    async with TcpProxy(server.port) as proxy, omniflow.connect(proxy.target) as client:
        async with client.converse() as conversation:
            calls = [await conversation.start("slow") for _ in range(5)]

            async def read(call: omniflow.ConversationCall, cut_at: int) -> list[int]:
                seen = []
                async for event in call:
                    seen.append(event.sequence)
                    if event.sequence == cut_at:
                        proxy.cut()
                return seen

            seen = await asyncio.gather(*(read(call, 40 * number) for number, call in enumerate(calls)))
        assert seen == [list(range(1, 204))] * 5
    assert len(server.calls) == 5
    assert server.requests["resume"] >= 5
    assert server.cancels == []


async def test_call_that_was_not_accepted_is_started_again(server: FakeServer, client: omniflow.Client) -> None:
    server.faults.append(Fault(code=grpc.StatusCode.UNAVAILABLE))
    async with client.converse() as conversation:
        call = await conversation.start("echo", text="hello")
        assert (await call.result()).text("text") == "hello"
    assert len(server.calls) == 1
    assert server.requests["ConverseCall"] == 2


async def test_call_with_pushed_values_ends_when_its_stream_is_lost(server: FakeServer) -> None:
    server.script("listener", listener)
    async with (
        TcpProxy(server.port) as proxy,
        omniflow.connect(proxy.target) as client,
        client.converse() as conversation,
    ):
        call = await conversation.start("listener", open_inputs=["audio"])
        await call.push("audio", b"one")
        await until_output(call)
        other = await conversation.start("endless")
        await until_output(other)
        proxy.cut()
        with pytest.raises(OmniFlowError, match="pushed") as caught:
            await collect(call)
        assert (caught.value.reason, caught.value.is_stated) == (Reason.CONNECTION_LOST, False)
        await until_output(other)
        await server.until(lambda: len(server.cancels) == 1)
        assert server.cancels[0].call_id == "call-1"


@pytest.mark.usefixtures("brief_cancels")
async def test_conversation_that_does_not_come_back_says_how_long(server: FakeServer) -> None:
    async with omniflow.connect(server.target, resume_timeout_s=0.2) as client, client.converse() as conversation:
        call = await conversation.start("endless")
        await until_output(call)
        server.faults.extend(Fault(code=grpc.StatusCode.UNAVAILABLE) for _ in range(50))
        await server._server.stop(0)
        with pytest.raises(OmniFlowError, match="gave up") as caught:
            await collect(call)
        assert (caught.value.reason, caught.value.is_stated) == (Reason.CONNECTION_LOST, False)


async def test_conversation_that_the_server_refuses_fails_its_calls(
    server: FakeServer, client: omniflow.Client
) -> None:
    server.faults.append(Fault(info=ErrorInfo(reason=Reason.UNAUTHENTICATED, message="who are you?")))
    async with client.converse() as conversation:
        call = await conversation.start("echo", text="a")
        with pytest.raises(OmniFlowError, match="who") as caught:
            await collect(call)
        assert caught.value.is_stated
        with pytest.raises(OmniFlowError, match="who"):
            await conversation.start("echo", text="b")


@pytest.mark.parametrize("reason", [Reason.OWNER_LOST, Reason.EVENTS_TRIMMED])
async def test_resume_that_the_server_refuses_ends_only_its_call(server: FakeServer, reason: Reason) -> None:
    async with (
        TcpProxy(server.port) as proxy,
        omniflow.connect(proxy.target) as client,
        client.converse() as conversation,
    ):
        lost = await conversation.start("endless")
        await until_output(lost)
        other = await conversation.start("endless")
        await until_output(other)
        server.refused_resumes["call-1"] = ErrorInfo(reason=reason, message="no")
        proxy.cut()
        with pytest.raises(OmniFlowError) as caught:
            await collect(lost)
        assert (caught.value.reason, caught.value.is_stated) == (reason, True)
        await until_output(other)
        # Trimmed events mean that the call still runs for nobody.
        await server.until(lambda: len(server.cancels) == (1 if reason is Reason.EVENTS_TRIMMED else 0))


async def test_idle_conversation_survives_a_lost_connection(server: FakeServer) -> None:
    async with (
        TcpProxy(server.port) as proxy,
        omniflow.connect(proxy.target) as client,
        client.converse() as conversation,
    ):
        await (await conversation.start("echo", text="a")).result()
        proxy.cut()
        await server.until(lambda: server.active_rpcs == 0)
        assert (await (await conversation.start("echo", text="b")).result()).text("text") == "b"
    assert server.cancels == []


async def test_lost_event_fails_only_its_call(server: FakeServer, client: omniflow.Client) -> None:
    server.faults.append(Fault(after=4, loses=1))
    async with client.converse() as conversation:
        broken = await conversation.start("echo", text="hello")
        with pytest.raises(OmniFlowError) as caught:
            await collect(broken)
        assert (caught.value.reason, caught.value.is_stated) == (Reason.PROTOCOL_VIOLATION, False)
        assert (await (await conversation.start("echo", text="a")).result()).text("text") == "a"
    assert len(server.cancels) == 1
