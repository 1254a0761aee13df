"""Lives of control planes that end, and of replicas that replace each other: what is known of them everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest

from omniflow.role.v1 import replica_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.registry import Registration
from tests.roles.running import eventually
from tests.server.cluster.clusters import Member, cluster, hold, tick
from tests.server.control.scripted_role import ScriptedRole, Work
from tests.support.interfaces import Exclaim, Gate, single

KEY = ("worker", "worker-0")
REMOTE = single("remote", Exclaim, role="worker")


@pytest.fixture
async def old() -> AsyncIterator[ScriptedRole]:
    async with ScriptedRole("test.exclaim", life="1") as role:
        yield role


@pytest.fixture
async def new() -> AsyncIterator[ScriptedRole]:
    async with ScriptedRole("test.exclaim", life="2") as role:
        yield role


def _life(member: Member) -> str | None:
    """The incarnation of the replica that the member knows."""
    known = member.plane.registry.find(*KEY)
    return known.replica.incarnation_id if known is not None else None


def _kept(member: Member, lease_id: str) -> Registration | None:
    ready, load = replica_pb2.REPLICA_STATE_READY, replica_pb2.ReplicaLoad()
    return member.plane.directory.keep_alive(lease_id, ready, load)


def _is_connected(member: Member) -> bool:
    return bool(member.plane.dispatcher.connected_roles(["worker"]))


async def _end(work: Work) -> None:
    await work.give(0, text="HI")
    await work.complete(1)


async def _refused(member: Member, role: ScriptedRole) -> Reason:
    with pytest.raises(OmniFlowError) as refused:
        await member.register(role)
    return refused.value.reason


# --- control planes ---------------------------------------------------------------------------------------------------


async def test_two_ticks_at_once_that_find_the_life_ended_begin_one_new_life() -> None:
    async with cluster() as (a, b):
        lives, lost = [a.epoch], []
        real_lost, real_tick = a.plane.membership._on_lost, a.line.store.tick

        def on_lost() -> None:
            lost.append(a.epoch)
            real_lost()

        async def slow_tick(*arguments: Any, **options: Any) -> Any:
            try:
                return await real_tick(*arguments, **options)
            finally:
                await asyncio.sleep(0)  # the other one is sent before the answer has come

        a.line.tick = slow_tick  # type: ignore[attr-defined]
        with mock.patch.object(a.plane.membership, "_on_lost", on_lost):
            a.end_life()
            await asyncio.gather(*(a.plane.membership.tick() for _ in range(2)))
            lives.append(a.epoch)
            await tick(a)
        assert lost == [0], "once, when there is no epoch any more"
        assert lives[1] > lives[0]
        assert a.epoch == lives[1]
        await tick(b, count=1)
        assert sorted(b.plane.membership.owners) == sorted((a.epoch, b.epoch))
        assert a.owns((await a.client.run("count", inputs={"text": "1"})).call_id)


async def test_two_ticks_at_once_renew_one_after_the_other() -> None:
    async with cluster() as (a, _):
        answer = hold(a.line, "tick")
        both = [asyncio.create_task(a.plane.membership.tick()) for _ in range(2)]
        await answer.wait()
        await a.client.run("count", inputs={"text": "1"})  # time enough for the second to be sent, if it could be
        assert answer.count == 1
        answer.release()
        await asyncio.gather(*both)
        assert a.plane.membership.has_lease


async def test_no_call_is_accepted_between_two_lives() -> None:
    """In a fight over an identifier the new life takes its time; a call of the old one would be nobody's."""
    async with cluster() as (a, b):
        old, begins = a.epoch, asyncio.Event()
        with mock.patch.object(a.plane.membership, "_pause_in_a_fight", begins.wait):
            a.end_life()
            beginning = asyncio.create_task(a.plane.membership.tick())
            await eventually(lambda: a.epoch == 0)
            for fields in ({}, {"session": "sessions/s"}, {"request_id": "r"}):
                with pytest.raises(OmniFlowError) as refused:
                    await a.client.run("gate", inputs={"text": "x"}, **fields)
                assert refused.value.reason is Reason.STORE_UNAVAILABLE
                assert refused.value.info.retry_after_s is not None
            begins.set()
            await beginning
        assert a.epoch > old
        await tick(a, b, count=1)
        stream = a.client.stream("gate", inputs={"text": "x"})
        call_id = (await stream.expect("accepted")).accepted.call_id
        assert a.owns(call_id)
        assert (await b.client.get(call_id)).graph == "graphs/gate"
        assert Gate.began == ["x"]


# --- lives of replicas ------------------------------------------------------------------------------------------------


