"""GraphService over a real socket."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import duration_pb2

from omniflow.dsl import Graph
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.values import ElementType, Tensor, ValueType
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.compose import ControlPlane
from omniflow_server.control import call as call_module
from omniflow_server.control import inputs as inputs_module
from tests.roles.running import eventually
from tests.server.control.planes import channel_to, plane, settled
from tests.server.control.table import kinds
from tests.server.rpc.client import (
    GraphClient,
    chunks_of,
    faults_of,
    message,
    payload_in,
    stream_input,
    tensor_announced,
    text,
    texts,
)
from tests.server.rpc.interfaces import INTERFACES, graphs
from tests.support.interfaces import Exclaim, Gate
from tests.support.processes import peak_rss_bytes

SECOND = duration_pb2.Duration(seconds=1)


async def refusal(awaitable: Any) -> OmniFlowError:
    with pytest.raises(OmniFlowError) as caught:
        await awaitable
    return caught.value


# --- StreamCall --------------------------------------------------------------------------------------------------------


async def test_stream_call_gives_the_events_of_a_call(client: GraphClient) -> None:
    events, error = await client.stream("shout", inputs={"text": "hello big world"}, call_key="k").rest()
    assert error is None
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert kinds(events[:2]) == ["accepted", "started"]
    assert texts(events) == ["HELLO!", "BIG!", "WORLD!"]
    assert texts(events, "raw") == ["HELLO", "BIG", "WORLD"]
    assert {event.call_key for event in events} == {"k"}
    assert events[-1].finished.usage.activations == 4
    assert not events[0].accepted.is_replayed


async def test_stream_call_packs_what_is_queued(client: GraphClient) -> None:
    reader = client.stream("count", inputs={"text": "500"})
    events, _ = await reader.rest()
    assert [e.value.tokens.ids[0] for e in events if e.WhichOneof("event") == "value"] == list(range(500))
    assert events[-1].finished.usage.output_tokens == 500
    assert events[-1].finished.reason == 2
    assert reader.message_count < len(events) / 2


async def test_acceptance_of_a_call_that_waits_comes_by_itself(client: GraphClient) -> None:
    reader = client.stream("gate", inputs={"text": "g"})
    await reader.expect("accepted")
    await reader.expect("started")
    assert reader.message_count == 1
    reader.call.cancel()


@pytest.mark.parametrize(
    ("graph", "inputs", "reason", "code"),
    [
        ("fail", {"text": "x"}, Reason.INTERFACE_FAILED, "INTERNAL"),
        ("wrong", {"text": "type"}, Reason.INVALID_OUTPUT, "INTERNAL"),
        ("wrong", {"text": "name"}, Reason.INVALID_OUTPUT, "INTERNAL"),
        ("wrong", {"text": "nan"}, Reason.INVALID_OUTPUT, "INTERNAL"),
        ("wrong", {"text": "surrogate"}, Reason.INVALID_OUTPUT, "INTERNAL"),
        ("wrong", {"text": "large"}, Reason.MESSAGE_TOO_LARGE, "RESOURCE_EXHAUSTED"),
    ],
)
async def test_failed_call_ends_with_one_event_and_the_same_status(
    made: ControlPlane,
    client: GraphClient,
    graph: str,
    inputs: Any,
    reason: Reason,
    code: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    events, error = await client.stream(graph, inputs=inputs).rest()
    assert kinds(events).count("failed") == 1
    assert kinds(events)[-1] == "failed"
    assert error is not None
    assert (error.reason, error.code.name) == (reason, code)
    assert error.info.metadata["node"] == "node"
    assert "secret" not in f"{error}{events}"
    assert events[-1].failed.status.message == error.message
    await settled(made)


@pytest.mark.parametrize(
    ("graph", "fields", "reason", "field"),
    [
        ("nope", {}, Reason.UNKNOWN_GRAPH, "graph"),
        ("shout", {"inputs": {"text": "x", "txet": "x"}}, Reason.UNKNOWN_FIELD, "call.inputs[txet]"),
        ("shout", {}, Reason.MISSING_INPUT, "call.inputs[text]"),
        ("shout", {"inputs": {"text": b"x"}}, Reason.TYPE_MISMATCH, "call.inputs[text]"),
        ("shout", {"inputs": {"text": "x"}, "priority": 1000}, Reason.INVALID_FIELD, "call.priority"),
        ("same", {"inputs": {"tensor": tensor_announced(2**30)}}, Reason.PAYLOAD_TOO_LARGE, "call.inputs[tensor]"),
    ],
)
async def test_call_that_cannot_be_taken_is_refused_naming_the_field(
    made: ControlPlane, client: GraphClient, graph: str, fields: Any, reason: Reason, field: str
) -> None:
    for attempt in (client.stream(graph, **fields).next(), client.run(graph, **fields)):
        error = await refusal(attempt)
        assert (error.reason, error.violations[0].field, error.is_stated) == (reason, field, True)
    assert made.calls.active_count == 0
    assert made.store.used_bytes == 0


async def test_request_id_joins_a_running_call(client: GraphClient) -> None:
    first = client.stream("gate", inputs={"text": "g"}, request_id="r")
    accepted = await first.expect("accepted")
    second = client.stream("gate", inputs={"text": "g"}, request_id="r")
    joined = await second.expect("accepted")
    assert joined.accepted.call_id == accepted.accepted.call_id
    assert joined.accepted.is_replayed
    Gate.gates["g"].set()
    for reader in (first, second):
        events, error = await reader.rest()
        assert (texts(events), error) == (["began", "g"], None)
    assert Gate.began == ["g"]
    again, _ = await client.stream("gate", inputs={"text": "g"}, request_id="r").rest()
    assert texts(again) == ["began", "g"]
    assert Gate.began == ["g"], "an ended call is replayed, not run"
    error = await refusal(client.stream("gate", inputs={"text": "other"}, request_id="r").next())
    assert error.reason is Reason.REQUEST_ID_REUSED


async def test_progress_reaches_the_caller(client: GraphClient) -> None:
    events, _ = await client.stream("steps", inputs={"text": "x"}).rest()
    assert kinds(events) == ["accepted", "started", "progress", "value", "finished"]
    assert (events[2].progress.completed, events[2].progress.total, events[2].node) == (1, 2, "node")


async def test_heartbeats_come_in_silence_and_are_not_logged(client: GraphClient) -> None:
    reader = client.stream("gate", inputs={"text": "g"}, heartbeat_interval=SECOND, call_key="k")
    began_s = time.monotonic()
    for kind in ("accepted", "started", "value"):
        await reader.expect(kind)
    beats = [await reader.expect("heartbeat") for _ in range(2)]
    assert time.monotonic() - began_s > 1.9
    assert [(b.sequence, b.call_key) for b in beats] == [(0, "k"), (0, "k")]
    Gate.gates["g"].set()
    events, _ = await reader.rest()
    assert [e.sequence for e in events] == [4, 5], "heartbeats take no sequence number"


async def test_call_outlives_its_stream_and_ends_after_the_grace(made: ControlPlane, client: GraphClient) -> None:
    reader = client.stream("gate", inputs={"text": "g"}, detach_grace=duration_pb2.Duration(nanos=50_000_000))
    call_id = (await reader.expect("accepted")).accepted.call_id
    await reader.expect("started")
    await reader.expect("value")
    reader.call.cancel()
    call = made.calls.find(call_id, tenant="default")
    await eventually(lambda: not call.log.reader_count)
    assert not call.has_ended
    await eventually(lambda: call.has_ended)
    assert call.error is not None
    assert call.error.reason is Reason.CLIENT_LOST
    await eventually(lambda: Gate.ended == ["g"])


# --- RunCall -----------------------------------------------------------------------------------------------------------


async def test_run_call_collects_and_joins_outputs(client: GraphClient) -> None:
    response = await client.run("shout", inputs={"text": "a b c"})
    assert [v.text for v in response.outputs["text"].values] == ["A!B!C!"]
    assert [v.text for v in response.outputs["raw"].values] == ["ABC"]
    assert response.finished.usage.activations == 4
    tokens = (await client.run("count", inputs={"text": "4"})).outputs["tokens"].values
    assert [(list(t.tokens.ids), t.tokens.text) for t in tokens] == [([0, 1, 2, 3], "0 1 2 3 ")]


@pytest.mark.parametrize("size", [0, 65_536, 262_144, 262_400, 3 * 2**20])
async def test_run_call_returns_payloads_that_streams_carry_in_pieces(client: GraphClient, size: int) -> None:
    (value,) = (await client.run("make", inputs={"text": str(size)})).outputs["data"].values
    assert value.data.inline == bytes(range(256)) * (size // 256)


async def test_run_call_refuses_outputs_that_do_not_fit(made: ControlPlane, client: GraphClient) -> None:
    error = await refusal(client.run("make", inputs={"text": str(5 * 2**20)}))
    assert (error.reason, error.is_stated) == (Reason.MESSAGE_TOO_LARGE, True)
    await settled(made)


async def test_run_call_of_a_failed_call_is_its_error(client: GraphClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    error = await refusal(client.run("fail", inputs={"text": "x"}))
    assert (error.reason, error.info.metadata["node"]) == (Reason.INTERFACE_FAILED, "node")


async def test_run_call_given_up_by_its_client_ends_after_the_grace(made: ControlPlane, client: GraphClient) -> None:
    call = client.stub.RunCall(
        pb.RunCallRequest(
            graph="graphs/gate", call=pb.CallSpec(inputs={"text": text("g")}, detach_grace=duration_pb2.Duration())
        )
    )
    await eventually(lambda: Gate.began == ["g"])
    call.cancel()
    await eventually(lambda: Gate.ended == ["g"])
    await settled(made)


# --- ResumeCall --------------------------------------------------------------------------------------------------------


async def test_resume_is_exact_after_a_cut_at_every_sequence_number(client: GraphClient) -> None:
    whole, _ = await client.stream("shout", inputs={"text": "a b c d"}).rest()
    token = whole[0].accepted.resume_token
    for after in range(len(whole) + 1):
        events, error = await client.resume(token, after).rest()
        assert error is None
        assert events == whole[after:]
    error = await refusal(client.resume(token, len(whole) + 1).next())
    assert (error.reason, error.violations[0].field) == (Reason.INVALID_FIELD, "after_sequence")


async def test_resume_of_a_running_call_goes_on(client: GraphClient) -> None:
    reader = client.stream("gate", inputs={"text": "g"})
    token = (await reader.expect("accepted")).accepted.resume_token
    await reader.expect("started")
    reader.call.cancel()
    resumed = client.resume(token, 2)
    assert (await resumed.expect("value")).sequence == 3
    Gate.gates["g"].set()
    events, error = await resumed.rest()
    assert [e.sequence for e in events] == [4, 5]
    assert error is None


async def test_resume_of_a_failed_call_ends_with_its_error(
    client: GraphClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    whole, first_error = await client.stream("fail", inputs={"text": "x"}).rest()
    for after in range(len(whole) + 1):
        events, error = await client.resume(whole[0].accepted.resume_token, after).rest()
        assert events == whole[after:]
        assert error is not None
        assert first_error is not None
        assert error.info == first_error.info


async def test_resume_past_the_kept_log_says_what_is_kept_and_the_client_starts_cleanly() -> None:
    async with (
        plane(*INTERFACES, graphs=graphs(), event_log_size_bytes=5_000) as made,
        channel_to(made.target) as channel,
    ):
        client = GraphClient(channel)
        whole, _ = await client.stream("count", inputs={"text": "500"}, request_id="r").rest()
        token, call_id = whole[0].accepted.resume_token, whole[0].accepted.call_id
        first_kept = (await client.get(call_id)).first_kept_sequence
        assert first_kept > 1
        with pytest.raises(OmniFlowError) as caught:
            await client.resume(token, first_kept - 2).next()
        assert caught.value.code.name == "OUT_OF_RANGE"
        assert caught.value.reason is Reason.EVENTS_TRIMMED
        assert caught.value.info.metadata == {"first_kept_sequence": str(first_kept)}
        events, error = await client.resume(token, first_kept - 1).rest()
        assert (events, error) == (whole[first_kept - 1 :], None)
        again, error = await client.stream("count", inputs={"text": "500"}).rest()
        assert (len(again), error) == (len(whole), None)


async def test_resume_token_of_another_tenant_or_changed_is_refused(client: GraphClient) -> None:
    whole, _ = await client.stream("shout", inputs={"text": "a"}).rest()
    token = whole[0].accepted.resume_token
    for attempt in (client.of("other").resume(token, 0), client.resume(token[:-3] + "AAA", 0)):
        error = await refusal(attempt.next())
        assert (error.reason, error.code.name) == (Reason.INVALID_RESUME_TOKEN, "PERMISSION_DENIED")


# --- PushInput ---------------------------------------------------------------------------------------------------------


async def test_push_input_takes_ordinals_without_a_gap_and_repeats_without_effect(client: GraphClient) -> None:
    reader = client.stream("listen", open_inputs="text")
    call_id = (await reader.expect("accepted")).accepted.call_id
    assert await client.push(call_id, 1, input=stream_input("text", text("a"))) == 1
    assert await client.push(call_id, 1, input=stream_input("text", text("a"))) == 1
    error = await refusal(client.push(call_id, 3, input=stream_input("text", text("c"))))
    assert error.violations[0].field == "ordinal"
    error = await refusal(client.push(call_id, 2, input=stream_input("nope", text("b"))))
    assert error.violations[0].field == "input.field"
    assert await client.push(call_id, 2, input=stream_input("text", text("b"))) == 2, "what was refused took no ordinal"
    assert await client.push(call_id, 3, input=stream_input("text", is_last=True)) == 3
    events, _ = await reader.rest()
    assert texts(events) == ["a!", "b!"]
    assert await client.push(call_id, 3, input=stream_input("text", is_last=True)) == 3, "also after the end"
    assert (await refusal(client.push(call_id, 4, input=stream_input("text", text("x"))))).reason is Reason.CALL_ENDED


@pytest.mark.parametrize(
    ("addition", "field"),
    [
        ({}, "addition"),
        ({"tool_result": pb.ToolResult(tool_call_id="t")}, "tool_result.tool_call_id"),
        ({"input": stream_input("text")}, "input.value"),
        ({"input": pb.StreamInput(field="text", value=tensor_announced(4))}, "input.value"),
        ({"chunk": chunks_of(b"x")[0]}, "chunk.transfer_id"),
    ],
)
async def test_push_input_that_cannot_be_taken_is_refused(client: GraphClient, addition: Any, field: str) -> None:
    reader = client.stream("listen", open_inputs="text")
    call_id = (await reader.expect("accepted")).accepted.call_id
    error = await refusal(client.push(call_id, 1, **addition))
    assert error.violations[0].field == field
    assert (await refusal(client.of("other").push(call_id, 1, **addition))).reason is Reason.UNKNOWN_CALL
    await client.cancel(call_id)


def echo_of_a_role() -> Graph:
    """Streamed texts to a role that nobody serves."""
    graph = Graph("remote")
    node = graph.node("node", Exclaim, role="nobody")
    graph.input("text", ValueType.TEXT, streaming=True) >> node.inputs.field("text")
    node.output("text") >> graph.output("text", ValueType.TEXT)
    return graph


async def test_push_input_that_nobody_takes_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two inputs are on their way to a node that nobody serves, four wait in line, the next is refused."""
    monkeypatch.setattr(call_module, "INPUT_BACKLOG", 2)
    monkeypatch.setattr(inputs_module, "LINE_VALUES", 4)
    async with plane(*INTERFACES, graphs=[echo_of_a_role()]) as made, channel_to(made.target) as channel:
        client = GraphClient(channel)
        reader = client.stream("remote", open_inputs="text")
        call_id = (await reader.expect("accepted")).accepted.call_id
        for ordinal in range(1, 7):
            assert await client.push(call_id, ordinal, input=stream_input("text", text("a"))) == ordinal
        error = await refusal(client.push(call_id, 7, input=stream_input("text", text("a"))))
        assert (error.reason, error.info.retry_after_s) == (Reason.BUFFER_FULL, 1.0)
        assert (await client.get(call_id)).state == pb.CALL_STATE_RUNNING
        await client.cancel(call_id)


