"""What only the store in memory can show: rows' lives by its clock, and that nothing waits."""

from __future__ import annotations

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.expiring import Expiring
from omniflow_server.data.metadata.memory import MemoryStore
from omniflow_server.data.metadata.port import Owner, RequestRow
from omniflow_server.data.metadata.times import whole_ms
from tests.server.data.metadata.contract import MemoryWorld, opened, owner, ticked

SESSION = ("tenant", "session")


async def test_claim_sessions_renews_what_the_caller_holds() -> None:
    world = MemoryWorld()
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    (held,) = await world.store.claim_sessions(a, [SESSION], keep_s=10.0)
    world.clock.advance(0.9)
    await ticked(world.store, a)
    world.clock.advance(0.6)
    await world.store.claim_sessions(a, [SESSION], keep_s=10.0)
    for _ in range(19):
        world.clock.advance(0.5)
        await ticked(world.store, a)
    b = await opened(world.store, "b", "2")
    assert await world.store.claim_sessions(b, [SESSION], keep_s=10.0) == [held]
    world.clock.advance(0.5)
    (taken,) = await world.store.claim_sessions(b, [SESSION], keep_s=10.0)
    assert taken.epoch == b


async def test_renew_requests_keeps_rows_of_the_caller_alone() -> None:
    world = MemoryWorld()
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    for epoch, request_id in ((a, "mine"), (b, "theirs")):
        await world.store.claim_requests(epoch, [("t", request_id, "call", b"d")], keep_s=10.0)
    world.clock.advance(5.0)
    await world.store.renew_requests(a, [("t", "mine"), ("t", "theirs"), ("t", "unknown")], keep_s=10.0)
    world.clock.advance(5.0)
    assert await world.store.find_request("t", "theirs") is None
    world.clock.advance(4.999)
    assert await world.store.find_request("t", "mine") == RequestRow(call_id="call", epoch=a, digest=b"d")
    world.clock.advance(0.001)
    assert await world.store.find_request("t", "mine") is None


async def test_claim_requests_again_renews_the_row() -> None:
    world = MemoryWorld()
    epoch = await opened(world.store, "a")
    await world.store.claim_requests(epoch, [("t", "r", "call", b"d")], keep_s=10.0)
    world.clock.advance(9.0)
    await world.store.claim_requests(epoch, [("t", "r", "call", b"d")], keep_s=10.0)
    await world.store.claim_requests(epoch, [("t", "r", "another", b"d")], keep_s=90.0)
    world.clock.advance(9.999)
    assert await world.store.find_request("t", "r") is not None
    world.clock.advance(0.001)
    assert await world.store.find_request("t", "r") is None


def test_methods_never_suspend() -> None:
    store = MemoryStore(lambda: 1_000.0)
    coroutine = store.open_owner(owner("a"), ttl_s=1.5)
    with pytest.raises(StopIteration) as caught:
        coroutine.send(None)
    assert caught.value.value == 1_000_000_000


async def test_store_of_a_restarted_process_gives_higher_epochs() -> None:
    before = MemoryStore(lambda: 1_000.0)
    epochs = [await before.open_owner(owner("a", str(index)), ttl_s=1.5) for index in range(3)]
    after = await MemoryStore(lambda: 1_000.001).open_owner(owner("a", "new"), ttl_s=1.5)
    assert after > max(epochs)


async def test_life_of_a_wiped_store_is_refused() -> None:
    world = MemoryWorld()
    epoch = await opened(world.store, "a")
    world.store.wipe()
    with pytest.raises(OmniFlowError) as caught:
        await world.store.release_sessions(epoch, [])
    assert caught.value.reason is Reason.STALE_OWNER


def test_expiring_entries_are_gone_at_their_time_and_taken_away_while_it_grows() -> None:
    entries: Expiring[int, Owner | str] = Expiring()
    for index in range(10_000):
        entries.put(index, "row", now_ms=index, keep_ms=10)
    assert entries.get(9_999, 10_008) == "row"
    assert entries.get(9_999, 10_009) is None
    assert len(entries._entries) <= 512
    assert entries.sweep(10_004) == 5


@pytest.mark.parametrize(("seconds", "ms"), [(0.0, 1), (0.0001, 1), (1.5, 1500), (0.3, 300), (0.0011, 2), (3.0, 3000)])
def test_whole_ms_rounds_up(seconds: float, ms: int) -> None:
    assert whole_ms(seconds) == ms
