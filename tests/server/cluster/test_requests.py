"""Request ids while they are claimed, renewed and given back: one id, one call."""

from __future__ import annotations

from unittest import mock

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control import calls as calls_module
from tests.roles.running import eventually
from tests.server.cluster.clusters import Member, cluster, hold
from tests.server.rpc.client import Event, EventReader, is_terminal
from tests.support.interfaces import Gate

NAME = ("default", "r")


def _sent(member: Member, content: str = "x") -> EventReader:
    return member.client.stream("gate", inputs={"text": content}, request_id="r")


async def _accepted(stream: EventReader) -> tuple[str, bool]:
    """The call, and whether the request has joined it."""
    accepted = (await stream.expect("accepted")).accepted
    return accepted.call_id, accepted.is_replayed


async def _refusal(stream: EventReader) -> Reason:
    events, error = await stream.rest()
    assert events == []
    assert error is not None
    return error.reason


async def _call_in_store(member: Member) -> str | None:
    row = await member.line.store.find_request(*NAME)
    return row.call_id if row is not None else None


async def _renew(member: Member) -> None:
    """The turn in which the row is due."""
    member.plane.ownership._requests = dict.fromkeys(member.plane.ownership._requests, 0.0)
    await member.plane.ownership.keep()


def _row_ms(member: Member) -> int:
    """When the store forgets the row."""
    return member.line.store._rows.requests._entries[NAME][0]


async def _later(member: Member) -> None:
    """The store's clock has moved."""
    before_ms = member.line.store._now_ms()
    await eventually(lambda: member.line.store._now_ms() > before_ms)


async def _leave(member: Member, stream: EventReader) -> None:
    """The caller has gone while its request id was being claimed, and the member knows it."""
    placement = member.plane.placement
    with mock.patch.object(placement, "_abandon", wraps=placement._abandon) as abandon:
        stream.call.cancel()
        await eventually(lambda: abandon.called)


async def _waiting(member: Member, content: str = "x") -> EventReader:
    """A repeat, which has come to where it waits for what becomes of the claim."""
    placement = member.plane.placement
    with mock.patch.object(placement, "find", wraps=placement.find) as find:
        stream = _sent(member, content)
        await eventually(lambda: find.called)
    return stream


def _finished(events: list[Event]) -> bool:
    return bool(events[-1].WhichOneof("event") == "finished")


async def test_request_whose_first_caller_left_is_claimed_for_the_call_of_the_second() -> None:
    async with cluster() as (a, b):
        claim = hold(a.line, "claim_requests")
        first = _sent(a)
        await claim.wait()
        await _leave(a, first)
        second = await _waiting(a)
        claim.release()
        call_id, is_joined = await _accepted(second)
        assert not is_joined
        assert await _call_in_store(b) == call_id
        assert await _accepted(_sent(b)) == (call_id, True)
        assert Gate.began == ["x"]


@pytest.mark.parametrize("leaves", [False, True])
async def test_row_of_a_request_is_renewed_while_its_call_runs(leaves: bool) -> None:
    """Also when the caller whose claim it was has left, and another one has come."""
    async with cluster() as (a, _):
        if leaves:
            claim = hold(a.line, "claim_requests")
            first = _sent(a)
            await claim.wait()
            await _leave(a, first)
            claim.release()
            await eventually(lambda: not a.plane.placement._placing)
            assert await _call_in_store(a) is None
        stream = _sent(a)
        call_id, _ = await _accepted(stream)
        for _ in range(3):
            before_ms = _row_ms(a)
            await _later(a)
            await _renew(a)
            assert _row_ms(a) > before_ms
        assert await _call_in_store(a) == call_id


async def test_row_of_a_request_is_kept_for_the_whole_time_after_its_call() -> None:
    """Its last renewal may have been long before the end."""
    async with cluster(ended_call_ttl_s=60.0) as (a, b):
        stream = _sent(a)
        call_id, _ = await _accepted(stream)
        Gate.gates["x"].set()
        assert _finished((await stream.rest())[0])
        end_ms = a.line.store._now_ms()
        await _later(a)
        await a.plane.ownership.keep()
        kept_ms = _row_ms(a)
        assert kept_ms - end_ms > 60_000 - 1
        await _later(a)
        await a.plane.ownership.keep()
        assert _row_ms(a) == kept_ms, "once is enough"
        assert await _accepted(_sent(b)) == (call_id, True)


async def test_renewal_after_the_end_is_made_up_for_when_the_store_was_away() -> None:
    async with cluster() as (a, _):
        stream = _sent(a)
        await stream.expect("accepted")
        before_ms = _row_ms(a)
        Gate.gates["x"].set()
        await stream.rest()
        await _later(a)
        a.line.is_cut = True
        await a.plane.ownership.keep()
        assert _row_ms(a) == before_ms
        a.line.is_cut = False
        await a.plane.ownership.keep()
        assert _row_ms(a) > before_ms