async def test_converse_call_cancels_a_call_whose_inputs_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs that wait do not hold up what comes behind them on the stream."""
    monkeypatch.setattr(call_module, "INPUT_BACKLOG", 2)
    async with plane(*INTERFACES, graphs=[echo_of_a_role(), *graphs()]) as made, channel_to(made.target) as channel:
        async with GraphClient(channel).converse() as stream:
            await stream.start("a", "remote", open_inputs="text")
            for _ in range(50):
                await stream.send(message("a", input=stream_input("text", text("x"))))
            await stream.send(message("a", cancel=pb.Cancel()))
            await stream.start("b", "shout", inputs={"text": "hi"})
            seen = await stream.by_key("a", "b")
        assert kinds(seen["a"])[-1] == "failed"
        assert kinds(seen["b"])[-1] == "finished"


async def test_run_call_of_many_deltas_costs_what_they_weigh(client: GraphClient) -> None:
    """20,000 small yields: joined once, not once each."""
    before = peak_rss_bytes(os.getpid())
    response = await client.run("count", inputs={"text": "20000"})
    assert len(response.outputs["tokens"].values) == 1
    assert peak_rss_bytes(os.getpid()) - before < 60 << 20


async def test_push_input_carries_payloads_in_pieces(client: GraphClient) -> None:
    data = bytes(range(256)) * 4096
    reader = client.stream("same", inputs={"tensor": tensor_announced(len(data))})
    call_id = (await reader.expect("accepted")).accepted.call_id
    for ordinal, chunk in enumerate(chunks_of(data), 1):
        await client.push(call_id, ordinal, chunk=chunk)
    events, _ = await reader.rest()
    assert payload_in(events) == data


# --- GetCall and CancelCall --------------------------------------------------------------------------------------------


async def test_get_call_tells_the_state(made: ControlPlane, client: GraphClient) -> None:
    began_s = time.time()
    first = client.stream("gate", inputs={"text": "g"}, session="sessions/s")
    ids = [(await first.expect("accepted")).accepted.call_id]
    second = client.stream("gate", inputs={"text": "h"}, session="sessions/s")
    ids.append((await second.expect("accepted")).accepted.call_id)
    await eventually(lambda: Gate.began == ["g"])
    running, queued = [await client.get(call_id) for call_id in ids]
    assert (running.state, queued.state) == (pb.CALL_STATE_RUNNING, pb.CALL_STATE_QUEUED)
    assert (running.graph, running.active_activations, running.is_attached) == ("graphs/gate", 1, True)
    assert (queued.last_sequence, queued.first_kept_sequence, queued.active_activations) == (1, 1, 0)
    assert abs(running.create_time.ToNanoseconds() / 1e9 - began_s) < 60
    Gate.gates["g"].set()
    await first.rest()
    assert (await client.get(ids[0])).state == pb.CALL_STATE_FINISHED
    await client.cancel(ids[1])
    await second.rest()
    await settled(made)
    ended = await client.get(ids[1])
    assert (ended.state, ended.is_attached) == (pb.CALL_STATE_FAILED, False)
    assert (await refusal(client.get("nobody"))).reason is Reason.UNKNOWN_CALL


@pytest.mark.parametrize("graph", ["gate", "block"])
async def test_cancel_is_answered_at_once_while_a_node_is_busy(
    made: ControlPlane, client: GraphClient, graph: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The acknowledgement and the terminal event come before cleanup ends; the next call is not held up."""
    caplog.set_level(logging.CRITICAL)
    reader = client.stream(graph, inputs={"text": "deaf"})
    call_id = (await reader.expect("accepted")).accepted.call_id
    await reader.expect("started")
    call = made.calls.find(call_id, tenant="default")
    await eventually(lambda: call.running)
    began_s = time.perf_counter()
    assert await client.cancel(call_id, reason="enough")
    acknowledged_s = time.perf_counter() - began_s
    events, error = await reader.rest()
    ended_s = time.perf_counter() - began_s
    assert acknowledged_s < 0.1
    assert ended_s < 0.2
    assert kinds(events)[-1] == "failed"
    assert error is not None
    assert (error.reason, error.message) == (Reason.CALL_CANCELLED, "The caller cancelled the call: enough")
    began_s = time.perf_counter()
    events, _ = await client.stream("shout", inputs={"text": "next"}).rest()
    assert texts(events) == ["NEXT!"]
    assert time.perf_counter() - began_s < 1
    await settled(made)


