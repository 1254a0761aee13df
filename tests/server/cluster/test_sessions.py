"""Sessions and their fences while calls are placed, renewed and given up: never two owners at once."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server import compose
from omniflow_server.control.ownership import IDLE_S
from tests.roles.running import eventually
from tests.server.cluster.clusters import SESSION, Member, cluster, gone, hold, own, tick
from tests.server.rpc.client import is_terminal
from tests.support.interfaces import Gate

NAME = ("default", SESSION)
OTHER, OTHER_NAME = "sessions/other", ("default", "sessions/other")


def _pass_time(member: Member, seconds: float) -> None:
    """So long has the session had no call."""
    member.plane.ownership._held[NAME].idle_since_s -= seconds


def _fence(member: Member, name: tuple[str, str] = NAME) -> int:
    fence = member.plane.ownership.fence_of(name)
    assert fence is not None
    return fence


async def test_idle_session_is_kept_for_a_call_that_is_being_placed() -> None:
    async with cluster() as (a, b):
        await own(a)
        fence = _fence(a)
        _pass_time(a, IDLE_S - 0.01)
        claim = hold(a.line, "claim_requests")
        placed = a.client.stream("gate", inputs={"text": "x"}, session=SESSION, request_id="r")
        await claim.wait()
        _pass_time(a, 0.02)
        await a.plane.ownership.keep()
        claim.release()
        await eventually(lambda: Gate.began == ["x"])
        assert a.owns((await placed.expect("accepted")).accepted.call_id)
        following = b.client.stream("gate", inputs={"text": "y"}, session=SESSION)
        assert a.owns((await following.expect("accepted")).accepted.call_id)
        assert (_fence(a), Gate.began) == (fence, ["x"])


async def test_session_under_a_new_fence_keeps_the_count_of_its_calls() -> None:
    async with cluster() as (a, b):
        first = a.client.stream("gate", inputs={"text": "1"}, session=SESSION)
        await eventually(lambda: Gate.began == ["1"])
        fence = _fence(a)
        a.line.store._rows.sessions.remove(NAME)
        await a.plane.ownership.renew_all()
        assert _fence(a) > fence
        second = a.client.stream("gate", inputs={"text": "2"}, session=SESSION)
        await second.expect("accepted")
        Gate.gates["1"].set()
        await first.rest()
        await eventually(lambda: Gate.began == ["1", "2"])
        _pass_time(a, 60)
        await a.plane.ownership.keep()
        third = b.client.stream("gate", inputs={"text": "3"}, session=SESSION)
        assert a.owns((await third.expect("accepted")).accepted.call_id), "the second call holds it"
        assert Gate.began == ["1", "2"]
        Gate.gates["2"].set()
        await eventually(lambda: Gate.began == ["1", "2", "3"])


async def test_session_claimed_again_keeps_the_count_of_its_calls() -> None:
    """Its lease was in doubt, so the store was asked for a session that was held all the while."""
    async with cluster() as (a, b):
        first = a.client.stream("gate", inputs={"text": "1"}, session=SESSION)
        await eventually(lambda: Gate.began == ["1"])
        a.line.store._rows.sessions.remove(NAME)
        a.plane.membership._lease_end_s = 0.0
        second = a.client.stream("gate", inputs={"text": "2"}, session=SESSION)
        await second.expect("accepted")
        assert a.plane.ownership._held[NAME].calls == 2
        Gate.gates["1"].set()
        assert is_terminal((await first.rest())[0][-1])
        _pass_time(a, 60)
        await a.plane.ownership.keep()
        third = b.client.stream("gate", inputs={"text": "3"}, session=SESSION)
        assert a.owns((await third.expect("accepted")).accepted.call_id)


async def test_call_that_was_placed_in_an_earlier_life_is_not_accepted() -> None:
    async with cluster() as (a, b):
        claim, old = hold(a.line, "claim_requests"), a.epoch
        placed = a.client.stream("gate", inputs={"text": "x"}, session=SESSION, request_id="r")
        await claim.wait()
        await gone(a, b)
        taken = b.client.stream("gate", inputs={"text": "y"}, session=SESSION)
        await eventually(lambda: Gate.began == ["y"])
        a.line.is_cut = False
        await eventually(lambda: a.epoch not in (0, old) and a.plane.membership.has_lease)
        claim.release()
        events, error = await placed.rest()
        assert events == []
        assert error is not None
        assert error.reason is Reason.STORE_UNAVAILABLE
        assert error.info.retry_after_s is not None
        assert (a.plane.calls.active_count, a.plane.ownership.session_count) == (0, 0)
        Gate.gates["y"].set()
        assert is_terminal((await taken.rest())[0][-1])
        assert Gate.began == ["y"]


async def test_session_whose_release_failed_is_released_by_the_next_turn_of_a_drain() -> None:
    async with cluster() as (a, b):
        long = a.client.stream("gate", inputs={"text": "long"})
        await eventually(lambda: Gate.began == ["long"])
        await own(a)

        async def refuse(*_: object, **__: object) -> None:
            raise OmniFlowError(Reason.STORE_UNAVAILABLE, "a hiccup", retry_after_s=0.05)

        a.line.release_sessions = refuse  # type: ignore[attr-defined]
        draining = asyncio.create_task(compose.drain(a.plane, 20.0))
        await eventually(lambda: a.plane.membership.is_draining)
        await a.plane.ownership.keep()
        assert a.plane.ownership.session_count == 0
        assert a.line.store._rows.sessions.sweep(0) == 1
        del a.line.release_sessions
        await a.plane.ownership.keep()
        assert a.line.store._rows.sessions.sweep(0) == 0
        await own(b)
        assert not draining.done()
        Gate.gates["long"].set()
        await long.rest()
        await draining


async def test_session_that_is_claimed_again_is_not_released_after_all() -> None:
    async with cluster() as (a, _):
        await own(a)
        _pass_time(a, 60)
        a.line.is_cut = True
        await a.plane.ownership.keep()
        a.line.is_cut = False
        assert a.plane.ownership.fence_of(NAME) is None
        await own(a)
        await a.plane.ownership.keep()
        lease = a.line.store._rows.sessions.get(NAME, 0)
        assert lease is not None
        assert (lease.epoch, lease.fence) == (a.epoch, _fence(a))


async def test_renewal_of_an_earlier_life_does_not_lower_the_fence() -> None:
    async with cluster() as (a, _):
        await own(a)
        a.plane.ownership._held[NAME].renew_s = 0.0
        renewal = hold(a.line, "claim_sessions")
        keeping = asyncio.create_task(a.plane.ownership.keep())
        await renewal.wait()
        renewal.resume()
        old = _fence(a)
        a.end_life()
        await tick(a)
        await own(a)
        fence = _fence(a)
        assert fence > old
        renewal.release()
        await keeping
        assert _fence(a) == fence


# --- the store was away -----------------------------------------------------------------------------------------------


async def test_all_sessions_are_renewed_at_once_whether_due_or_not() -> None:
    async with cluster() as (a, _):
        await own(a)
        await own(a, OTHER)
        fences = {name: _fence(a, name) for name in (NAME, OTHER_NAME)}
        a.line.store._rows.sessions.remove(OTHER_NAME)
        await a.plane.ownership.keep()
        assert _fence(a, OTHER_NAME) == fences[OTHER_NAME], "neither is due"
        a.line.asked.clear()
        await a.plane.ownership.renew_all()
        assert a.line.asked.count("claim_sessions") == 1
        assert _fence(a) == fences[NAME]
        assert _fence(a, OTHER_NAME) > fences[OTHER_NAME]
        a.line.asked.clear()
        await a.plane.ownership.keep()
        assert "claim_sessions" not in a.line.asked


async def test_renewal_that_fails_is_made_up_for_by_the_next_turn() -> None:
    async with cluster() as (a, _):
        await own(a)
        fence = _fence(a)
        a.line.store._rows.sessions.remove(NAME)
        a.line.is_cut = True
        await a.plane.ownership.renew_all()
        assert a.plane.ownership._held[NAME].fence == fence
        a.line.is_cut = False
        await a.plane.ownership.keep()
        assert _fence(a) > fence


@pytest.mark.parametrize("is_taken", [False, True])
async def test_return_of_the_store_renews_sessions_by_itself(is_taken: bool) -> None:
    async with cluster() as (a, b):
        await own(a)
        fence = _fence(a)
        a.line.store._rows.sessions.remove(NAME)
        if is_taken:
            await own(b)
        a.line.is_cut = True
        await tick(a, count=1)
        a.line.is_cut = False
        await tick(a, count=1)
        if is_taken:
            await eventually(lambda: a.plane.ownership.session_count == 0)
            assert b.owns((await a.client.run("count", inputs={"text": "1"}, session=SESSION)).call_id)
        else:
            await eventually(lambda: _fence(a) > fence)


async def test_session_whose_owner_ends_while_it_is_looked_for_is_taken_over() -> None:
    """The store has named the owner; by the next tick that life has ended."""
    async with cluster() as (a, b):
        await own(a)
        epoch = a.epoch
        b.plane.membership.owners = {b.epoch: b.plane.membership.own}
        a.line.is_cut = True
        claim = b.line.store.claim_sessions

        async def claim_then_end(*arguments: object, **options: object) -> object:
            answer = await claim(*arguments, **options)
            await a.line.store.close_owner(epoch)
            return answer

        with mock.patch.object(b.line.store, "claim_sessions", claim_then_end):
            answer = await b.client.run("count", inputs={"text": "1"}, session=SESSION)
        assert b.owns(answer.call_id)
