"""Starts that have not been taken: they are placed again, with all that was said meanwhile, and run once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from unittest import mock

import pytest

from omniflow.codec.error import status_from_proto
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow_core.errors import Reason
from omniflow_server import compose
from omniflow_server.rpc import conversation, peer_calls
from omniflow_server.rpc.event_stream import EventStream
from tests.roles.running import eventually
from tests.server.cluster.clusters import SESSION, Member, cluster, gone, hold, own, owners_streams
from tests.server.rpc.client import Conversation, Event, is_terminal, message, stream_input, text, texts
from tests.support.interfaces import Gate

pytestmark = pytest.mark.integration  # not for what it starts, but for leases that it waits for


async def _say(talk: Conversation, *contents: str) -> None:
    """Starts a call under the session, with all its inputs at once."""
    await talk.start("k", "listen", open_inputs="text", session=SESSION)
    for left, content in zip(reversed(range(len(contents))), contents, strict=True):
        await talk.send(message("k", input=stream_input("text", text(content), is_last=not left)))


def _check_whole(events: list[Event], owner: Member, *contents: str) -> None:
    """The call ran at that owner, with these inputs."""
    assert owner.owns(events[0].accepted.call_id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert texts(events) == [f"{content}!" for content in contents]
    assert events[-1].WhichOneof("event") == "finished"


def _reason(event: Event) -> Reason:
    return status_from_proto(event.failed.status).reason


@contextlib.contextmanager
def _silent(member: Member) -> Iterator[None]:
    """It takes calls in, and stands still before it has said anything of them."""
    run = EventStream.run

    async def run_of_others(stream: EventStream) -> None:
        if stream._calls is member.plane.calls:
            await asyncio.Event().wait()
        await run(stream)

    with mock.patch.object(EventStream, "run", run_of_others):
        yield


# --- owners that take no call -----------------------------------------------------------------------------------------


async def test_start_that_a_draining_owner_refuses_is_placed_again_with_its_inputs() -> None:
    async with cluster() as (a, b):
        old = a.client.stream("gate", inputs={"text": "old"}, session=SESSION)
        await eventually(lambda: Gate.began == ["old"])
        drain = asyncio.create_task(compose.drain(a.plane, 20.0))
        await eventually(lambda: a.plane.calls.is_draining)
        passing = b.plane.forwarding
        async with b.client.converse() as talk:
            with mock.patch.object(passing, "look_again_later", wraps=passing.look_again_later) as again:
                await _say(talk, "one", "two")
                await eventually(lambda: again.call_count >= 2)
                assert not drain.done()
                Gate.gates["old"].set()
                assert (await old.rest())[0][-1].WhichOneof("event") == "finished"
                await a.plane.ownership.keep()  # the turn in which the session is given up
                _check_whole((await talk.by_key("k"))["k"], b, "one", "two")
            await talk.close()
            assert await talk.next() is None
        await drain


async def test_start_for_a_dead_owner_that_is_not_known_to_be_dead_is_placed_again_with_its_inputs() -> None:
    async with cluster() as (a, b):
        await own(a)
        async with b.without_connections(), b.client.converse() as talk:
            a.line.is_cut = True
            stream = b.client.stream("count", inputs={"text": "1"}, session="sessions/none")
            await _say(talk, "one", "two")
            _check_whole((await talk.by_key("k"))["k"], b, "one", "two")
            await talk.close()
            assert await talk.next() is None
        events, error = await stream.rest()
        assert (events[-1].WhichOneof("event"), error) == ("finished", None)


async def test_start_that_did_not_reach_its_owner_goes_to_the_next_one_when_that_dies() -> None:
    async with cluster() as (a, b):
        await own(a)
        with owners_streams(b, take=False) as streams:
            async with b.client.converse() as talk:
                await _say(talk, "one", "two")
                await eventually(lambda: bool(streams) and streams[0].is_stuck)
                await gone(a, b)
                _check_whole((await talk.by_key("k"))["k"], b, "one", "two")
                await talk.close()
                assert await talk.next() is None
        assert (len(streams), b.plane.forwarding._active) == (1, 0)


async def test_start_that_did_not_reach_its_owner_is_sent_again_when_the_connection_breaks() -> None:
    async with cluster() as (a, b):
        await own(a)
        with owners_streams(b, take=False) as streams:
            async with b.client.converse() as talk:
                await _say(talk, "one", "two")
                await eventually(lambda: bool(streams) and streams[0].is_stuck)
                streams[0].break_connection()
                await eventually(lambda: len(streams) == 2)
                streams[1].takes.set()
                _check_whole((await talk.by_key("k"))["k"], a, "one", "two")
                await talk.close()
                assert await talk.next() is None


async def test_cancel_of_a_start_that_is_placed_again_ends_it_once() -> None:
    async with cluster() as (a, b):
        await own(a)
        with owners_streams(b, take=False) as streams:
            async with b.client.converse() as talk:
                await talk.start("k", "gate", inputs={"text": "x"}, session=SESSION)
                await talk.send(message("k", cancel=pb.Cancel(reason="no")))
                await eventually(lambda: bool(streams) and streams[0].is_stuck)
                await gone(a, b)
                events = (await talk.by_key("k"))["k"]
                assert b.owns(events[0].accepted.call_id)
                assert _reason(events[-1]) is Reason.CALL_CANCELLED
                await talk.close()
                assert await talk.next() is None


async def test_start_whose_messages_were_too_many_to_keep_is_lost_with_its_owner() -> None:
    async with cluster() as (a, b):
        await own(a)
        with mock.patch.object(peer_calls, "KEPT_BYTES", 1000), owners_streams(b, take=False) as streams:
            async with b.client.converse() as talk:
                await _say(talk, "one", "x" * 1000)
                await talk.start("other", "count", inputs={"text": "1"})
                await talk.by_key("other")
                await eventually(lambda: streams[0].is_stuck)
                await gone(a, b)
                (failed,) = (await talk.by_key("k"))["k"]
        assert (failed.sequence, _reason(failed)) == (1, Reason.OWNER_LOST)


@pytest.mark.parametrize("is_conversation", [False, True])
async def test_call_whose_owner_dies_before_its_first_event_is_not_run_again(is_conversation: bool) -> None:
    async with cluster() as (a, b):
        await own(a)
        with _silent(a):
            if is_conversation:
                async with b.client.converse() as talk:
                    await talk.start("k", "gate", inputs={"text": "x"}, session=SESSION)
                    await eventually(lambda: Gate.began == ["x"])
                    await gone(a, b)
                    (failed,) = (await talk.by_key("k"))["k"]
                assert (failed.sequence, _reason(failed)) == (1, Reason.OWNER_LOST)
            else:
                stream = b.client.stream("gate", inputs={"text": "x"}, session=SESSION)
                await eventually(lambda: Gate.began == ["x"])
                await gone(a, b)
                events, error = await stream.rest()
                assert events == []
                assert error is not None
                assert error.reason is Reason.OWNER_LOST
        assert Gate.began == ["x"]
        assert b.plane.forwarding._active == 0


# --- a drain that begins meanwhile ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_conversation", [False, True])
@pytest.mark.parametrize(
    ("method", "fields"), [("claim_requests", {"request_id": "r"}), ("claim_sessions", {"session": SESSION})]
)
async def test_call_that_is_being_placed_when_a_drain_begins_is_passed_on(
    method: str, fields: dict[str, str], is_conversation: bool
) -> None:
    async with cluster() as (a, b):
        claim = hold(a.line, method)
        async with a.client.converse() as talk:
            if is_conversation:
                await talk.start("k", "count", inputs={"text": "1"}, **fields)
            else:
                stream = a.client.stream("count", inputs={"text": "1"}, **fields)
            await claim.wait()
            drain = asyncio.create_task(compose.drain(a.plane, 20.0))
            await eventually(lambda: a.plane.calls.is_draining)
            claim.release()
            if "session" in fields:
                await eventually(lambda: a.plane.ownership.session_count == 1)
                await a.plane.ownership.keep()  # the turn in which it is given up
            events = (await talk.by_key("k"))["k"] if is_conversation else (await stream.rest())[0]
        assert b.owns(events[0].accepted.call_id)
        assert events[-1].WhichOneof("event") == "finished"
        await drain
        assert (a.plane.calls.active_count, a.plane.ownership._requests) == (0, {})


# --- what is said before there is a place -----------------------------------------------------------------------------


async def test_messages_and_half_close_of_calls_that_are_being_placed_are_kept() -> None:
    async with cluster() as (a, b):
        await own(a)
        claim = hold(b.line, "claim_sessions")
        async with b.client.converse() as talk:
            await _say(talk, "one", "two")
            await talk.start("c", "gate", inputs={"text": "c"}, session="sessions/c")
            await talk.send(message("c", cancel=pb.Cancel(reason="no")))
            await talk.start("free", "count", inputs={"text": "1"})
            await talk.close()
            assert (await talk.by_key("free"))["free"][-1].WhichOneof("event") == "finished", "it waits for no other"
            await claim.wait(2)
            claim.release()
            found = await talk.by_key("k", "c")
            _check_whole(found["k"], a, "one", "two")
            assert _reason(found["c"][-1]) is Reason.CALL_CANCELLED
            assert await talk.next() is None


async def test_call_that_is_told_too_much_before_it_has_a_place_is_ended_once() -> None:
    async with cluster() as (_, b):
        claim = hold(b.line, "claim_sessions")
        with mock.patch.object(conversation, "UNPLACED_LIMIT", 8):
            async with b.client.converse() as talk:
                await _say(talk, *map(str, range(20)))
                await talk.start("free", "count", inputs={"text": "1"})
                await talk.by_key("free")
                claim.release()
                events = (await talk.by_key("k"))["k"]
                await talk.close()
                assert await talk.next() is None
        assert texts(events) == []
        assert [is_terminal(event) for event in events] == [False] * (len(events) - 1) + [True]
        assert _reason(events[-1]) is Reason.CALL_CANCELLED
        assert "came before the call had a place" in events[-1].failed.status.message


async def test_as_many_messages_as_may_wait_for_a_place_arrive() -> None:
    async with cluster() as (_, b):
        claim = hold(b.line, "claim_sessions")
        contents = [str(number) for number in range(8)]
        with mock.patch.object(conversation, "UNPLACED_LIMIT", len(contents)):
            async with b.client.converse() as talk:
                await _say(talk, *contents)
                await talk.start("free", "count", inputs={"text": "1"})
                await talk.by_key("free")
                claim.release()
                _check_whole((await talk.by_key("k"))["k"], b, *contents)