async def test_refusal_of_another_body_leaves_the_row_of_the_call_that_runs() -> None:
    async with cluster() as (a, b):
        claim = hold(a.line, "claim_requests")
        first = _sent(a)
        await claim.wait()
        other = await _waiting(a, "y")
        claim.release()
        call_id, _ = await _accepted(first)
        assert await _refusal(other) is Reason.REQUEST_ID_REUSED
        assert await _call_in_store(b) == call_id
        assert await _accepted(_sent(b)) == (call_id, True)
        assert Gate.began == ["x"]


async def test_repeat_of_a_call_that_its_owner_has_forgotten_does_not_run_it_again() -> None:
    with mock.patch.object(calls_module, "KEPT_CALLS", 1), mock.patch.object(calls_module, "KEPT_REQUEST_IDS", 1):
        async with cluster() as (a, b):
            made = [
                (await a.client.run("count", inputs={"text": "1"}, request_id=f"r{number}")).call_id
                for number in range(4)
            ]
            for member in (a, b):
                with pytest.raises(OmniFlowError, match=made[0]) as trimmed:
                    await member.client.run("count", inputs={"text": "1"}, request_id="r0")
                assert trimmed.value.reason is Reason.EVENTS_TRIMMED
                assert trimmed.value.info.metadata == {"call_id": made[0]}
            assert not a.plane.calls.knows(made[0])


async def test_twin_of_a_request_that_is_refused_leaves_nothing_of_the_id() -> None:
    """Both are placed at once, and the room for the first is taken meanwhile."""
    async with cluster(max_calls=1) as (a, b):
        claim = hold(a.line, "claim_requests")
        first = _sent(a)
        await claim.wait()
        twin = await _waiting(a)
        other = a.client.stream("gate", inputs={"text": "other"})
        await eventually(lambda: Gate.began == ["other"])
        claim.release()
        for stream in (first, twin):
            assert await _refusal(stream) is Reason.TOO_MANY_CALLS
        assert await _call_in_store(a) is None
        assert (a.plane.ownership._requests, a.plane.placement._placing, a.plane.placement._unborn) == ({}, {}, {})
        Gate.gates["other"].set()
        assert _finished((await other.rest())[0])
        again = [_sent(member) for member in (a, b, a)]
        accepted = [await _accepted(stream) for stream in again]
        assert len({call_id for call_id, _ in accepted}) == 1
        assert sorted(is_joined for _, is_joined in accepted) == [False, True, True]
        Gate.gates["x"].set()
        for stream in again:
            assert _finished((await stream.rest())[0])
        assert Gate.began == ["other", "x"]


async def test_twin_of_a_request_that_is_refused_runs_when_there_is_room_again() -> None:
    async with cluster(max_calls=1) as (a, b):
        claim = hold(a.line, "claim_requests")
        first = _sent(a)
        await claim.wait()
        other = a.client.stream("gate", inputs={"text": "other"})
        await eventually(lambda: Gate.began == ["other"])
        give_back = hold(a.line, "release_requests")
        claim.release()
        await give_back.wait()
        Gate.gates["other"].set()
        assert _finished((await other.rest())[0])
        twin = _sent(a)
        call_id, is_joined = await _accepted(twin)
        give_back.release()
        assert await _refusal(first) is Reason.TOO_MANY_CALLS
        assert not is_joined
        assert await _call_in_store(b) == call_id, "what was given back is the first one's claim"
        assert await _accepted(_sent(b)) == (call_id, True)
        Gate.gates["x"].set()
        assert is_terminal((await twin.rest())[0][-1])
        assert Gate.began == ["other", "x"]


async def test_row_that_cannot_be_given_back_is_the_repeats() -> None:
    """The store is away when the refused call's id is given back, and hears of it no more."""
    async with cluster(max_calls=1) as (a, b):
        claim = hold(a.line, "claim_requests")
        first = _sent(a)
        await claim.wait()
        other = a.client.stream("gate", inputs={"text": "other"})
        await eventually(lambda: Gate.began == ["other"])
        a.line.is_cut = True
        claim.release()
        assert await _refusal(first) is Reason.TOO_MANY_CALLS
        a.line.is_cut = False
        Gate.gates["other"].set()
        await other.rest()
        call_id, is_joined = await _accepted(repeat := _sent(a))
        assert (await _call_in_store(a), is_joined) == (call_id, False)
        assert await _accepted(_sent(b)) == (call_id, True)
        Gate.gates["x"].set()
        assert _finished((await repeat.rest())[0])


async def test_row_of_a_repeat_that_has_taken_over_a_claim_without_an_answer_is_renewed() -> None:
    async with cluster() as (a, _):
        claim = a.line.store.claim_requests

        async def take_without_an_answer(*arguments: object, **options: object) -> None:
            await claim(*arguments, **options)
            raise OmniFlowError(Reason.STORE_UNAVAILABLE, "no answer", retry_after_s=0.05)

        with mock.patch.object(a.line.store, "claim_requests", take_without_an_answer):
            _, error = await _sent(a).rest()
            assert error is not None
            assert error.reason is Reason.STORE_UNAVAILABLE
        await _accepted(_sent(a))
        before_ms = _row_ms(a)
        await _later(a)
        await _renew(a)
        assert _row_ms(a) > before_ms