async def test_cancel_keeps_what_was_given_before(client: GraphClient) -> None:
    reader = client.stream("gate", inputs={"text": "g"}, request_id="r")
    for kind in ("accepted", "started", "value"):
        await reader.expect(kind)
    assert await client.cancel(request_id="r")
    assert not await client.cancel(request_id="r")
    events, error = await reader.rest()
    assert kinds(events) == ["failed"]
    assert error is not None
    assert error.reason is Reason.CALL_CANCELLED


async def test_cancel_of_unknown_and_ended_calls_is_no_error(client: GraphClient) -> None:
    assert not await client.cancel("nobody")
    assert not await client.cancel(request_id="nobody")
    whole, _ = await client.stream("shout", inputs={"text": "a"}).rest()
    assert not await client.cancel(whole[0].accepted.call_id)
    assert (await refusal(client.cancel())).violations[0].field == "call_id"


async def test_calls_of_tenants_are_apart(client: GraphClient) -> None:
    reader = client.of("acme").stream("gate", inputs={"text": "g"}, request_id="r")
    call_id = (await reader.expect("accepted")).accepted.call_id
    other = client.of("other")
    assert not await other.cancel(call_id)
    assert not await other.cancel(request_id="r")
    assert (await refusal(other.get(call_id))).reason is Reason.UNKNOWN_CALL
    assert await client.of("acme").cancel(call_id)
    error = await refusal(client.of("a b").get(call_id))
    assert (error.reason, error.violations[0].field) == (Reason.INVALID_FIELD, "x-omniflow-tenant")


