"""One call as a stream of events: what it gives, how it fails, what leaving it does."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

import omniflow
from omniflow import (
    Accepted,
    Audio,
    CallResult,
    Code,
    ElementType,
    Event,
    Finished,
    FinishReason,
    Json,
    OmniFlowError,
    Output,
    OutputPiece,
    Progress,
    Reason,
    Sampling,
    Started,
    Tensor,
    Tokens,
    ToolCall,
    ValueType,
)
from omniflow.graph.v1 import graph_event_pb2
from omniflow_core.errors import Violation
from tests.clients.fake_server import (
    FakeCall,
    FakeServer,
    GraphEvent,
    chunked_output,
    failed,
    finished,
    output,
)


async def collect(stream: omniflow.EventStream) -> list[Event]:
    return [event async for event in stream]


async def test_stream_gives_typed_events_in_order(client: omniflow.Client) -> None:
    accepted, started, first, second, ended = await collect(client.stream("echo", text="hi"))
    assert isinstance(accepted, Accepted)
    assert (accepted.call_id, accepted.sequence, accepted.resume_expire_unix_s) == ("call-1", 1, 2e9)
    assert accepted.resume_token not in repr(accepted)
    assert started == Started(2)
    assert first == Output("text", "h", "node", (0,), 3)
    assert second == Output("text", "i", "node", (1,), 4)
    assert isinstance(ended, Finished)
    assert (ended.reason, ended.usage.output_tokens) == (FinishReason.STOP, 2)


async def test_stream_that_has_ended_stays_ended(client: omniflow.Client) -> None:
    stream = client.stream("echo", text="hi")
    await collect(stream)
    assert await collect(stream) == []
    assert await stream.next_batch() == []


async def test_stream_lets_the_rpc_end_by_itself(server: FakeServer, client: omniflow.Client) -> None:
    await collect(client.stream("echo", text="hi"))
    await server.until(lambda: server.active_rpcs == 0)
    assert server.cancels == []


async def test_stream_swallows_heartbeats_and_passes_over_unknown_kinds(
    server: FakeServer, client: omniflow.Client
) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        yield GraphEvent(heartbeat=graph_event_pb2.Heartbeat())
        yield GraphEvent(node="from the future")
        yield GraphEvent(node="n", progress=graph_event_pb2.Progress(completed=1, total=2, message="half"))
        yield GraphEvent(
            node="n", tool_call=graph_event_pb2.ToolCall(tool_call_id="t", name="f", arguments_json='{"a": 1}')
        )
        yield finished()

    server.script("mixed", script)
    events = await collect(client.stream("mixed"))
    assert events[2:4] == [Progress("n", 1, 2, "half", 4), ToolCall("t", "f", '{"a": 1}', "n", 5)]
    assert isinstance(events[3], ToolCall)
    assert events[3].arguments == {"a": 1}
    assert len(events) == 5


async def test_stream_of_a_failed_call_raises_after_its_events(server: FakeServer, client: omniflow.Client) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        yield output("text", "so far")
        yield failed(Reason.INVALID_MEDIA, "not a WAV file", Violation(field="inputs[audio]", description="no RIFF"))

    server.script("broken", script)
    stream = client.stream("broken")
    seen = []
    with pytest.raises(OmniFlowError) as caught:  # what came before the error counts
        async for event in stream:
            seen.append(event)
    assert [type(event) for event in seen] == [Accepted, Started, Output]
    assert (caught.value.reason, caught.value.code) == (Reason.INVALID_MEDIA, Code.INVALID_ARGUMENT)
    assert caught.value.violations[0].field == "inputs[audio]"
    assert caught.value.is_stated
    assert caught.value.__notes__ == ["call call-1"]
    assert await collect(stream) == []
    assert server.cancels == []


async def test_stream_of_an_unknown_graph_raises_typed(server: FakeServer, client: omniflow.Client) -> None:
    with pytest.raises(OmniFlowError) as caught:
        await collect(client.stream("nowhere"))
    assert (caught.value.reason, caught.value.is_stated) == (Reason.UNKNOWN_GRAPH, True)
    assert server.requests == {"StreamCall": 1}


async def test_stream_sends_inputs_options_and_metadata(server: FakeServer) -> None:
    async with omniflow.connect(server.target, tenant="acme", metadata=[("authorization", "Bearer x")]) as client:
        await collect(
            client.stream(
                "graphs/echo",
                inputs={"session": "an input", "timeout_s": None},
                session="s1",
                request_id="r1",
                sampling=Sampling(temperature=0),
                priority=5,
                supersede=True,
                history_step=7,
                heartbeat_interval_s=2,
                detach_grace_s=0.5,
                timeout_s=60,
                key="k",
                text="hi",
                options={"a": [1, None]},
                count=3,
                audio=Audio(b"RIFF", "audio/wav"),
                absent=None,
            )
        )
    spec = server.calls["call-1"].spec
    assert set(spec.inputs) == {"session", "text", "options", "count", "audio"}
    assert spec.inputs["session"].text == "an input"
    assert spec.inputs["count"].json.number_value == 3
    assert spec.inputs["options"].json.struct_value.fields["a"].list_value.values[0].number_value == 1
    assert spec.inputs["audio"].audio.payload.inline == b"RIFF"
    assert (spec.session, spec.request_id, spec.call_key, spec.priority) == ("sessions/s1", "r1", "k", 5)
    assert (spec.supersede, spec.history_step, spec.sampling.HasField("temperature")) == (True, 7, True)
    assert (spec.heartbeat_interval.seconds, spec.detach_grace.nanos) == (2, 500_000_000)
    assert spec.HasField("deadline")
    assert server.metadata[0]["x-omniflow-tenant"] == "acme"
    assert server.metadata[0]["x-omniflow-session"] == "sessions/s1"
    assert server.metadata[0]["authorization"] == "Bearer x"


async def test_stream_draws_a_request_id(server: FakeServer, client: omniflow.Client) -> None:
    await client.run("echo", text="a")
    await client.run("echo", text="a")
    drawn = {call.spec.request_id for call in server.calls.values()}
    assert len(drawn) == 2
    assert all(len(request_id) == 36 for request_id in drawn)


async def test_stream_with_a_repeated_request_id_joins_the_call(client: omniflow.Client) -> None:
    first = await client.run("echo", text="hi", request_id="r")
    second = await client.run("echo", text="hi", request_id="r")
    assert (first.call_id, second.text("text")) == (second.call_id, "hi")


@pytest.mark.parametrize(
    ("value", "field"),
    [(Json(float("nan")), "inputs[bad].json"), ({"a": object()}, "inputs[bad].json")],
)
async def test_input_that_the_wire_cannot_hold_is_named(client: omniflow.Client, value: object, field: str) -> None:
    with pytest.raises(OmniFlowError) as caught:
        client.stream("echo", inputs={"bad": value})  # type: ignore[dict-item]
    assert (caught.value.reason, caught.value.is_stated) == (Reason.INVALID_FIELD, False)
    assert caught.value.violations[0].field == field


async def test_sampling_that_its_field_cannot_hold_is_not_stated(client: omniflow.Client) -> None:
    with pytest.raises(OmniFlowError) as caught:
        client.stream("echo", sampling=Sampling(top_k=-1))
    assert not caught.value.is_stated


async def test_wrong_use_raises_at_once(client: omniflow.Client) -> None:
    with pytest.raises(TypeError, match="twice"):
        client.stream("echo", inputs={"text": "a"}, text="b")
    with pytest.raises(TypeError, match=r"inputs\[x\]"):
        client.stream("echo", x=object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="converse"):
        client.stream("echo", open_inputs=["audio"])
    with pytest.raises(ValueError, match="stream"):
        await client.run("echo", chunks=True)


async def test_numpy_array_goes_as_a_tensor(server: FakeServer, client: omniflow.Client) -> None:
    numpy = pytest.importorskip("numpy")
    await client.run("echo", text="", array=numpy.zeros((2, 3), dtype="float32"))
    tensor = server.calls["call-1"].spec.inputs["array"].tensor
    assert (tensor.spec.element_type, list(tensor.spec.shape), len(tensor.payload.inline)) == (7, [2, 3], 24)


# Results.


async def test_completions_of_one_prompt_are_told_apart(server: FakeServer, client: omniflow.Client) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        yield output("tokens", Tokens((1,), "Hel"))
        yield output("tokens", Tokens((5,), "Good ", completion=1))
        yield output("tokens", Tokens((2,), "lo"))
        yield output("tokens", Tokens((6,), "day", completion=1))
        yield finished()

    server.script("many", script)
    result = await client.run("many")
    assert [result.text("tokens", completion=index) for index in (0, 1, 2)] == ["Hello", "Good day", ""]


async def test_run_collects_outputs(server: FakeServer, client: omniflow.Client) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        yield output("tokens", Tokens((1,), "Hel"))
        yield output("audio", Audio(b"ab", "audio/wav"))
        yield output("tokens", Tokens((2,), "lo"))
        yield output("audio", Audio(b"cd"))
        yield output("one", Json([1]))
        yield finished(output_tokens=2, activations=3)

    server.script("many", script)
    result = await client.run("many")
    assert isinstance(result, CallResult)
    assert result.call_id == "call-1"
    assert result.text("tokens") == "Hello"
    assert result.data("audio") == b"abcd"
    assert result.value("one") == Json([1])
    assert result.values("tokens") == (Tokens((1,), "Hel"), Tokens((2,), "lo"))
    assert result.values("none") == ()
    assert result.text("none") == ""
    assert result.finished.usage.activations == 3
    with pytest.raises(LookupError, match="2 values"):
        result.value("tokens")
    with pytest.raises(LookupError, match="audio, one, tokens"):
        result.value("none")
    with pytest.raises(TypeError, match="no text"):
        result.text("audio")
    with pytest.raises(TypeError, match="without bytes"):
        result.data("tokens")


async def test_run_of_a_failed_call_raises(server: FakeServer, client: omniflow.Client) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        yield failed(Reason.NO_REPLICA, "no replica of llm is ready")

    server.script("down", script)
    with pytest.raises(OmniFlowError, match="llm") as caught:
        await client.run("down")
    assert caught.value.is_stated
    assert server.requests == {"StreamCall": 1}


# Large values.


async def test_large_output_arrives_as_one_value_with_others_in_between(
    server: FakeServer, client: omniflow.Client
) -> None:
    tensor = Tensor(ElementType.UINT8, (1000,), bytes(range(250)) * 4)

    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        first, *pieces = chunked_output("audio", Audio(b"x" * 700, "audio/wav"), 7, piece_bytes=300)
        yield first
        other_first, *other_pieces = chunked_output("tensor", tensor, 8, piece_bytes=600)
        yield other_first
        yield pieces[0]
        yield output("text", "in between")
        for piece in (other_pieces[0], pieces[1], pieces[2], other_pieces[1]):
            yield piece
        yield output("data", b"")
        yield finished()

    server.script("large", script)
    outputs = [event for event in await collect(client.stream("large")) if isinstance(event, Output)]
    assert [(event.field, event.sequence) for event in outputs] == [
        ("text", 6),
        ("audio", 9),
        ("tensor", 10),
        ("data", 11),
    ]
    assert outputs[1].value == Audio(b"x" * 700, "audio/wav")
    assert outputs[2].value == tensor


async def test_large_output_in_pieces(server: FakeServer, client: omniflow.Client) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        for event in chunked_output("tensor", Tensor(ElementType.INT16, (5,), b"0123456789"), 1, piece_bytes=4):
            yield event
        yield finished()

    server.script("large", script)
    pieces = [event for event in await collect(client.stream("large", chunks=True)) if isinstance(event, OutputPiece)]
    assert [(piece.data, piece.offset_bytes, piece.is_last, piece.sequence) for piece in pieces] == [
        (b"0123", 0, False, 4),
        (b"4567", 4, False, 5),
        (b"89", 8, True, 6),
    ]
    assert {(p.field, p.type, p.element_type, p.shape, p.total_bytes) for p in pieces} == {
        ("tensor", ValueType.TENSOR, ElementType.INT16, (5,), 10)
    }


async def test_64_mib_go_in_and_out_with_default_limits(server: FakeServer, client: omniflow.Client) -> None:
    async def script(call: FakeCall) -> AsyncIterator[GraphEvent]:
        value = await call.input("data")
        assert isinstance(value, bytes)
        for event in chunked_output("data", value, 1):
            yield event
        yield finished()

    server.script("mirror", script)
    server.frame_events = 4
    data = bytes(range(256)) * (64 * 4096)
    result = await client.run("mirror", data=data, text="small")
    assert result.value("data") == data
    assert server.requests == {"ConverseCall": 1}
    assert server.largest_message_bytes < 2**20
    assert server.calls["call-1"].spec.inputs["text"].text == "small"


async def test_inputs_up_to_the_inline_limit_need_no_upload(server: FakeServer, client: omniflow.Client) -> None:
    await client.run("echo", text="", data=b"x" * 65_536)
    assert server.requests == {"StreamCall": 1}
    await client.run("echo", text="", data=b"x" * 65_537)
    assert server.requests == {"StreamCall": 1, "ConverseCall": 1}


async def test_many_small_inputs_stay_below_the_message_limit(server: FakeServer, client: omniflow.Client) -> None:
    await client.run("echo", text="", inputs={f"data{index}": b"x" * 60_000 for index in range(100)})
    assert server.requests == {"ConverseCall": 1}
    assert server.largest_message_bytes < 2 * 2**20
    call = server.calls["call-1"]
    await server.until(lambda: bool(call.uploads) and all(len(data) == 60_000 for data in call.uploads.values()))


async def test_upload_that_the_server_refuses_raises_its_error(server: FakeServer, client: omniflow.Client) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        yield failed(Reason.PAYLOAD_TOO_LARGE, "at most 1 GiB")

    server.script("refuses", script)
    with pytest.raises(OmniFlowError) as caught:
        await client.run("refuses", data=bytearray(8 * 2**20))
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE
    await server.until(lambda: server.active_rpcs == 0)


# Leaving.


async def take(stream: omniflow.EventStream, count: int) -> list[Event]:
    return [await anext(stream) for _ in range(count)]


async def test_20_breaks_out_of_a_plain_loop_cancel_20_calls(server: FakeServer, client: omniflow.Client) -> None:
    for _ in range(20):
        async for event in client.stream("endless"):
            if isinstance(event, Output):
                break
    gc.collect()
    await server.until(lambda: len(server.cancels) == 20 and server.active_rpcs == 0)
    assert {request.call_id for request in server.cancels} == set(server.calls)
    assert all(call.is_cancelled for call in server.calls.values())


async def test_stream_dropped_in_a_cycle_is_cancelled_by_the_collector(
    server: FakeServer, client: omniflow.Client
) -> None:
    async def leak() -> None:
        stream = client.stream("endless")
        await take(stream, 3)
        cycle: list[object] = [stream]
        cycle.append(cycle)

    await leak()
    gc.collect()
    await server.until(lambda: len(server.cancels) == 1 and server.active_rpcs == 0)


async def test_leaving_the_block_cancels_before_it_returns(server: FakeServer, client: omniflow.Client) -> None:
    async with client.stream("endless") as events:
        await take(events, 4)
    assert len(server.cancels) == 1
    assert await events.next_batch() == []
    await server.until(lambda: server.active_rpcs == 0)


async def test_exception_in_the_block_cancels(server: FakeServer, client: omniflow.Client) -> None:
    with pytest.raises(ZeroDivisionError):  # raised inside the loop
        async with client.stream("endless") as events:
            async for _ in events:
                raise ZeroDivisionError
    assert len(server.cancels) == 1


async def test_closing_twice_cancels_once(server: FakeServer, client: omniflow.Client) -> None:
    stream = client.stream("endless")
    await take(stream, 3)
    await stream.aclose()
    await stream.aclose()
    assert len(server.cancels) == 1


async def test_cancelled_task_cancels_its_call(server: FakeServer, client: omniflow.Client) -> None:
    async def read() -> None:
        async for _ in client.stream("endless"):
            reading.set()

    reading = asyncio.Event()
    task = asyncio.create_task(read())
    await reading.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.until(lambda: len(server.cancels) == 1 and server.active_rpcs == 0)


async def test_timeout_around_run_cancels_its_call(server: FakeServer, client: omniflow.Client) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.run("endless"), 0.2)
    await server.until(lambda: len(server.cancels) == 1 and server.active_rpcs == 0)


async def test_leaving_before_acceptance_cancels_by_request_id(server: FakeServer, client: omniflow.Client) -> None:
    async with client.stream("endless", request_id="mine"):
        pass
    assert [(request.call_id, request.request_id) for request in server.cancels] == [("", "mine")]


async def test_stream_that_was_never_started_cancels_nothing(server: FakeServer, client: omniflow.Client) -> None:
    await client.stream("endless").aclose()
    client.stream("endless")
    await client.run("echo", text="")
    assert server.cancels == []
    assert server.requests == {"StreamCall": 1}


async def test_leaving_does_not_wait_long_for_a_server_that_hangs(
    server: FakeServer, client: omniflow.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omniflow.transport.CANCEL_TIMEOUT_S", 0.1)
    server.is_silent_on_cancel = True
    stream = client.stream("endless")
    await take(stream, 3)
    async with asyncio.timeout(1):
        await stream.aclose()
    assert len(server.cancels) == 1


async def test_closing_a_stream_under_its_reader_raises_there(server: FakeServer, client: omniflow.Client) -> None:
    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        await asyncio.Event().wait()
        yield finished()

    server.script("silent", script)
    stream = client.stream("silent")
    await take(stream, 2)
    reader = asyncio.create_task(stream.next_batch())
    await asyncio.sleep(0)
    await stream.aclose()
    with pytest.raises(OmniFlowError) as caught:
        await reader
    assert (caught.value.reason, caught.value.is_stated) == (Reason.CALL_CANCELLED, False)


async def test_closing_the_client_cancels_its_calls_and_tells_their_readers(server: FakeServer) -> None:
    async with omniflow.connect(server.target) as client:
        stream = client.stream("endless")
        await take(stream, 3)
        other = client.stream("endless")
        await take(other, 3)
    assert len(server.cancels) == 2
    with pytest.raises(OmniFlowError, match="client was closed"):
        await collect(stream)
    with pytest.raises(RuntimeError, match="closed"):
        await collect(client.stream("echo", text="a"))
    await server.until(lambda: server.active_rpcs == 0)


async def test_client_outside_its_block_says_so() -> None:
    client = omniflow.connect()
    with pytest.raises(RuntimeError, match="async with"):
        client.stream("echo")


async def test_client_is_opened_once(server: FakeServer) -> None:
    client = omniflow.connect(server.target)
    async with client:
        with pytest.raises(RuntimeError, match="another one"):
            await client.__aenter__()


async def test_silence_between_events_is_no_end(server: FakeServer, client: omniflow.Client) -> None:
    gate = asyncio.Event()

    async def script(_: FakeCall) -> AsyncIterator[GraphEvent]:
        await gate.wait()
        yield finished()

    server.script("waits", script)
    stream = client.stream("waits")
    await take(stream, 2)
    reader = asyncio.create_task(collect(stream))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not reader.done()
    gate.set()
    assert [type(event) for event in await reader] == [Finished]


async def test_upload_refused_by_the_rpc_always_raises_the_servers_own_error(
    server: FakeServer, client: omniflow.Client
) -> None:
    for _ in range(20):
        with pytest.raises(OmniFlowError) as caught:
            await client.run("nowhere", data=bytes(4 * 2**20))
        assert (caught.value.reason, caught.value.is_stated) == (Reason.UNKNOWN_GRAPH, True)
    assert server.requests == {"ConverseCall": 20}
