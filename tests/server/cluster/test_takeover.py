"""What becomes of calls and sessions when their control plane dies, stands still, or leaves.

A cut line to the store is what a process that stands still looks like from outside; `resume` is its return.
"""

from __future__ import annotations

import asyncio
import dataclasses
from unittest import mock

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server import compose
from omniflow_server.control import membership
from tests.roles.running import eventually
from tests.server.cluster.clusters import Member, cluster
from tests.server.control.planes import register
from tests.server.control.scripted_role import ScriptedRole
from tests.server.rpc.client import Event, EventReader, is_terminal, texts
from tests.support.interfaces import Exclaim, Gate, single

pytestmark = pytest.mark.integration  # not for what it starts, but for leases that it waits for

SESSION = "sessions/s"
REMOTE = single("remote", Exclaim, role="worker")


async def _gone(member: Member, other: Member) -> None:
    epoch = member.epoch
    await eventually(lambda: epoch not in other.plane.membership.owners)


async def _begun(member: Member, name: str, **fields: str) -> EventReader:
    stream = member.client.stream("gate", inputs={"text": name}, **fields)
    await eventually(lambda: name in Gate.began)
    return stream


async def test_paused_owner_loses_its_session_and_ends_its_calls_when_it_is_back() -> None:
    async with cluster() as (a, b):
        stream = await _begun(a, "old", session=SESSION)
        old = (await stream.expect("accepted")).accepted
        fence = a.plane.ownership.fence_of(("default", SESSION))
        a.line.is_cut = True
        answer = await b.client.run("count", inputs={"text": "1"}, session=SESSION)
        assert b.owns(answer.call_id)
        taken = b.plane.ownership.fence_of(("default", SESSION))
        assert fence is not None
        assert taken is not None
        assert taken > fence
        events, error = await b.client.resume(old.resume_token, 1).rest()
        assert [(e.sequence, e.WhichOneof("event")) for e in events] == [(2, "failed")]
        assert error is not None
        assert error.reason is Reason.OWNER_LOST
        a.line.is_cut = False
        events, error = await stream.rest()
        assert [is_terminal(event) for event in events].count(True) == 1
        assert error is not None
        assert error.reason is Reason.OWNER_LOST
        assert a.plane.ownership.session_count == 0
        again = await a.client.run("count", inputs={"text": "1"}, session=SESSION)
        assert b.owns(again.call_id), "it goes on as a new life, which knows the session's owner"


async def test_nothing_of_a_session_is_started_while_its_lease_is_in_doubt() -> None:
    """The store is away for both, and nobody has taken over when it is back: the life goes on."""
    async with ScriptedRole("test.exclaim") as role, cluster(owner_lease_ttl_s=1.2) as (a, b):
        await a.plane.install(a.plane.catalog.compile(REMOTE.spec()))
        await a.register(role)
        await eventually(lambda: a.plane.dispatcher.connected_roles(["worker"]))
        first = a.client.stream("remote", inputs={"text": "1"}, session=SESSION)
        (work,) = await role.next_work(1)
        assert work.start.session_fence == a.plane.ownership.fence_of(("default", SESSION))
        second = a.client.stream("remote", inputs={"text": "2"}, session=SESSION)
        await second.expect("accepted")
        epoch = a.epoch
        a.line.is_cut = b.line.is_cut = True
        await eventually(lambda: not a.plane.membership.has_lease)
        await work.complete()
        await first.rest()
        await second.expect("started")
        assert len(role.work) == 1, "the second call of the session waits for the store"
        b.line.is_cut = False
        await eventually(lambda: b.plane.membership.has_lease)
        a.line.is_cut = False
        (_, following) = await role.next_work(2)
        await following.complete()
        events, error = await second.rest()
        assert (is_terminal(events[-1]), error, a.epoch) == (True, None, epoch)