# --- ConverseCall ------------------------------------------------------------------------------------------------------


async def test_conversation_runs_calls_side_by_side_and_one_after_another(client: GraphClient) -> None:
    async with client.converse() as stream:
        await stream.start("slow", "gate", inputs={"text": "g"})
        await stream.start("one", "shout", inputs={"text": "a b"})
        found: dict[str, list[Any]] = {"slow": [], "one": []}
        while not (found["one"] and kinds(found["one"])[-1] == "finished"):
            event = await stream.next()
            assert event is not None
            found[event.call_key].append(event)
        assert texts(found["one"]) == ["A!", "B!"]
        await stream.start("one", "shout", inputs={"text": "again"})
        Gate.gates["g"].set()
        rest = await stream.by_key("one", "slow")
        assert texts(rest["one"]) == ["AGAIN!"]
        assert texts(found["slow"] + rest["slow"]) == ["began", "g"]
        for events in (found["one"], rest["one"], found["slow"] + rest["slow"]):
            assert [e.sequence for e in events] == list(range(1, len(events) + 1))
        await stream.close()
        assert await stream.rest() == ([], None)


async def test_conversation_ends_with_its_last_call_after_the_client_has_closed(client: GraphClient) -> None:
    """A client may close its side first; the terminal events still come."""
    async with client.converse() as stream:
        await stream.start("a", "gate", inputs={"text": "g"})
        await stream.start("b", "gate", inputs={"text": "h"})
        await stream.close()
        await eventually(lambda: len(Gate.began) == 2)
        Gate.gates["g"].set()
        Gate.gates["h"].set()
        events, error = await stream.rest()
        assert error is None
        assert kinds(events).count("finished") == 2


