"""Replicas in the store: what ticks tell of them, their leases, incarnations and drains."""

from __future__ import annotations

import dataclasses

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.port import KEPT_CHANGES
from omniflow_server.data.metadata.refusals import REMEMBERED_INCARNATIONS
from tests.server.data.metadata.contract import REPLICA_TTL_S, World, opened, renewal, replica, ticked

DRAINING = 3


async def test_first_tick_is_a_snapshot(world: World) -> None:
    epoch = await opened(world.store, "a")
    rows = [replica("1", drain_grace_s=0.1), replica("0"), replica("0", role="asr")]
    for row in rows:
        await world.store.register_replica(epoch, row, ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch)
    assert told.is_snapshot
    assert told.changed == (rows[2], rows[1], rows[0])
    assert told.removed == ()


async def test_tick_without_changes_tells_none(world: World) -> None:
    epoch = await opened(world.store, "a")
    await world.store.register_replica(epoch, replica("0"), ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch)
    again = await ticked(world.store, epoch, since=told)
    assert dataclasses.replace(told, is_snapshot=False, changed=()) == again


async def test_tick_tells_what_was_registered_and_removed_since(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    for index in range(3):
        await world.store.register_replica(a, replica(str(index)), ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, b)
    await world.store.register_replica(a, replica("9"), ttl_s=REPLICA_TTL_S)
    await world.store.remove_replica(b, replica("1").lease_id, ("llm", "1"))
    again = await ticked(world.store, b, since=told)
    assert not again.is_snapshot
    assert again.changed == (replica("9"),)
    assert again.removed == (("llm", "1"),)
    assert again.replica_revision > told.replica_revision


async def test_tick_tells_one_thing_of_a_replica_that_came_back(world: World) -> None:
    epoch = await opened(world.store, "a")
    await world.store.register_replica(epoch, replica("0"), ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch)
    await world.store.remove_replica(epoch, replica("0").lease_id, ("llm", "0"))
    await world.store.register_replica(epoch, replica("0", incarnation="i2"), ttl_s=REPLICA_TTL_S)
    again = await ticked(world.store, epoch, since=told)
    assert (again.changed, again.removed) == ((replica("0", incarnation="i2"),), ())


async def test_remove_replica_of_another_lease_changes_nothing(world: World) -> None:
    epoch = await opened(world.store, "a")
    await world.store.register_replica(epoch, replica("0"), ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch)
    await world.store.remove_replica(epoch, "another", ("llm", "0"))
    await world.store.remove_replica(epoch, "another", ("llm", "unknown"))
    assert await ticked(world.store, epoch) == told


async def test_renewal_with_another_state_makes_a_revision_and_a_load_alone_does_not(world: World) -> None:
    epoch = await opened(world.store, "a")
    row = replica("0")
    await world.store.register_replica(epoch, row, ttl_s=REPLICA_TTL_S)
    first = await ticked(world.store, epoch)
    loaded = await ticked(world.store, epoch, renewals=[renewal(row, load=b"more")], since=first)
    assert (loaded.changed, loaded.replica_revision) == ((), first.replica_revision)
    assert (await ticked(world.store, epoch)).changed == (dataclasses.replace(row, load=b"more"),)
    stated = await ticked(world.store, epoch, renewals=[renewal(row, state=1, load=b"less")], since=loaded)
    assert stated.changed == (dataclasses.replace(row, state=1, load=b"less"),)
    assert stated.replica_revision > loaded.replica_revision


async def test_renewal_of_an_unknown_lease_is_told_and_changes_nothing(world: World) -> None:
    epoch = await opened(world.store, "a")
    row = replica("0")
    await world.store.register_replica(epoch, row, ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch)
    renewals = [
        renewal(row, lease_id="old", state=1),
        renewal(row),
        renewal(replica("unknown")),
    ]
    again = await ticked(world.store, epoch, renewals=renewals, since=told)
    assert again.unknown_leases == ("old", "lease-unknown-i1")
    assert again.changed == ()


async def test_lease_of_a_replica_ends_after_its_time_and_not_before(world: World) -> None:
    epoch = await opened(world.store, "a")
    kept, lost = replica("kept"), replica("lost")
    for row in (kept, lost):
        await world.store.register_replica(epoch, row, ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch)
    for step_s in (0.75, 0.75, 0.75, 0.749):
        world.clock.advance(step_s)
        assert (await ticked(world.store, epoch, renewals=[renewal(kept)], since=told)).removed == ()
    world.clock.advance(0.001)
    ended = await ticked(world.store, epoch, renewals=[renewal(kept)], since=told)
    assert (ended.changed, ended.removed) == ((), (("llm", "lost"),))
    world.clock.advance(0.001)
    late = await ticked(world.store, epoch, renewals=[renewal(lost)], since=ended)
    assert late.unknown_leases == (lost.lease_id,)


async def test_no_lease_of_a_replica_ends_after_a_pause_before_it_could_come_back(world: World) -> None:
    epoch = await opened(world.store, "a")
    await world.store.register_replica(epoch, replica("0"), ttl_s=REPLICA_TTL_S)
    world.clock.advance(60.0)
    told = await ticked(world.store, epoch)
    for step_s in (0.9, 0.9, 0.9, 0.299):
        world.clock.advance(step_s)
        assert (await ticked(world.store, epoch, since=told)).removed == ()
    world.clock.advance(0.001)
    assert (await ticked(world.store, epoch, since=told)).removed == (("llm", "0"),)


async def test_tick_that_is_too_far_behind_is_a_snapshot(world: World) -> None:
    epoch = await opened(world.store, "a")
    first = await ticked(world.store, epoch)
    rows = [replica(str(index)) for index in range(KEPT_CHANGES + 2)]
    for row in rows:
        await world.store.register_replica(epoch, row, ttl_s=REPLICA_TTL_S)
    whole = await ticked(world.store, epoch, since=first)
    assert len(whole.changed) == KEPT_CHANGES + 2
    await world.store.remove_replica(epoch, rows[0].lease_id, rows[0].name)
    second = await ticked(world.store, epoch, since=whole)
    assert second.removed == (rows[0].name,)
    for row in rows[1:-1]:
        await world.store.remove_replica(epoch, row.lease_id, row.name)
    behind = await ticked(world.store, epoch, since=whole)
    assert (behind.is_snapshot, behind.changed, behind.removed) == (True, (rows[-1],), ())
    just_not = await ticked(world.store, epoch, since=second)
    assert not just_not.is_snapshot
    assert len(just_not.removed) == KEPT_CHANGES


async def test_tick_with_a_revision_from_nowhere_is_a_snapshot(world: World) -> None:
    epoch = await opened(world.store, "a")
    await world.store.register_replica(epoch, replica("0"), ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch)
    ahead = dataclasses.replace(told, replica_revision=told.replica_revision + 1)
    assert (await ticked(world.store, epoch, since=ahead)).is_snapshot
    foreign = dataclasses.replace(told, store_incarnation="another")
    assert (await ticked(world.store, epoch, since=foreign)).changed == (replica("0"),)


async def test_many_replicas_are_told_renewed_and_ended(world: World) -> None:
    epoch = await opened(world.store, "a")
    rows = [replica(f"{index:03}") for index in range(600)]
    for row in rows:
        await world.store.register_replica(epoch, row, ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch)
    assert told.changed == tuple(rows)
    renewals = [renewal(row, state=1) for row in rows] + [renewal(replica("unknown"))]
    again = await ticked(world.store, epoch, renewals=renewals, since=told)
    assert again.changed == tuple(dataclasses.replace(row, state=1) for row in rows)
    assert again.unknown_leases == ("lease-unknown-i1",)
    for _ in range(4):
        world.clock.advance(0.75)
        last = await ticked(world.store, epoch, since=again)
    assert last.removed == tuple(row.name for row in rows)


async def test_register_replica_refuses_an_incarnation_that_was_replaced(world: World) -> None:
    epoch = await opened(world.store, "a")
    for incarnation in ("i1", "i2", "i3"):
        await world.store.register_replica(epoch, replica("0", incarnation=incarnation), ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch)
    for incarnation in ("i1", "i2"):
        with pytest.raises(OmniFlowError, match="give it a replica identifier of its own") as caught:
            await world.store.register_replica(epoch, replica("0", incarnation=incarnation), ttl_s=REPLICA_TTL_S)
        assert caught.value.reason is Reason.STALE_EPOCH
        assert caught.value.info.metadata == {"incarnation_id": "i3"}
    assert await ticked(world.store, epoch) == told
    await world.store.register_replica(epoch, replica("1", incarnation="i1"), ttl_s=REPLICA_TTL_S)


async def test_register_replica_remembers_the_last_incarnations(world: World) -> None:
    epoch = await opened(world.store, "a")
    for index in range(REMEMBERED_INCARNATIONS + 2):
        await world.store.register_replica(epoch, replica("0", incarnation=f"i{index}"), ttl_s=REPLICA_TTL_S)
    with pytest.raises(OmniFlowError, match="i1 of replica"):
        await world.store.register_replica(epoch, replica("0", incarnation="i1"), ttl_s=REPLICA_TTL_S)
    await world.store.register_replica(epoch, replica("0", incarnation="i0"), ttl_s=REPLICA_TTL_S)


async def test_register_replica_again_takes_the_new_lease(world: World) -> None:
    epoch = await opened(world.store, "a")
    await world.store.register_replica(epoch, replica("0"), ttl_s=REPLICA_TTL_S)
    row = replica("0", lease_id="new", payload=b"other", registrar=8)
    await world.store.register_replica(epoch, row, ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch, renewals=[renewal(replica("0")), renewal(row)])
    assert told.changed == (row,)
    assert told.unknown_leases == (replica("0").lease_id,)


async def test_drain_replica_sets_its_grace_and_state(world: World) -> None:
    epoch = await opened(world.store, "a")
    await world.store.register_replica(epoch, replica("0"), ttl_s=REPLICA_TTL_S)
    told = await ticked(world.store, epoch)
    await world.store.drain_replica(epoch, ("llm", "0"), grace_s=0.1, state=DRAINING)
    again = await ticked(world.store, epoch, since=told)
    assert again.changed == (replica("0", drain_grace_s=0.1, state=DRAINING),)
    await world.store.drain_replica(epoch, ("llm", "0"), grace_s=0.1, state=DRAINING)
    assert (await ticked(world.store, epoch, since=again)).changed == ()


async def test_drain_replica_that_is_unknown_is_refused(world: World) -> None:
    epoch = await opened(world.store, "a")
    with pytest.raises(OmniFlowError, match="no replica 0 of role llm is registered") as caught:
        await world.store.drain_replica(epoch, ("llm", "0"), grace_s=1.0, state=DRAINING)
    assert caught.value.reason is Reason.UNKNOWN_RESOURCE


@pytest.mark.parametrize(
    ("incarnation", "drain_grace_s", "state", "kept"),
    [
        ("i1", None, DRAINING, 5.0),
        ("i1", None, 2, None),
        ("i1", 1.0, DRAINING, 1.0),
        ("i2", None, DRAINING, None),
    ],
    ids=["same", "ready-again", "own-drain", "newer-incarnation"],
)
async def test_register_replica_again_keeps_a_drain_that_was_asked_for(
    world: World, incarnation: str, drain_grace_s: float | None, state: int, kept: float | None
) -> None:
    epoch = await opened(world.store, "a")
    await world.store.register_replica(epoch, replica("0"), ttl_s=REPLICA_TTL_S)
    await world.store.drain_replica(epoch, ("llm", "0"), grace_s=5.0, state=DRAINING)
    row = replica("0", incarnation=incarnation, drain_grace_s=drain_grace_s, state=state)
    await world.store.register_replica(epoch, row, ttl_s=REPLICA_TTL_S)
    assert (await ticked(world.store, epoch)).changed == (dataclasses.replace(row, drain_grace_s=kept),)


async def test_replicas_leave_nothing_but_the_kept_removals(world: World) -> None:
    epoch = await opened(world.store, "a")
    for index in range(KEPT_CHANGES):
        await world.store.register_replica(epoch, row := replica(str(index)), ttl_s=REPLICA_TTL_S)
        await world.store.remove_replica(epoch, row.lease_id, row.name)
    full = await world.store.key_count()
    for index in range(KEPT_CHANGES):
        await world.store.register_replica(epoch, row := replica(f"more-{index}"), ttl_s=REPLICA_TTL_S)
        await world.store.remove_replica(epoch, row.lease_id, row.name)
    assert await world.store.key_count() == full
