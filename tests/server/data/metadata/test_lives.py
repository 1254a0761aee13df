"""Lives of control planes: epochs, leases, pauses, and what a life that has ended may not do."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.port import GraphRow, MetadataStore
from tests.server.data.metadata.contract import KEEP_S, World, opened, owner, replica, ticked

SESSION = ("tenant", "session")

WRITES: dict[str, Callable[[MetadataStore, int], Awaitable[Any]]] = {
    "tick": lambda store, epoch: ticked(store, epoch, is_draining=True),
    "register_replica": lambda store, epoch: store.register_replica(epoch, replica("0", incarnation="i2"), ttl_s=9.0),
    "remove_replica": lambda store, epoch: store.remove_replica(epoch, replica("0").lease_id, ("llm", "0")),
    "drain_replica": lambda store, epoch: store.drain_replica(epoch, ("llm", "0"), grace_s=1.0, state=3),
    "claim_sessions": lambda store, epoch: store.claim_sessions(epoch, [("tenant", "free")], keep_s=KEEP_S),
    "release_sessions": lambda store, epoch: store.release_sessions(epoch, [SESSION]),
    "claim_requests": lambda store, epoch: store.claim_requests(epoch, [("tenant", "new", "c", b"d")], keep_s=KEEP_S),
    "renew_requests": lambda store, epoch: store.renew_requests(epoch, [("tenant", "request")], keep_s=KEEP_S),
    "release_requests": lambda store, epoch: store.release_requests(epoch, [("tenant", "request", "call")]),
    "put_graph": lambda store, epoch: store.put_graph(epoch, GraphRow(name="graph", version=2, payload=b"new")),
}


async def everything(store: MetadataStore, epoch: int) -> tuple[object, ...]:
    """What can be read of the store, by an owner that lives."""
    return (
        await ticked(store, epoch),
        await store.graphs(),
        await store.find_request("tenant", "request"),
        await store.find_request("tenant", "new"),
        await store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S),
        await store.key_count(),
    )


async def test_open_owner_gives_epochs_that_grow(world: World) -> None:
    first = await opened(world.store, "a")
    second = await opened(world.store, "b")
    third = await opened(world.store, "a", "2")
    assert first < second < third


async def test_open_owner_again_answers_the_same_epoch(world: World) -> None:
    epoch = await opened(world.store, "a")
    assert await opened(world.store, "a") == epoch
    assert [each.epoch for each in (await ticked(world.store, epoch)).owners] == [epoch]


async def test_open_owner_of_a_newer_incarnation_ends_the_earlier_life(world: World) -> None:
    before = await opened(world.store, "a")
    other = await opened(world.store, "b")
    after = await opened(world.store, "a", "2")
    assert [each.epoch for each in (await ticked(world.store, other)).owners] == [other, after]
    with pytest.raises(OmniFlowError) as caught:
        await ticked(world.store, before)
    assert caught.value.reason is Reason.STALE_OWNER
    assert caught.value.info.metadata == {"epoch": str(before)}


async def test_tick_lists_the_owners_as_they_are(world: World) -> None:
    a = await opened(world.store, "a")
    b = await world.store.open_owner(owner("b", is_draining=True), ttl_s=1.5)
    expected = [dataclasses.replace(owner("a"), epoch=a), dataclasses.replace(owner("b"), epoch=b, is_draining=True)]
    assert list((await ticked(world.store, a)).owners) == expected
    await ticked(world.store, a, is_draining=True)
    expected[0] = dataclasses.replace(expected[0], is_draining=True)
    expected[1] = dataclasses.replace(expected[1], is_draining=False)
    assert list((await ticked(world.store, b)).owners) == expected


@pytest.mark.parametrize("write", WRITES)
async def test_write_of_a_replaced_life_is_refused_and_changes_nothing(world: World, write: str) -> None:
    stale = await opened(world.store, "a")
    await opened(world.store, "a", "2")
    living = await opened(world.store, "b")
    await world.store.register_replica(living, replica("0"), ttl_s=9.0)
    await world.store.claim_sessions(living, [SESSION], keep_s=KEEP_S)
    await world.store.claim_requests(living, [("tenant", "request", "call", b"digest")], keep_s=KEEP_S)
    await world.store.put_graph(living, GraphRow(name="graph", version=1, payload=b"old"))
    before = await everything(world.store, living)
    with pytest.raises(OmniFlowError) as caught:
        await WRITES[write](world.store, stale)
    assert caught.value.reason is Reason.STALE_OWNER
    assert await everything(world.store, living) == before
    await WRITES[write](world.store, living)


@pytest.mark.parametrize("write", [name for name in WRITES if name.endswith("s")])
async def test_write_of_nothing_by_a_replaced_life_is_refused_too(world: World, write: str) -> None:
    stale = await opened(world.store, "a")
    living = await opened(world.store, "a", "2")
    options = {} if write.startswith("release") else {"keep_s": KEEP_S}
    method = getattr(world.store, write)
    assert await method(living, [], **options) in ([], None)
    with pytest.raises(OmniFlowError) as caught:
        await method(stale, [], **options)
    assert caught.value.reason is Reason.STALE_OWNER


async def test_close_owner_frees_its_sessions_at_once(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    (held,) = await world.store.claim_sessions(a, [SESSION], keep_s=KEEP_S)
    await world.store.close_owner(a)
    (taken,) = await world.store.claim_sessions(b, [SESSION], keep_s=KEEP_S)
    assert (held.epoch, taken.epoch) == (a, b)
    assert taken.fence > held.fence
    assert [each.owner_id for each in (await ticked(world.store, b)).owners] == ["b"]


async def test_close_owner_of_an_unknown_epoch_changes_nothing(world: World) -> None:
    epoch = await opened(world.store, "a")
    await world.store.close_owner(12345)
    await world.store.close_owner(epoch)
    await world.store.close_owner(epoch)
    assert (await ticked(world.store, b := await opened(world.store, "b"))).owners[0].epoch == b


async def test_epochs_and_fences_grow_after_a_wipe(world: World) -> None:
    before = await opened(world.store, "a")
    (held,) = await world.store.claim_sessions(before, [SESSION], keep_s=KEEP_S)
    told = await ticked(world.store, before)
    await world.wipe()
    with pytest.raises(OmniFlowError) as caught:
        await ticked(world.store, before, since=told)
    assert caught.value.reason is Reason.STALE_OWNER
    after = await opened(world.store, "a")
    (taken,) = await world.store.claim_sessions(after, [SESSION], keep_s=KEEP_S)
    assert after > held.fence > before
    assert taken.fence > after


async def test_tick_after_a_wipe_tells_of_another_store_and_snapshots(world: World) -> None:
    before = await opened(world.store, "a")
    await world.store.register_replica(before, replica("0"), ttl_s=9.0)
    told = await ticked(world.store, before)
    await world.wipe()
    again = await ticked(world.store, await opened(world.store, "a"), since=told)
    assert again.store_incarnation not in ("", told.store_incarnation)
    assert (again.is_snapshot, again.changed, again.removed, again.replica_revision) == (True, (), (), 0)


async def test_lease_ends_a_life_after_its_time_and_not_before(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    for step_s in (0.5, 0.5, 0.499):
        world.clock.advance(step_s)
        assert [each.epoch for each in (await ticked(world.store, b)).owners] == [a, b]
    world.clock.advance(0.001)
    assert [each.epoch for each in (await ticked(world.store, b)).owners] == [b]
    with pytest.raises(OmniFlowError) as caught:
        await ticked(world.store, a)
    assert caught.value.reason is Reason.STALE_OWNER


async def test_tick_renews_the_own_lease(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    for _ in range(8):
        world.clock.advance(0.75)
        await ticked(world.store, a)
        assert [each.epoch for each in (await ticked(world.store, b)).owners] == [a, b]


async def test_no_lease_ends_after_a_pause_before_everybody_could_come_back(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    world.clock.advance(10.0)
    for step_s in (0.0, 0.7, 0.799):
        world.clock.advance(step_s)
        assert [each.epoch for each in (await ticked(world.store, b)).owners] == [a, b]
    world.clock.advance(0.001)
    assert [each.epoch for each in (await ticked(world.store, b)).owners] == [b]


async def test_owner_that_comes_back_within_the_grace_lives_on(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    (held,) = await world.store.claim_sessions(a, [SESSION], keep_s=KEEP_S)
    world.clock.advance(10.0)
    await ticked(world.store, b)
    world.clock.advance(0.9)
    await ticked(world.store, a)
    world.clock.advance(0.9)
    assert [each.epoch for each in (await ticked(world.store, b)).owners] == [a, b]
    assert await world.store.claim_sessions(b, [SESSION], keep_s=KEEP_S) == [held]


async def test_claim_notices_a_pause_as_a_tick_does(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    (held,) = await world.store.claim_sessions(a, [SESSION], keep_s=KEEP_S)
    world.clock.advance(10.0)
    assert await world.store.claim_sessions(b, [SESSION], keep_s=KEEP_S) == [held]
    world.clock.advance(0.9)
    await ticked(world.store, b)
    world.clock.advance(0.599)
    assert await world.store.claim_sessions(b, [SESSION], keep_s=KEEP_S) == [held]
    world.clock.advance(0.001)
    (taken,) = await world.store.claim_sessions(b, [SESSION], keep_s=KEEP_S)
    assert taken.epoch == b


async def test_claim_ends_the_whole_life_of_an_owner_whose_lease_has_run_out(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    await world.store.claim_sessions(a, [SESSION, ("tenant", "other")], keep_s=KEEP_S)
    world.clock.advance(0.9)
    await ticked(world.store, b)
    world.clock.advance(0.6)
    (taken,) = await world.store.claim_sessions(b, [SESSION], keep_s=KEEP_S)
    assert taken.epoch == b
    with pytest.raises(OmniFlowError) as caught:
        await world.store.claim_sessions(a, [("tenant", "other")], keep_s=KEEP_S)
    assert caught.value.reason is Reason.STALE_OWNER


async def test_owner_whose_lease_ran_out_goes_on_when_nobody_ended_it(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    (held,) = await world.store.claim_sessions(a, [SESSION], keep_s=KEEP_S)
    world.clock.advance(0.9)
    await ticked(world.store, b)
    world.clock.advance(0.8)
    assert await world.store.claim_sessions(a, [SESSION], keep_s=KEEP_S) == [held]
    await ticked(world.store, a)
    assert [each.epoch for each in (await ticked(world.store, b)).owners] == [a, b]