async def test_failure_of_one_call_leaves_the_others_and_the_stream(
    client: GraphClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with client.converse() as stream:
        await stream.start("good", "gate", inputs={"text": "g"})
        await stream.start("bad", "fail", inputs={"text": "x"})
        await stream.start("refused", "nope", inputs={"text": "x"})
        await stream.start("invalid", "shout", inputs={"text": "x"}, priority=1000)
        await stream.send(message("early", input=stream_input("text", text("x"))))
        Gate.gates["g"].set()
        found = await stream.by_key("good", "bad", "refused", "invalid", "early")
        assert kinds(found["good"])[-1] == "finished"
        assert kinds(found["bad"]) == ["accepted", "started", "value", "failed"]
        assert kinds(found["refused"]) == kinds(found["invalid"]) == kinds(found["early"]) == ["failed"]
        assert found["invalid"][0].failed.status.message.startswith("messages[0].start.call.priority: ")
        await stream.close()
        assert await stream.rest() == ([], None)


async def test_conversation_refuses_a_key_that_is_in_use(made: ControlPlane, client: GraphClient) -> None:
    """Events of two calls under one key could not be told apart, so the stream ends; its calls are only detached."""
    async with client.converse() as stream:
        await stream.start("k", "gate", inputs={"text": "g"})
        call_id = (await stream.expect("accepted")).accepted.call_id
        await stream.start("k", "gate", inputs={"text": "h"})
        _, error = await stream.rest()
        assert error is not None
        assert error.reason is Reason.PROTOCOL_VIOLATION
    assert not made.calls.find(call_id, tenant="default").has_ended
    await client.cancel(call_id)


@pytest.mark.parametrize("key", ["", "other"])
async def test_conversation_refuses_a_key_at_odds_with_the_call(client: GraphClient, key: str) -> None:
    async with client.converse() as stream:
        await stream.start(key, "shout", inputs={"text": "x"}, call_key="k")
        failed = await stream.expect("failed")
        assert failed.call_key == key
        await stream.start("k", "shout", inputs={"text": "x"}, call_key="k")
        assert kinds((await stream.by_key("k"))["k"])[-1] == "finished"


async def test_conversation_takes_inputs_and_pieces_in_order(client: GraphClient) -> None:
    size = 600_000
    data = [bytes([i]) * size for i in range(2)]
    async with client.converse() as stream:
        await stream.start("k", "listen_tensors", open_inputs="tensor")
        await stream.send(
            message("k", input=stream_input("tensor", tensor_announced(size, 1))),
            message("k", input=stream_input("tensor", tensor_announced(size, 2))),
            message("k", input=stream_input("tensor", is_last=True)),
        )
        for chunk in chunks_of(data[1], 2) + chunks_of(data[0], 1):
            await stream.send(message("k", chunk=chunk))
        events = (await stream.by_key("k"))["k"]
        assert kinds(events)[-1] == "finished"
        assert payload_in(events) == b"".join(data)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"input": stream_input("nope", text("x"))}, Reason.UNKNOWN_FIELD),
        ({"input": stream_input("text", tensor_announced(2))}, Reason.TYPE_MISMATCH),
        ({"chunk": chunks_of(b"x", 9)[0]}, Reason.INVALID_FIELD),
        ({"tool_result": pb.ToolResult(tool_call_id="t")}, Reason.INVALID_FIELD),
        ({}, Reason.INVALID_FIELD),
    ],
)
async def test_message_that_cannot_be_taken_fails_its_own_call(
    made: ControlPlane, client: GraphClient, bad: Any, reason: Reason
) -> None:
    async with client.converse() as stream:
        await stream.start("k", "listen", open_inputs="text")
        await stream.start("other", "listen", open_inputs="text")
        await stream.send(message("k", **bad))
        await stream.send(message("other", input=stream_input("text", text("x"), is_last=True)))
        found = await stream.by_key("k", "other")
        assert kinds(found["other"])[-1] == "finished"
        assert kinds(found["k"]) == ["accepted", "started", "failed"]
        assert reason.value in str(found["k"][-1].failed.status.details[0].value)
    await settled(made)