async def test_start_under_an_old_fence_is_refused_by_the_replica() -> None:
    async with ScriptedRole("test.exclaim") as role, cluster() as (a, b):
        for member in (a, b):
            await member.plane.install(member.plane.catalog.compile(REMOTE.spec()))
        await a.register(role)
        await eventually(lambda: all(m.plane.dispatcher.connected_roles(["worker"]) for m in (a, b)))
        stream = a.client.stream("remote", inputs={"text": "1"}, session=SESSION)
        (old,) = await role.next_work(1)
        a.line.is_cut = True
        await _gone(a, b)
        taken = b.client.stream("remote", inputs={"text": "2"}, session=SESSION)
        (_, new) = await role.next_work(2)
        assert new.start.session_fence > old.start.session_fence
        await new.complete()
        assert is_terminal((await taken.rest())[0][-1])
        a.line.is_cut = False
        _, error = await stream.rest()
        assert error is not None
        assert error.reason is Reason.OWNER_LOST


async def test_request_of_a_lost_owner_is_never_run_again() -> None:
    async with cluster() as (a, b):
        await _begun(a, "x", request_id="r")
        a.line.is_cut = True
        await _gone(a, b)
        for _ in range(2):
            with pytest.raises(OmniFlowError) as lost:
                await b.client.run("gate", inputs={"text": "x"}, request_id="r")
            assert lost.value.reason is Reason.OWNER_LOST
        with pytest.raises(OmniFlowError) as reused:
            await b.client.run("gate", inputs={"text": "y"}, request_id="r")
        assert reused.value.reason is Reason.REQUEST_ID_REUSED
        assert Gate.began == ["x"]


async def test_call_that_was_passed_on_ends_with_its_owner() -> None:
    async with cluster() as (a, b):
        await a.client.run("count", inputs={"text": "1"}, session=SESSION)
        stream = b.client.stream("gate", inputs={"text": "x"}, session=SESSION)
        await stream.expect("accepted")
        await stream.expect("started")
        await stream.expect("value")
        a.line.is_cut = True
        events, error = await stream.rest()
        assert [(e.sequence, e.WhichOneof("event")) for e in events] == [(4, "failed")]
        assert error is not None
        assert error.reason is Reason.OWNER_LOST


async def test_calls_of_a_conversation_end_with_their_owners() -> None:
    async with cluster(3) as (a, b, c):
        await a.client.run("count", inputs={"text": "1"}, session="sessions/a")
        await b.client.run("count", inputs={"text": "1"}, session="sessions/b")
        async with c.client.converse() as talk:
            await talk.start("1", "gate", inputs={"text": "1"}, session="sessions/a")
            await talk.start("2", "gate", inputs={"text": "2"}, session="sessions/b")
            await eventually(lambda: sorted(Gate.began) == ["1", "2"])
            a.line.is_cut = True
            found: dict[str, list[Event]] = {"1": [], "2": []}
            while not (found["1"] and is_terminal(found["1"][-1])):
                event = await talk.next()
                assert event is not None
                found[event.call_key].append(event)
            assert [event.sequence for event in found["1"]] == list(range(1, len(found["1"]) + 1))
            Gate.gates["2"].set()
            rest = (await talk.by_key("2"))["2"]
            assert texts(rest)[-1] == "2"
            assert rest[-1].WhichOneof("event") == "finished"


async def test_draining_control_plane_passes_new_calls_on_and_lets_its_own_end() -> None:
    async with cluster() as (a, b):
        running = await _begun(a, "old", session=SESSION)
        draining = asyncio.create_task(compose.drain(a.plane, 10.0))
        await eventually(lambda: a.plane.calls.is_draining)
        for fields in ({}, {"session": "sessions/new"}, {"request_id": "r"}):
            assert b.owns((await a.client.run("count", inputs={"text": "1"}, **fields)).call_id)
        async with a.client.converse() as talk:
            await talk.start("k", "count", inputs={"text": "1"})
            assert b.owns((await talk.by_key("k"))["k"][0].accepted.call_id)
        following = b.client.stream("gate", inputs={"text": "new"}, session=SESSION)
        assert not draining.done()
        Gate.gates["old"].set()
        events, error = await running.rest()
        assert (is_terminal(events[-1]), error) == (True, None)
        await eventually(lambda: "new" in Gate.began)
        assert b.owns((await following.expect("accepted")).accepted.call_id), "the session's turn goes to the other"
        await draining
        Gate.gates["new"].set()
        await following.rest()


