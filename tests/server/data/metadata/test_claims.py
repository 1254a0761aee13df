"""Sessions and request ids: who has them, for how long, and that nothing is left of them."""

from __future__ import annotations

from omniflow_server.data.metadata.port import RequestRow, SessionLease
from tests.server.data.metadata.contract import KEEP_S, SHORT_S, World, opened

SESSION = ("tenant", "session")
REQUEST = ("tenant", "request", "call", b"digest")
ODD = [("a", "b:c"), ("a:b", "c"), ("", "a:b:c"), ("a", ""), ("ä}{", "*\n \x00"), ("1:a", "b")]


async def test_claim_sessions_gives_a_free_one_to_the_caller(world: World) -> None:
    epoch = await opened(world.store, "a")
    (first,) = await world.store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S)
    (second,) = await world.store.claim_sessions(epoch, [("tenant", "other")], keep_s=KEEP_S)
    assert (first.epoch, second.epoch) == (epoch, epoch)
    assert epoch < first.fence < second.fence


async def test_claim_sessions_of_a_held_one_answers_its_owner(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    held = await world.store.claim_sessions(a, [SESSION], keep_s=KEEP_S)
    assert await world.store.claim_sessions(b, [SESSION], keep_s=KEEP_S) == held
    assert await world.store.claim_sessions(a, [SESSION, SESSION], keep_s=KEEP_S) == held * 2


async def test_claim_sessions_answers_in_the_order_of_asking(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    names = [("tenant", f"s{index}") for index in range(600)]
    of_a = dict(zip(names[::3], await world.store.claim_sessions(a, names[::3], keep_s=KEEP_S), strict=True))
    found = await world.store.claim_sessions(b, names, keep_s=KEEP_S)
    assert [lease.epoch for lease in found] == [a if name in of_a else b for name in names]
    assert [found[index] for index in range(0, 600, 3)] == list(of_a.values())
    assert len({lease.fence for lease in found}) == 600


async def test_claim_sessions_tells_odd_names_apart(world: World) -> None:
    epoch = await opened(world.store, "a")
    found = await world.store.claim_sessions(epoch, ODD, keep_s=KEEP_S)
    assert len({lease.fence for lease in found}) == len(ODD)
    assert await world.store.claim_sessions(epoch, ODD, keep_s=KEEP_S) == found


async def test_claim_sessions_keeps_rows_for_their_time(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    (held,) = await world.store.claim_sessions(a, [SESSION], keep_s=SHORT_S)
    await world.rows_run_out(SHORT_S)
    (taken,) = await world.store.claim_sessions(b, [SESSION], keep_s=KEEP_S)
    assert taken.epoch == b
    assert taken.fence > held.fence


async def test_release_sessions_frees_what_the_caller_holds(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    (held,) = await world.store.claim_sessions(a, [SESSION], keep_s=KEEP_S)
    await world.store.release_sessions(b, [SESSION])
    assert await world.store.claim_sessions(b, [SESSION], keep_s=KEEP_S) == [held]
    await world.store.release_sessions(a, [SESSION, ("tenant", "unknown")])
    await world.store.release_sessions(a, [SESSION])
    (taken,) = await world.store.claim_sessions(b, [SESSION], keep_s=KEEP_S)
    assert taken == SessionLease(epoch=b, fence=taken.fence)
    assert taken.fence > held.fence
    await world.store.release_sessions(a, [SESSION])
    assert await world.store.claim_sessions(a, [SESSION], keep_s=KEEP_S) == [taken]


async def test_release_sessions_of_many_frees_all(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    names = [("tenant", f"s{index}") for index in range(600)]
    await world.store.claim_sessions(a, names, keep_s=KEEP_S)
    await world.store.release_sessions(a, names)
    assert {lease.epoch for lease in await world.store.claim_sessions(b, names, keep_s=KEEP_S)} == {b}


async def test_claim_requests_gives_a_free_one_to_the_caller(world: World) -> None:
    epoch = await opened(world.store, "a")
    row = RequestRow(call_id="call", epoch=epoch, digest=b"digest")
    assert await world.store.claim_requests(epoch, [REQUEST], keep_s=KEEP_S) == [row]
    assert await world.store.claim_requests(epoch, [REQUEST], keep_s=KEEP_S) == [row]
    assert await world.store.find_request("tenant", "request") == row


async def test_claim_requests_answers_the_row_that_is_there(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    row = RequestRow(call_id="call", epoch=a, digest=b"digest")
    await world.store.claim_requests(a, [REQUEST], keep_s=KEEP_S)
    for epoch, call_id in ((a, "call2"), (b, "call"), (b, "cal")):
        asked = [("tenant", "request", call_id, b"another")]
        assert await world.store.claim_requests(epoch, asked, keep_s=KEEP_S) == [row]
    await world.store.close_owner(a)
    assert await world.store.claim_requests(b, [("tenant", "request", "call2", b"")], keep_s=KEEP_S) == [row]


async def test_claim_requests_of_many_keeps_their_order_and_bytes(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    asked = [("t", f"r{index}", f"call {index} ä", bytes([index % 256, 32, 0, 10])) for index in range(600)]
    await world.store.claim_requests(a, asked[::2], keep_s=KEEP_S)
    found = await world.store.claim_requests(b, asked, keep_s=KEEP_S)
    assert found == [
        RequestRow(call_id=call_id, epoch=b if index % 2 else a, digest=digest)
        for index, (_, _, call_id, digest) in enumerate(asked)
    ]


async def test_claim_requests_tells_odd_names_apart(world: World) -> None:
    epoch = await opened(world.store, "a")
    asked = [(*name, f"call-{index}", b"") for index, name in enumerate(ODD)]
    found = await world.store.claim_requests(epoch, asked, keep_s=KEEP_S)
    assert [row.call_id for row in found] == [call_id for _, _, call_id, _ in asked]
    assert await world.store.find_request(*ODD[1]) == found[1]


async def test_find_request_of_an_unknown_one_is_none(world: World) -> None:
    await opened(world.store, "a")
    assert await world.store.find_request("tenant", "request") is None


async def test_claim_requests_keeps_rows_for_their_time(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    await world.store.claim_requests(a, [REQUEST], keep_s=SHORT_S)
    await world.rows_run_out(SHORT_S)
    assert await world.store.find_request("tenant", "request") is None
    await world.store.renew_requests(a, [("tenant", "request")], keep_s=KEEP_S)
    (row,) = await world.store.claim_requests(b, [("tenant", "request", "call2", b"other")], keep_s=KEEP_S)
    assert row == RequestRow(call_id="call2", epoch=b, digest=b"other")


async def test_release_requests_takes_back_the_callers_call_alone(world: World) -> None:
    a, b = await opened(world.store, "a"), await opened(world.store, "b")
    (row,) = await world.store.claim_requests(a, [REQUEST], keep_s=KEEP_S)
    await world.store.release_requests(b, [("tenant", "request", "call")])
    await world.store.release_requests(a, [("tenant", "request", "call2"), ("tenant", "unknown", "call")])
    assert await world.store.find_request("tenant", "request") == row
    await world.store.release_requests(a, [("tenant", "request", "call")])
    await world.store.release_requests(a, [("tenant", "request", "call")])
    assert await world.store.find_request("tenant", "request") is None


async def test_release_requests_of_many_takes_all_back(world: World) -> None:
    epoch = await opened(world.store, "a")
    asked = [("t", f"r{index}", f"c{index}", b"") for index in range(600)]
    await world.store.claim_requests(epoch, asked, keep_s=KEEP_S)
    before = await world.store.key_count()
    await world.store.renew_requests(epoch, [each[:2] for each in asked], keep_s=KEEP_S)
    await world.store.release_requests(epoch, [each[:3] for each in asked])
    assert before - await world.store.key_count() == 600


async def test_nothing_is_left_of_ten_thousand_claims(world: World) -> None:
    epoch = await opened(world.store, "a")
    before = await world.store.key_count()
    names = [("tenant", f"s{index}") for index in range(5_000)]
    for half in range(2):
        await world.store.claim_sessions(epoch, names, keep_s=(KEEP_S, SHORT_S)[half])
        asked = [("tenant", f"r{half}-{index}", "call", b"digest") for index in range(2_500)]
        await world.store.claim_requests(epoch, asked, keep_s=SHORT_S)
        if half == 0:
            await world.store.release_sessions(epoch, names)
    await world.rows_run_out(SHORT_S)
    assert await world.store.key_count() == before