async def test_conversation_cancel_ends_its_call_alone(client: GraphClient) -> None:
    async with client.converse() as stream:
        await stream.start("a", "gate", inputs={"text": "g"})
        await stream.start("b", "gate", inputs={"text": "h"})
        await eventually(lambda: len(Gate.began) == 2)
        await stream.send(message("a", cancel=pb.Cancel(reason="enough")))
        Gate.gates["h"].set()
        found = await stream.by_key("a", "b")
        assert kinds(found["a"])[-1] == "failed"
        assert kinds(found["b"])[-1] == "finished"


async def test_input_that_crosses_the_end_on_the_way_is_no_error(client: GraphClient) -> None:
    async with client.converse() as stream:
        await stream.start("k", "listen", open_inputs="text")
        await stream.send(message("k", input=stream_input("text", text("x"), is_last=True)))
        found = await stream.by_key("k")
        await stream.send(
            message("k", input=stream_input("text", text("late"))),
            message("k", chunk=chunks_of(b"x")[0]),
            message("k", cancel=pb.Cancel()),
            message("k", credit=pb.Credit(size_bytes=1)),
        )
        await stream.start("next", "shout", inputs={"text": "x"})
        assert kinds((await stream.by_key("next"))["next"])[-1] == "finished"
        assert kinds(found["k"])[-1] == "finished"
        await stream.close()
        assert await stream.rest() == ([], None)