async def test_call_longer_than_the_drain_is_lost_with_its_owner() -> None:
    async with cluster() as (a, b):
        running = await _begun(a, "x")
        await compose.drain(a.plane, 0.1)
        events, error = await running.rest()
        assert [is_terminal(event) for event in events].count(True) == 1
        assert error is not None
        assert error.reason is Reason.OWNER_LOST
        assert b.plane.calls.active_count == 0


async def test_alone_a_draining_control_plane_refuses_with_a_hint() -> None:
    async with cluster(1) as (a,):
        await compose.drain(a.plane, 0.1)
        with pytest.raises(OmniFlowError) as refused:
            await a.client.run("count", inputs={"text": "1"})
        assert (refused.value.reason, refused.value.info.retry_after_s) == (Reason.DRAINING, 1.0)


async def test_store_that_is_away_stops_only_what_needs_it() -> None:
    async with cluster() as (a, _):
        await a.client.run("count", inputs={"text": "1"}, session=SESSION)
        a.line.is_cut = True
        assert (await a.client.run("count", inputs={"text": "3"})).finished.usage.output_tokens == 3
        for fields in ({"request_id": "r"}, {"session": "sessions/other"}):
            with pytest.raises(OmniFlowError) as refused:
                await a.client.run("count", inputs={"text": "1"}, **fields)
            assert refused.value.reason is Reason.STORE_UNAVAILABLE
            assert refused.value.info.retry_after_s is not None
        a.line.is_cut = False
        assert (await a.client.run("count", inputs={"text": "1"}, request_id="r")).call_id


async def test_wiped_store_is_filled_again() -> None:
    async with ScriptedRole("test.exclaim") as role, cluster() as (a, b):
        await a.register(role)
        await eventually(lambda: b.plane.registry.find("worker", "worker-0"))
        old = {a.epoch, b.epoch}
        a.line.store.wipe()
        await eventually(lambda: not old & set(a.plane.membership.owners) and len(b.plane.membership.owners) == 2)
        assert (await a.client.run("count", inputs={"text": "1"}, session=SESSION)).call_id
        lease = a.plane.registry.find("worker", "worker-0")
        assert lease is not None
        assert b.plane.dispatcher.connected_roles(["worker"]) == {"worker"}, "its stream goes on"
        register(a.plane, role.replica)


async def test_many_sessions_leave_nothing_in_the_store() -> None:
    async with cluster(ended_call_ttl_s=0.2) as (a, b):
        before = await a.line.store.key_count()
        await asyncio.gather(
            *(
                member.client.run("count", inputs={"text": "1"}, session=f"sessions/{n}", request_id=f"{n}")
                for n in range(50)
                for member in ((a, b)[n % 2],)
            )
        )
        assert await a.line.store.key_count() >= before + 50
        for member in (a, b):
            for held in member.plane.ownership._held.values():
                held.idle_since_s -= 60
            await member.plane.ownership.keep()
            assert member.plane.ownership.session_count == 0
        deadline = asyncio.get_running_loop().time() + 5
        while await a.line.store.key_count() > before:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)


