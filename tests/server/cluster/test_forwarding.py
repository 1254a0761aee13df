"""Calls that reach a control plane which does not own them: one hop, as if the client had asked the owner."""

from __future__ import annotations

import asyncio

import pytest

from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow_core.errors import OmniFlowError, Reason
from tests.roles.running import eventually
from tests.server.cluster.clusters import Member, cluster
from tests.server.rpc.client import is_terminal, message, stream_input, text, texts
from tests.support.interfaces import Gate

SESSION = "sessions/s"


async def _own(member: Member, session: str = SESSION) -> None:
    """Makes the session that member's."""
    answer = await member.client.run("count", inputs={"text": "1"}, session=session)
    assert member.owns(answer.call_id)


async def test_calls_of_a_session_run_where_it_is_owned() -> None:
    async with cluster(3) as (a, b, c):
        await _own(a)
        for other in (b, c):
            assert a.owns((await other.client.run("count", inputs={"text": "2"}, session=SESSION)).call_id)
            events, error = await other.client.stream("shout", inputs={"text": "hi you"}, session=SESSION).rest()
            assert error is None
            assert a.owns(events[0].accepted.call_id)
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert sorted(texts(events)) == ["HI!", "YOU!"]
        assert [line.plane.calls.active_count for line in (a, b, c)] == [0, 0, 0]


async def test_session_without_a_call_is_free_for_others_after_a_while() -> None:
    async with cluster() as (a, b):
        await _own(a)
        a.plane.ownership._held["default", SESSION].idle_since_s -= 60
        await a.plane.ownership.keep()
        await _own(b)


async def test_calls_of_one_session_run_one_after_another_wherever_they_come() -> None:
    async with cluster() as (a, b):
        await _own(a)
        first = a.client.stream("gate", inputs={"text": "1"}, session=SESSION)
        await eventually(lambda: len(Gate.began) == 1)
        second = b.client.stream("gate", inputs={"text": "2"}, session=SESSION)
        await second.expect("accepted")
        state = await b.client.get((await first.expect("accepted")).accepted.call_id)
        assert state.state == pb.CALL_STATE_RUNNING
        assert len(Gate.began) == 1
        Gate.gates["1"].set()
        assert is_terminal((await first.rest())[0][-1])
        await eventually(lambda: len(Gate.began) == 2)
        Gate.gates["2"].set()
        assert is_terminal((await second.rest())[0][-1])


async def test_failed_call_fails_alike_through_another_control_plane() -> None:
    async with cluster() as (a, b):
        await _own(a)
        direct, direct_error = await a.client.stream("fail", inputs={"text": "x"}, session=SESSION).rest()
        passed, passed_error = await b.client.stream("fail", inputs={"text": "x"}, session=SESSION).rest()
        assert direct_error is not None
        assert passed_error is not None
        assert passed_error.reason is direct_error.reason is Reason.INTERFACE_FAILED
        assert passed[0].accepted.call_id in passed_error.message, "the text is that of the owner"
        assert [e.WhichOneof("event") for e in passed] == [e.WhichOneof("event") for e in direct]
        with pytest.raises(OmniFlowError, match="texts") as refused:
            await b.client.run("count", inputs={"texts": "x"}, session=SESSION)
        assert refused.value.reason is Reason.UNKNOWN_FIELD


async def test_methods_that_name_a_call_are_answered_by_its_owner() -> None:
    async with cluster() as (a, b):
        stream = a.client.stream("listen", open_inputs="text", session=SESSION)
        call_id = (await stream.expect("accepted")).accepted.call_id
        assert (await b.client.get(call_id)).graph == "graphs/listen"
        assert (await b.client.inspect(call_id)).call.call_id == call_id
        assert await b.client.push(call_id, 1, input=stream_input("text", text("hello"))) == 1
        await stream.expect("started")
        assert (await stream.expect("value")).value.text == "hello!"
        assert await b.client.cancel(call_id)
        assert not await b.client.cancel(call_id)
        assert (await stream.expect("failed")).failed.status.code == 1


async def test_call_is_resumed_through_any_control_plane() -> None:
    async with cluster() as (a, b):
        stream = a.client.stream("listen", open_inputs="text")
        accepted = (await stream.expect("accepted")).accepted
        await a.client.push(accepted.call_id, 1, input=stream_input("text", text("one")))
        stream.call.cancel()
        resumed = b.client.resume(accepted.resume_token, 1)
        await resumed.expect("started")
        assert (await resumed.expect("value")).value.text == "one!"
        await b.client.push(accepted.call_id, 2, input=stream_input("text", text("two"), is_last=True))
        events, error = await resumed.rest()
        assert (texts(events), error) == (["two!"], None)