async def test_credit_holds_events_of_its_call_back(made: ControlPlane, client: GraphClient) -> None:
    async with client.converse() as stream:
        await stream.start("k", "count", inputs={"text": "1000"})
        await stream.send(message("k", credit=pb.Credit(size_bytes=200)))
        await eventually(lambda: bool(made.calls._records))
        call = next(iter(made.calls._records.values())).call
        await eventually(lambda: call.has_ended)
        await stream.start("other", "shout", inputs={"text": "x"})
        received: dict[str, list[Any]] = {"k": [], "other": []}
        while not (received["other"] and kinds(received["other"])[-1] == "finished"):
            event = await stream.next()
            assert event is not None
            received[event.call_key].append(event)
        held = len(received["k"])
        assert held < 1_003
        await stream.send(message("k", credit=pb.Credit(size_bytes=1_000_000)))
        rest = (await stream.by_key("k"))["k"]
        assert [e.sequence for e in received["k"] + rest] == list(range(1, 1_004))


async def test_resume_in_a_conversation_goes_on_under_the_calls_key(client: GraphClient) -> None:
    async with client.converse() as stream:
        await stream.start("k", "gate", inputs={"text": "g"})
        token = (await stream.expect("accepted")).accepted.resume_token
    async with client.converse() as stream:
        request = pb.ResumeCallRequest(resume_token=token, after_sequence=1)
        await stream.send(message("wrong", resume=request))
        assert (await stream.expect("failed")).call_key == "wrong"
        await stream.send(message("k", resume=request))
        await stream.expect("started")
        Gate.gates["g"].set()
        assert [e.sequence for e in (await stream.by_key("k"))["k"]] == [3, 4, 5]
        await stream.send(message("k", resume=pb.ResumeCallRequest(resume_token="nonsense")))
        assert (await stream.expect("failed")).call_key == "k"
        await stream.close()
        assert await stream.rest() == ([], None)