async def test_replaced_life_is_refused_where_the_newer_one_is_not_known_yet(
    old: ScriptedRole, new: ScriptedRole
) -> None:
    async with cluster() as (a, b):
        late = hold(b.line, "tick")
        await late.wait()
        await a.register(old)
        await a.register(new)
        assert await _refused(b, old) is Reason.STALE_EPOCH
        assert _life(b) is None
        late.release()
        await eventually(lambda: _life(b) == "2" and _is_connected(b))
        assert _life(a) == "2"


async def test_replaced_life_is_refused_where_only_the_newer_one_is_known(old: ScriptedRole, new: ScriptedRole) -> None:
    async with cluster() as (a, b):
        await b.plane.install(b.plane.catalog.compile(REMOTE.spec()))
        late = hold(b.line, "tick")
        await late.wait()
        await a.register(old)
        lease = (await a.register(new)).lease_id
        late.release()
        await eventually(lambda: _is_connected(b))
        assert list(b.plane.registry.replicas()[0].replaced) == []
        stream = b.client.stream("remote", inputs={"text": "hi"})
        (work,) = await new.next_work(1)
        assert await _refused(b, old) is Reason.STALE_EPOCH
        await tick(a, b)
        assert (_life(a), _life(b), len(new.streams)) == ("2", "2", 2)
        await _end(work)
        events, error = await stream.rest()
        assert (events[-1].WhichOneof("event"), error) == ("finished", None)
        assert _kept(a, lease) is not None


async def test_late_tick_does_not_bring_an_older_life_back(old: ScriptedRole, new: ScriptedRole) -> None:
    """The store answered it before the newer life registered."""
    async with cluster() as (a, b):
        late = hold(a.line, "tick", when=lambda answer: any(row.name == KEY for row in answer.changed))
        await a.register(old)
        await late.wait()
        await a.register(new)
        late.release()
        await tick(a, b)
        assert (_life(a), _life(b)) == ("2", "2")
        lease = (await a.register(new)).lease_id  # it may have been asked to, and must not be refused
        assert _kept(a, lease) is not None
        await tick(a, b)
        await eventually(lambda: len(new.streams) == 2 and _is_connected(a) and _is_connected(b))
        assert await _refused(b, old) is Reason.STALE_EPOCH


async def test_life_that_registers_here_and_there_keeps_its_streams() -> None:
    async with ScriptedRole("test.exclaim") as role, cluster() as (a, b):
        leases: list[str] = []
        for here, there in [(a, b), (b, a)] * 3:
            lease = (await here.register(role)).lease_id
            await tick(here, there)
            assert _kept(here, lease) is not None
            known = there.plane.registry.find(*KEY)
            assert known is not None
            assert (known.is_adopted, known.lease_id) == (True, lease)
            assert [_kept(member, earlier) for member in (a, b) for earlier in leases] == [None] * 2 * len(leases)
            leases.append(lease)
        await eventually(lambda: _is_connected(a) and _is_connected(b))
        assert len(role.streams) == 2
        await b.plane.directory.deregister(leases[-1])
        await role.stop()
        await eventually(lambda: not a.plane.registry.replicas() and not b.plane.registry.replicas())
        await tick(a, b)
        for member in (a, b):
            assert (member.plane.directory._adopted, member.plane.directory._reported) == ({}, {})
            assert member.plane.registry._by_lease == {}


async def test_replica_that_leaves_while_its_registration_is_on_its_way_is_forgotten() -> None:
    async with ScriptedRole("test.exclaim") as role, cluster() as (a, b):
        late = hold(a.line, "tick", when=lambda answer: any(row.name == KEY for row in answer.changed))
        lease = (await a.register(role)).lease_id
        await late.wait()
        await a.plane.directory.deregister(lease)
        await role.stop()
        late.release()
        await tick(a, b)
        await eventually(lambda: _life(a) is None and _life(b) is None)
        assert (a.plane.directory._adopted, b.plane.directory._adopted) == ({}, {})


async def test_replica_that_leaves_while_the_store_is_away_is_forgotten_by_all_when_its_lease_ends() -> None:
    async with ScriptedRole("test.exclaim") as role, cluster(lease_ttl_s=0.3) as (a, b):
        lease = (await a.register(role)).lease_id
        await eventually(lambda: _is_connected(a) and _is_connected(b))
        a.line.is_cut = True
        with pytest.raises(OmniFlowError) as away:
            await a.plane.directory.deregister(lease)
        assert away.value.reason is Reason.STORE_UNAVAILABLE
        assert _life(a) is None
        a.line.is_cut = False
        await role.stop()
        await eventually(lambda: not a.line.store._rows.replicas)
        await tick(a, b)
        await eventually(lambda: _life(a) is None and _life(b) is None)
