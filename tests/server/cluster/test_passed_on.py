"""Calls that were passed on: one terminal event each, whatever breaks, and nothing left of them in between."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import grpc
import grpc.aio
import pytest
from google.protobuf import duration_pb2

from omniflow.codec.error import status_from_proto
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server import compose
from omniflow_server.rpc import forwarding, peer_calls
from tests.roles.running import eventually
from tests.server.cluster.clusters import SESSION, Member, cluster, gone, own, owners_streams
from tests.server.control.planes import spec_of
from tests.server.rpc.client import Conversation, Event, is_terminal, message, stream_input, text, texts
from tests.support.interfaces import Gate

pytestmark = pytest.mark.integration  # not for what it starts, but for leases that it waits for

LATE: dict[str, dict[str, Any]] = {
    "credit": {"credit": pb.Credit(size_bytes=10)},
    "cancel": {"cancel": pb.Cancel()},
    "input": {"input": stream_input("text", text("x"))},
}


async def _all(talk: Conversation) -> list[Event]:
    """What comes until the stream ends in order."""
    await talk.close()
    events, error = await talk.rest()
    assert error is None
    return events


async def _draining(member: Member) -> asyncio.Task[None]:
    """A drain that has come to where it waits for what was passed on."""
    passing = member.plane.forwarding
    with mock.patch.object(passing, "wait_idle", wraps=passing.wait_idle) as waiting:
        drain = asyncio.create_task(compose.drain(member.plane, 20.0))
        await eventually(lambda: waiting.called)
    return drain


# --- what is said too late, or is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("is_passed_on", [True, False])
async def test_message_for_a_call_that_has_ended_is_dropped(late: str, is_passed_on: bool) -> None:
    async with cluster() as (a, b):
        await own(a)
        async with (b if is_passed_on else a).client.converse() as talk:
            await talk.start("k", "listen", open_inputs="text", session=SESSION)
            await talk.send(message("k", input=stream_input("text", text("hi"), is_last=True)))
            assert texts((await talk.by_key("k"))["k"]) == ["hi!"]
            await talk.send(message("k", **LATE[late]))
            await talk.start("other", "count", inputs={"text": "1"})
            assert {event.call_key for event in await _all(talk)} == {"other"}


@pytest.mark.parametrize("is_passed_on", [True, False])
async def test_message_of_no_kind_ends_its_call_once(is_passed_on: bool) -> None:
    async with cluster() as (a, b):
        await own(a)
        async with (b if is_passed_on else a).client.converse() as talk:
            await talk.start("k", "gate", inputs={"text": "x"}, session=SESSION)
            await eventually(lambda: Gate.began == ["x"])
            await talk.send(message("k"))
            await eventually(lambda: a.plane.calls.active_count == 0)
            await talk.send(message("k", cancel=pb.Cancel(reason="stop")))
            events = await _all(talk)
        assert [is_terminal(event) for event in events] == [False] * (len(events) - 1) + [True]
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert status_from_proto(events[-1].failed.status).reason is Reason.INVALID_FIELD


async def test_call_whose_owner_takes_no_messages_ends_once_with_a_full_buffer() -> None:
    async with cluster() as (a, b):
        await own(a)
        with mock.patch.object(peer_calls, "UNSENT_LIMIT", 8), owners_streams(b) as streams:
            async with b.client.converse() as talk:
                await talk.start("k", "listen", open_inputs="text", session=SESSION)
                await talk.expect("accepted")
                await talk.expect("started")
                streams[0].takes.clear()
                for _ in range(20):
                    await talk.send(message("k", input=stream_input("text", text("x"))))
                await talk.send(message("k", cancel=pb.Cancel()))
                (failed,) = await _all(talk)
        error = status_from_proto(failed.failed.status)
        assert (failed.call_key, failed.sequence, error.reason) == ("k", 3, Reason.BUFFER_FULL)
        assert error.retry_after_s == 1.0
        assert b.plane.forwarding._active == 0


async def test_cancel_goes_to_its_owner_whatever_waits() -> None:
    async with cluster() as (a, b):
        await own(a)
        with mock.patch.object(peer_calls, "UNSENT_LIMIT", 8), owners_streams(b) as streams:
            async with b.client.converse() as talk:
                await talk.start("k", "listen", open_inputs="text", session=SESSION)
                await talk.expect("accepted")
                streams[0].takes.clear()
                addition = message("k", input=stream_input("text", text("x")))
                await talk.send(addition)
                await eventually(lambda: streams[0].is_stuck)
                await talk.send(*[addition] * 8)
                await talk.send(message("k", cancel=pb.Cancel(reason="enough")))
                streams[0].takes.set()
                events = await _all(talk)
        assert [is_terminal(event) for event in events] == [False] * (len(events) - 1) + [True]
        assert status_from_proto(events[-1].failed.status).reason is Reason.CALL_CANCELLED
        assert a.plane.calls.active_count == 0


# --- connections and owners that end ----------------------------------------------------------------------------------


async def test_conversation_ends_with_the_connection_to_an_owner_that_lives() -> None:
    async with cluster() as (a, b):
        await own(a)
        with mock.patch.object(forwarding, "GONE_WAIT_S", 0.1), owners_streams(b) as streams:
            async with b.client.converse() as talk:
                await talk.start("k", "gate", inputs={"text": "x"}, session=SESSION)
                accepted = (await talk.expect("accepted")).accepted
                seen = [await talk.expect("started"), await talk.expect("value")]
                streams[0].break_connection()
                rest, error = await talk.rest()
        assert rest == []
        assert error is not None
        assert (error.reason, error.is_stated) == (Reason.CONNECTION_LOST, False), "without details of ours"
        assert forwarding.BROKEN in error.message
        assert a.plane.calls.active_count == 1
        Gate.gates["x"].set()
        events, error = await b.client.resume(accepted.resume_token, seen[-1].sequence).rest()
        assert error is None
        assert [event.sequence for event in events] == [4, 5]
        assert (texts(events), events[-1].WhichOneof("event")) == (["x"], "finished")
        assert Gate.began == ["x"]


@pytest.mark.parametrize("method", ["resume", "cancel", "get"])
async def test_method_that_does_not_reach_a_living_owner_is_to_be_tried_again(method: str) -> None:
    async with cluster() as (a, b):
        stream = a.client.stream("gate", inputs={"text": "x"})
        accepted = (await stream.expect("accepted")).accepted
        with mock.patch.object(forwarding, "GONE_WAIT_S", 0.1):
            async with b.without_connections():
                if method == "resume":
                    events, error = await b.client.resume(accepted.resume_token, 0).rest()
                    assert events == []
                else:
                    with pytest.raises(OmniFlowError) as broken:
                        await getattr(b.client, method)(accepted.call_id)
                    error = broken.value
        assert error is not None
        assert (error.reason, error.is_stated) == (Reason.CONNECTION_LOST, False)
        Gate.gates["x"].set()
        assert (await stream.rest())[0][-1].WhichOneof("event") == "finished"


async def test_stream_to_an_owner_that_went_leaves_no_task() -> None:
    async with cluster() as (a, b):
        await own(a)
        async with b.client.converse() as talk:
            await talk.start("k", "gate", inputs={"text": "x"}, session=SESSION)
            await eventually(lambda: Gate.began == ["x"])
            await gone(a, b)
            events = (await talk.by_key("k"))["k"]
            assert status_from_proto(events[-1].failed.status).reason is Reason.OWNER_LOST
            await eventually(lambda: not any("PeerCalls" in repr(task) for task in asyncio.all_tasks()))
            assert await _all(talk) == []
        assert b.plane.forwarding._active == 0


async def test_lost_call_that_is_resumed_in_a_conversation_ends_with_the_next_number() -> None:
    async with cluster() as (a, b):
        stream = a.client.stream("gate", inputs={"text": "x"}, call_key="k")
        accepted = (await stream.expect("accepted")).accepted
        await gone(a, b)
        resume = pb.ResumeCallRequest(resume_token=accepted.resume_token, after_sequence=3)
        async with b.client.converse() as talk:
            await talk.send(message("k", resume=resume))
            (failed,) = (await talk.by_key("k"))["k"]
        assert (failed.sequence, status_from_proto(failed.failed.status).reason) == (4, Reason.OWNER_LOST)


async def test_terminal_event_of_a_lost_call_has_the_next_number_after_heartbeats() -> None:
    async with cluster() as (a, b):
        await own(a)
        interval = duration_pb2.Duration(seconds=1)
        stream = b.client.stream("gate", inputs={"text": "x"}, session=SESSION, heartbeat_interval=interval)
        for kind in ("accepted", "started", "value", "heartbeat"):
            await stream.expect(kind)
        await gone(a, b)
        events, error = await stream.rest()
        assert [(event.sequence, event.WhichOneof("event")) for event in events] == [(4, "failed")]
        assert error is not None
        assert error.reason is Reason.OWNER_LOST


async def test_deadline_of_a_caller_ends_the_call_that_was_passed_on() -> None:
    async with cluster(detach_grace_s=0.0) as (a, b):
        await own(a)
        request = pb.RunCallRequest(graph="graphs/gate", call=spec_of(inputs={"text": "x"}, session=SESSION))
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await b.client.stub.RunCall(request, timeout=0.2)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: a.plane.calls.active_count == 0)
        await eventually(lambda: b.plane.forwarding._active == 0)
        await eventually(lambda: not any("wait_gone" in repr(task) for task in asyncio.all_tasks()))
        assert Gate.began == ["x"]


# --- a drain of the process in between --------------------------------------------------------------------------------


async def test_drain_waits_for_a_conversation_with_another_owner() -> None:
    async with cluster() as (a, b):
        await own(b)
        async with a.client.converse() as talk:
            await talk.start("k", "gate", inputs={"text": "x"}, session=SESSION)
            await eventually(lambda: Gate.began == ["x"])
            drain = await _draining(a)
            assert not drain.done()
            Gate.gates["x"].set()
            assert (await talk.by_key("k"))["k"][-1].WhichOneof("event") == "finished"
            await drain


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_drain_waits_for_a_stream_of_another_owner(is_resumed: bool) -> None:
    async with cluster() as (a, b):
        await own(b)
        stream = (b if is_resumed else a).client.stream("gate", inputs={"text": "x"}, session=SESSION)
        accepted = (await stream.expect("accepted")).accepted
        if is_resumed:
            stream = a.client.resume(accepted.resume_token, 0)
            await stream.expect("accepted")
        drain = await _draining(a)
        assert not drain.done()
        Gate.gates["x"].set()
        events, error = await stream.rest()
        assert (events[-1].WhichOneof("event"), error) == ("finished", None)
        await drain


async def test_owner_that_takes_messages_again_says_nothing_of_a_call_that_was_ended_for_too_many() -> None:
    async with cluster() as (a, b):
        await own(a)
        with mock.patch.object(peer_calls, "UNSENT_LIMIT", 8), owners_streams(b) as streams:
            async with b.client.converse() as talk:
                await talk.start("k", "listen", open_inputs="text", session=SESSION)
                await talk.expect("accepted")
                await talk.expect("started")
                streams[0].takes.clear()
                for _ in range(20):
                    await talk.send(message("k", input=stream_input("text", text("x"))))
                await talk.expect("failed")
                streams[0].takes.set()
                await eventually(lambda: a.plane.calls.active_count == 0)
                await talk.start("other", "listen", open_inputs="text", session=SESSION)
                await talk.send(message("other", input=stream_input("text", text("x"), is_last=True)))
                events = await _all(talk)
        assert {event.call_key for event in events} == {"other"}