async def test_sessions_that_are_opened_and_left_at_any_moment_hold_nothing() -> None:
    """vllm-omni#7636: a cancel in the middle of an opening burned a slot, until all were refused."""
    async with cluster(detach_grace_s=0.0) as (a, b):
        before = await a.line.store.key_count()
        for wave in range(10):
            streams = []
            for number in range(40):
                client = (a, b)[number % 2].client
                fields = {"session": f"sessions/{wave}-{number // 4}", "request_id": f"{wave}-{number}"}
                streams.append(client.stream("gate", inputs={"text": f"{number}"}, **fields))
                await asyncio.sleep(0)
                if number % 3 == 0:
                    streams[number // 2].call.cancel()
            for stream in streams:
                stream.call.cancel()
        for member in (a, b):
            await eventually(lambda calls=member.plane.calls: calls.active_count == 0)
            member.plane.calls.check_integrity()
            for held in member.plane.ownership._held.values():
                assert held.calls == 0
                held.idle_since_s -= 60
            await member.plane.ownership.keep()
        assert (a.plane.ownership.session_count, b.plane.ownership.session_count) == (0, 0)
        assert a.line.store._rows.sessions.sweep(0) == 0
        assert await a.line.store.key_count() - before <= 400, "request ids, which go by themselves"
        assert (await a.client.run("count", inputs={"text": "1"}, session="sessions/0-0")).call_id


async def test_session_that_the_store_has_forgotten_is_one_owners_when_it_is_back() -> None:
    """A store that was away for long has let rows run out. Nobody has claimed the one session, another one the other."""
    async with cluster() as (a, b):
        kept = await _begun(a, "kept", session="sessions/kept")
        taken = await _begun(a, "taken", session="sessions/taken")
        fences = {name: a.plane.ownership.fence_of(("default", f"sessions/{name}")) for name in ("kept", "taken")}
        for name in fences:
            a.line.store._rows.sessions.remove(("default", f"sessions/{name}"))
        assert b.owns((await b.client.run("count", inputs={"text": "1"}, session="sessions/taken")).call_id)
        a.line.is_cut = True
        await a.plane.membership.tick()
        a.line.is_cut = False
        await a.plane.membership.tick()
        await a.plane.ownership.keep()
        _, error = await taken.rest()
        assert error is not None
        assert error.reason is Reason.OWNER_LOST
        assert a.plane.ownership.fence_of(("default", "sessions/taken")) is None
        renewed = a.plane.ownership.fence_of(("default", "sessions/kept"))
        assert renewed is not None
        assert renewed > (fences["kept"] or 0)
        Gate.gates["kept"].set()
        events, error = await kept.rest()
        assert (is_terminal(events[-1]), error) == (True, None)


async def test_two_processes_of_one_identifier_are_told_so_and_slow_down(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as (a, b):
        lost = a.plane.membership
        for _ in range(3):
            await b.line.store.open_owner(dataclasses.replace(lost.own, incarnation_id=f"other-{lost.epoch}"), ttl_s=60)
            if len(lost._losses) == 2:
                with mock.patch.object(membership, "FIGHT_PAUSE_S", 0.0):
                    await lost.tick()
            else:
                await lost.tick()
        assert "Each needs its own" in caplog.text


async def test_claim_that_the_store_has_taken_without_an_answer_is_the_repeats() -> None:
    async with cluster() as (a, b):
        claim = a.line.store.claim_requests

        async def take_without_an_answer(*arguments: object, **options: object) -> None:
            await claim(*arguments, **options)
            raise OmniFlowError(Reason.STORE_UNAVAILABLE, "no answer", retry_after_s=0.05)

        with mock.patch.object(a.line.store, "claim_requests", take_without_an_answer):
            with pytest.raises(OmniFlowError) as refused:
                await a.client.run("gate", inputs={"text": "x"}, request_id="r")
            assert refused.value.reason is Reason.STORE_UNAVAILABLE
        repeat = a.client.stream("gate", inputs={"text": "x"}, request_id="r")
        call_id = (await repeat.expect("accepted")).accepted.call_id
        joined = b.client.stream("gate", inputs={"text": "x"}, request_id="r")
        assert (await joined.expect("accepted")).accepted.call_id == call_id
        assert Gate.began == ["x"]
        Gate.gates["x"].set()
        for stream in (repeat, joined):
            assert is_terminal((await stream.rest())[0][-1])