async def test_calls_of_all_control_planes_are_listed_in_pages() -> None:
    async with cluster(3) as members:
        made = [(await m.client.run("count", inputs={"text": "1"})).call_id for m in members for _ in range(3)]
        for member in members:
            found: list[str] = []
            token = ""
            while True:
                answer = await member.client.stub.ListCalls(pb.ListCallsRequest(page_size=4, page_token=token))
                found += [call.call_id for call in answer.calls]
                token = answer.next_page_token
                if not token:
                    break
            assert found == sorted(made)


async def test_conversation_holds_calls_of_several_owners() -> None:
    async with cluster(3) as (a, b, c):
        await _own(a, "sessions/a")
        await _own(b, "sessions/b")
        async with c.client.converse() as talk:
            await talk.start("1", "listen", open_inputs="text", session="sessions/a")
            await talk.start("2", "shout", inputs={"text": "x y"}, session="sessions/b")
            await talk.start("3", "count", inputs={"text": "2"}, session="sessions/c")
            await talk.send(message("1", input=stream_input("text", text("hi"), is_last=True)))
            found = await talk.by_key("1", "2", "3")
            owners = [a, b, c]
            for key, owner in zip("123", owners, strict=True):
                events = found[key]
                assert owner.owns(events[0].accepted.call_id), key
                assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert texts(found["1"]) == ["hi!"]
            # a key whose call has ended can be used again, for another owner
            await talk.start("1", "shout", inputs={"text": "z"}, session="sessions/c")
            again = await talk.by_key("1")
            assert c.owns(again["1"][0].accepted.call_id)
            await talk.close()
            assert await talk.next() is None


async def test_cancel_in_a_conversation_reaches_the_owner_while_another_start_waits() -> None:
    async with cluster() as (a, b):
        await _own(a)
        async with b.client.converse() as talk:
            await talk.start("1", "gate", inputs={"text": "x"}, session=SESSION)
            await eventually(lambda: len(Gate.began) == 1)
            await talk.send(message("1", cancel=pb.Cancel(reason="enough")))
            events = (await talk.by_key("1"))["1"]
            assert events[-1].failed.status.code == 1
        await eventually(lambda: a.plane.calls.active_count == 0)


async def test_caller_that_leaves_detaches_its_call_at_the_owner() -> None:
    async with cluster(detach_grace_s=0.05) as (a, b):
        await _own(a)
        stream = b.client.stream("gate", inputs={"text": "x"}, session=SESSION)
        await eventually(lambda: len(Gate.began) == 1)
        stream.call.cancel()
        await eventually(lambda: a.plane.calls.active_count == 0)


async def test_repeated_request_joins_its_call_wherever_it_comes() -> None:
    async with cluster() as (a, b):
        first = a.client.stream("gate", inputs={"text": "x"}, request_id="r")
        call_id = (await first.expect("accepted")).accepted.call_id
        second = b.client.stream("gate", inputs={"text": "x"}, request_id="r")
        accepted = (await second.expect("accepted")).accepted
        assert (accepted.call_id, accepted.is_replayed) == (call_id, True)
        with pytest.raises(OmniFlowError) as refused:
            await b.client.run("gate", inputs={"text": "y"}, request_id="r")
        assert refused.value.reason is Reason.REQUEST_ID_REUSED
        other_tenant = await b.client.of("other").run("count", inputs={"text": "1"}, request_id="r")
        assert b.owns(other_tenant.call_id)
        assert len(Gate.began) == 1
        assert await b.client.cancel(request_id="r")
        for stream in (first, second):
            assert is_terminal((await stream.rest())[0][-1])


async def test_many_repeats_at_once_make_one_call() -> None:
    async with cluster() as members:
        streams = [members[i % 2].client.stream("count", inputs={"text": "1"}, request_id="same") for i in range(16)]
        accepted = await asyncio.gather(*(stream.expect("accepted") for stream in streams))
        assert len({event.accepted.call_id for event in accepted}) == 1
        assert sum(len(member.plane.calls._records) for member in members) == 1


async def test_request_that_is_refused_can_be_sent_again() -> None:
    async with cluster(max_calls=1) as (a, _):
        running = a.client.stream("gate", inputs={"text": "x"})
        await eventually(lambda: len(Gate.began) == 1)
        with pytest.raises(OmniFlowError) as refused:
            await a.client.run("count", inputs={"text": "1"}, request_id="r")
        assert refused.value.reason is Reason.TOO_MANY_CALLS
        Gate.gates["x"].set()
        await running.rest()
        assert (await a.client.run("count", inputs={"text": "1"}, request_id="r")).call_id


async def test_second_hop_is_refused() -> None:
    """Two control planes that each take the other for the owner must not pass a call to and fro."""
    async with cluster() as (a, b):
        await _own(a)
        call = pb.RunCallRequest(graph="graphs/count", call=pb.CallSpec(session=SESSION))
        call.call.inputs["text"].text = "1"
        with pytest.raises(Exception, match="Another control plane owns"):
            await b.client.stub.RunCall(call, metadata=(("x-omniflow-forwarded", "1"),))