async def test_conversation_that_is_cut_detaches_its_calls(
    made: ControlPlane, client: GraphClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with client.converse() as stream:
        for key in "ab":
            await stream.start(key, "gate", inputs={"text": key}, detach_grace=duration_pb2.Duration())
        await eventually(lambda: len(Gate.began) == 2)
    await eventually(lambda: sorted(Gate.ended) == ["a", "b"])
    await settled(made)
    assert faults_of(caplog) == []


async def test_client_that_leaves_while_it_is_written_to_is_no_error(
    made: ControlPlane, client: GraphClient, caplog: pytest.LogCaptureFixture
) -> None:
    reader = client.stream("make", inputs={"text": str(64 * 2**20)}, detach_grace=duration_pb2.Duration())
    call_id = (await reader.expect("accepted")).accepted.call_id
    call = made.calls.find(call_id, tenant="default")
    await eventually(lambda: call.log.is_full)
    reader.call.cancel()
    await eventually(lambda: call.has_ended)
    await eventually(lambda: not call.log.reader_count)
    await settled(made)
    assert faults_of(caplog) == []


# --- sizes -------------------------------------------------------------------------------------------------------------


async def test_large_inline_tensor_comes_back(client: GraphClient) -> None:
    tensor = Tensor(ElementType.UINT8, (3_000_000,), bytes(3_000_000))
    events, error = await client.stream("same", inputs={"tensor": tensor}).rest()
    assert error is None
    assert payload_in(events) == tensor.data


async def test_message_over_the_limit_is_refused(client: GraphClient) -> None:
    tensor = Tensor(ElementType.UINT8, (5_000_000,), bytes(5_000_000))
    _, error = await client.stream("same", inputs={"tensor": tensor}).rest()
    assert error is not None
    assert error.reason is Reason.MESSAGE_TOO_LARGE


async def test_calls_are_given_up_when_the_deadline_of_the_rpc_passes(made: ControlPlane, client: GraphClient) -> None:
    """The deadline of an RPC only ends the RPC; the call goes on for its grace."""
    request = pb.StreamCallRequest(graph="graphs/gate", call=pb.CallSpec(inputs={"text": text("g")}, request_id="r"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in client.stub.StreamCall(request, timeout=0.2):
            pass
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert made.calls.active_count == 1
    assert await client.cancel(request_id="r")
    await settled(made)
