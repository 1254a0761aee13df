"""What only a real server can show: connections that break, scripts that are gone, servers that stop, and races."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.connection import Connection
from omniflow_server.data.metadata.embedded import is_answering, url_of
from omniflow_server.data.metadata.endpoint import Endpoint
from omniflow_server.data.metadata.port import GraphRow, RequestRow
from omniflow_server.data.metadata.scripts import all_scripts
from omniflow_server.data.metadata.server import connection_of
from omniflow_server.data.metadata.valkey import ValkeyStore
from tests.server.data.metadata.contract import (
    KEEP_S,
    REPLICA_TTL_S,
    TTL_S,
    ValkeyWorld,
    ask,
    opened,
    owner,
    renewal,
    replica,
    ticked,
)
from tests.support.processes import Process, is_running, wait_until

pytestmark = pytest.mark.integration

SESSION = ("tenant", "session")


@contextlib.asynccontextmanager
async def connected(folder: Path, *, timeout_s: float = 5.0, connection: Any = None) -> AsyncIterator[ValkeyStore]:
    """A store with the server's own clock."""
    store = ValkeyStore(
        connection or connection_of(url_of(folder / "store.sock")),
        namespace="own",
        address="unix://store.sock",
        timeout_s=timeout_s,
    )
    await store.start()
    try:
        yield store
    finally:
        await store.close()


class CountingConnection(Connection):
    """Counts what is written."""

    writes = 0

    async def send_packed_command(self, data: bytes) -> None:
        self.writes += 1
        await super().send_packed_command(data)


async def test_leases_run_by_the_clock_of_the_server(valkey: ValkeyWorld, store_socket: Path) -> None:
    async with connected(store_socket.parent) as store:
        seconds, micros = map(int, await valkey.raw("TIME"))
        epoch = await store.open_owner(owner("a"), ttl_s=TTL_S)
        assert 0 < epoch - (seconds * 1_000_000 + micros) < 5_000_000
        other = await store.open_owner(owner("b"), ttl_s=TTL_S)
        a_and_b = [each.epoch for each in (await ticked(store, other)).owners]
        assert a_and_b == [epoch, other]
        await store.close_owner(epoch)
        await store.close_owner(other)


async def test_concurrent_claims_of_one_session_give_one_owner(valkey: ValkeyWorld) -> None:
    clients = [valkey.store, await valkey.other_client()]
    epochs = [await opened(client, name) for client, name in zip(clients, "ab", strict=True)]
    claims = [clients[index % 2].claim_sessions(epochs[index % 2], [SESSION], keep_s=KEEP_S) for index in range(32)]
    found = {lease for leases in await asyncio.gather(*claims) for lease in leases}
    assert len(found) == 1
    assert found.pop().epoch in epochs


async def test_concurrent_puts_of_one_version_give_one_winner(valkey: ValkeyWorld) -> None:
    clients = [valkey.store, await valkey.other_client()]
    epochs = [await opened(client, name) for client, name in zip(clients, "ab", strict=True)]
    puts = [
        clients[index % 2].put_graph(epochs[index % 2], GraphRow(name="g", version=1, payload=b"%d" % index))
        for index in range(16)
    ]
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert [each for each in results if each is None] == [None]
    assert {each.reason for each in results if isinstance(each, OmniFlowError)} == {Reason.CONFLICT}
    _, rows = await valkey.store.graphs()
    assert rows[0].payload == b"%d" % results.index(None)


async def test_calls_that_are_made_together_share_a_write(store_socket: Path) -> None:
    connection = CountingConnection(Endpoint(path=str(store_socket)))
    async with connected(store_socket.parent, connection=connection) as store:
        epoch = await opened(store, "together")
        before = connection.writes
        names = [("tenant", f"s{index}") for index in range(64)]
        leases = await asyncio.gather(*(store.claim_sessions(epoch, [name], keep_s=1.0) for name in names))
        assert connection.writes - before == 1
        assert len({lease.fence for (lease,) in leases}) == 64
        await store.close_owner(epoch)


async def test_scripts_are_loaded_again_after_the_server_forgot_them(valkey: ValkeyWorld) -> None:
    epoch = await opened(valkey.store, "a")
    await valkey.raw("SCRIPT", "FLUSH")
    claims = [valkey.store.claim_sessions(epoch, [("t", str(index))], keep_s=KEEP_S) for index in range(40)]
    assert {lease.epoch for (lease,) in await asyncio.gather(*claims)} == {epoch}
    await valkey.raw("SCRIPT", "FLUSH")
    row = replica("0")
    await valkey.store.register_replica(epoch, row, ttl_s=REPLICA_TTL_S)
    await valkey.raw("SCRIPT", "FLUSH")
    assert (await ticked(valkey.store, epoch, renewals=[renewal(row)])).changed == (row,)


async def test_texts_of_scripts_never_change_with_values(valkey: ValkeyWorld) -> None:
    epoch = await opened(valkey.store, "a")
    await valkey.raw("SCRIPT", "FLUSH")
    for index in range(50):
        await valkey.store.claim_sessions(epoch, [("t", str(index))], keep_s=KEEP_S + index)
    info = (await valkey.raw("INFO", "memory")).decode()
    assert f"number_of_cached_scripts:{len(all_scripts())}\r" in info


async def test_every_key_of_sessions_and_requests_has_a_time_to_live(valkey: ValkeyWorld) -> None:
    epoch = await opened(valkey.store, "a")
    await valkey.store.claim_sessions(epoch, [("t", "a"), ("t", "b")], keep_s=60.0)
    await valkey.store.claim_requests(epoch, [("t", "a", "call", b""), ("t", "b", "call", b"")], keep_s=60.0)
    for keep_s in (600.0, 60.0):
        await valkey.store.claim_sessions(epoch, [("t", "a")], keep_s=keep_s)
        await valkey.store.renew_requests(epoch, [("t", "a")], keep_s=keep_s)
        lives = {key.split("}:")[1]: await valkey.raw("PTTL", key) for key in await valkey.item_keys()}
        assert lives.keys() == {"session:1:t:a", "session:1:t:b", "request:1:t:a", "request:1:t:b"}
        for name, life_ms in lives.items():
            expected_ms = 1000 * (keep_s if name.endswith("a") else 60.0)
            assert expected_ms - 10_000 < life_ms <= expected_ms


async def test_requests_of_others_are_not_renewed(valkey: ValkeyWorld) -> None:
    a, b = await opened(valkey.store, "a"), await opened(valkey.store, "b")
    await valkey.store.claim_requests(a, [("t", "r", "call", b"")], keep_s=60.0)
    await valkey.store.renew_requests(b, [("t", "r")], keep_s=600.0)
    await valkey.store.claim_requests(b, [("t", "r", "call", b"")], keep_s=600.0)
    assert await valkey.raw("PTTL", valkey.key("request:1:t:r")) <= 60_000


async def test_rows_of_a_format_that_is_unknown_are_left_out(valkey: ValkeyWorld) -> None:
    a, b = await opened(valkey.store, "a"), await opened(valkey.store, "b")
    for name in ("0", "1"):
        await valkey.store.register_replica(a, replica(name), ttl_s=REPLICA_TTL_S)
        await valkey.store.put_graph(a, GraphRow(name=name, version=1, payload=b"x"))
    await valkey.raw("HSET", valkey.key("replica:rows"), "3:llm0", b"2 something else")
    await valkey.raw("HSET", valkey.key("graphs"), "0", b"22 {}\n")
    rewrite = (
        "local owner = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1])) owner[4] = '2 ?' "
        "return redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(owner))"
    )
    await valkey.raw("EVAL", rewrite, 1, valkey.key("owners"), str(b))
    told = await ticked(valkey.store, a)
    assert [each.epoch for each in told.owners] == [a]
    assert told.changed == (replica("1"),)
    _, graphs = await valkey.store.graphs()
    assert [each.name for each in graphs] == ["1"]
    await ticked(valkey.store, b, renewals=[renewal(replica("0"))])


async def test_namespaces_know_nothing_of_each_other(store_socket: Path, valkey: ValkeyWorld) -> None:
    epoch = await opened(valkey.store, "a")
    await valkey.store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S)
    keys = await valkey.store.key_count()
    async with connected(store_socket.parent) as other:
        with pytest.raises(OmniFlowError) as caught:
            await other.claim_sessions(epoch, [SESSION], keep_s=KEEP_S)
        assert caught.value.reason is Reason.STALE_OWNER
        elsewhere = await opened(other, "a")
        assert (await other.claim_sessions(elsewhere, [SESSION], keep_s=1.0))[0].epoch == elsewhere
        await other.close_owner(elsewhere)
    assert await valkey.store.key_count() == keys


@pytest.mark.parametrize("namespace", ["", "a}b", "a*", "a b", "x" * 65])
def test_namespace_that_would_break_its_keys_is_refused(namespace: str) -> None:
    with pytest.raises(OmniFlowError, match=r"control\.metadata_namespace") as caught:
        ValkeyStore(connection_of("redis://localhost"), namespace=namespace, address="", timeout_s=1.0)
    assert caught.value.reason is Reason.INVALID_CONFIG


async def test_cancelled_caller_leaves_the_others_their_answers(valkey: ValkeyWorld) -> None:
    epoch = await opened(valkey.store, "a")
    names = [("t", f"s{index}") for index in range(50)]
    tasks = [asyncio.create_task(valkey.store.claim_sessions(epoch, [name], keep_s=KEEP_S)) for name in names]
    await asyncio.sleep(0)
    for index, task in enumerate(tasks):
        if index % 3 == 0:
            task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in results] == [index % 3 == 0 for index in range(50)]
    expected = await valkey.store.claim_sessions(epoch, names, keep_s=KEEP_S)
    assert [each[0] for each in results if isinstance(each, list)] == [
        lease for index, lease in enumerate(expected) if index % 3
    ]


async def test_connections_that_break_lose_nothing(valkey: ValkeyWorld, caplog: pytest.LogCaptureFixture) -> None:
    epoch = await opened(valkey.store, "a")

    async def claim(index: int) -> int:
        names = [("t", f"s{index}-{step}") for step in range(20)]
        return sum(
            [(await valkey.store.claim_sessions(epoch, [each], keep_s=KEEP_S))[0].epoch == epoch for each in names]
        )

    async def cut() -> int:
        for _ in range(10):
            await valkey.raw("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        return 0

    with caplog.at_level(logging.INFO, logger="omniflow_server.data.metadata"):
        counts = await asyncio.gather(cut(), *(claim(index) for index in range(16)))
    assert sum(counts) == 16 * 20
    assert "is away" in caplog.text


async def test_killed_server_keeps_what_it_answered(tmp_path: Path, own_store: Process) -> None:
    async with connected(tmp_path) as store:
        epoch = await opened(store, "a")
        (held,) = await store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S)
        (row,) = await store.claim_requests(epoch, [("t", "r", "call", b"\x00d")], keep_s=KEEP_S)
        await store.register_replica(epoch, replica("0"), ttl_s=REPLICA_TTL_S)
        await store.put_graph(epoch, GraphRow(name="g", version=1, payload=b"x"))
        told = await ticked(store, epoch)
        own_store.restart()
        assert await store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S) == [held]
        assert await store.find_request("t", "r") == row == RequestRow(call_id="call", epoch=epoch, digest=b"\x00d")
        assert [each.payload for each in (await store.graphs())[1]] == [b"x"]
        assert await ticked(store, epoch) == told


async def test_stopped_server_is_unavailable_within_the_deadline(tmp_path: Path, own_store: Process) -> None:
    async with connected(tmp_path, timeout_s=0.2) as store:
        epoch = await opened(store, "a")
        own_store.pause()
        started_s = time.monotonic()
        results = await asyncio.gather(
            *(store.claim_sessions(epoch, [("t", str(index))], keep_s=KEEP_S) for index in range(8)),
            return_exceptions=True,
        )
        assert 0.19 < time.monotonic() - started_s < 1.0
        for error in results:
            assert isinstance(error, OmniFlowError)
            assert (error.reason, error.info.retry_after_s) == (Reason.STORE_UNAVAILABLE, 0.5)
            assert "unix://store.sock has not answered within 0.2 s" in error.message
        own_store.resume()

        async def owner_of_session() -> int:
            with contextlib.suppress(OmniFlowError):
                return (await store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S))[0].epoch
            return 0

        await wait_until(owner_of_session)
        assert await owner_of_session() == epoch


async def test_call_waits_for_a_server_that_comes_back_in_time(tmp_path: Path, own_store: Process) -> None:
    async with connected(tmp_path) as store:
        epoch = await opened(store, "a")
        own_store.kill()
        claim = asyncio.create_task(store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S))
        await asyncio.sleep(0)
        own_store.start()
        assert (await claim)[0].epoch == epoch


async def test_server_that_is_not_there_is_unavailable_and_found_later(
    tmp_path: Path, own_store: Process, caplog: pytest.LogCaptureFixture
) -> None:
    own_store.kill()
    with caplog.at_level(logging.INFO, logger="omniflow_server.data.metadata"):
        async with connected(tmp_path, timeout_s=0.1) as store:
            for _ in range(2):
                with pytest.raises(OmniFlowError) as caught:
                    await opened(store, "a")
                assert caught.value.reason is Reason.STORE_UNAVAILABLE
            own_store.start()
            await wait_until(lambda: is_answering(tmp_path / "store.sock"))
            await wait_until(lambda: "answers again" in caplog.text)
            assert await opened(store, "a") > 0
    assert caplog.text.count("is away") == 1


async def test_full_server_is_unavailable_and_says_why(tmp_path: Path, own_store: Process) -> None:
    url = url_of(tmp_path / "store.sock")
    async with connected(tmp_path) as store:
        epoch = await opened(store, "a")
        await ask(url, "CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(OmniFlowError, match="has no memory left: raise its maxmemory") as caught:
            await store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S)
        assert caught.value.reason is Reason.STORE_UNAVAILABLE
        await ask(url, "CONFIG", "SET", "maxmemory", "0")
        assert (await store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S))[0].epoch == epoch


async def test_server_that_became_a_replica_is_tried_again(tmp_path: Path, own_store: Process) -> None:
    url = url_of(tmp_path / "store.sock")
    async with connected(tmp_path) as store:
        epoch = await opened(store, "a")
        await ask(url, "REPLICAOF", "127.0.0.1", "1")
        claim = asyncio.create_task(store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S))
        done, _ = await asyncio.wait([claim], timeout=0.1)
        assert not done
        await ask(url, "REPLICAOF", "NO", "ONE")
        assert (await claim)[0].epoch == epoch


async def test_closed_store_refuses_what_waits_and_what_comes(tmp_path: Path, own_store: Process) -> None:
    async with connected(tmp_path) as store:
        epoch = await opened(store, "a")
        own_store.pause()
        waiting = asyncio.create_task(store.claim_sessions(epoch, [SESSION], keep_s=KEEP_S))
        await asyncio.sleep(0)
    for call in (waiting, store.find_request("t", "r")):
        with pytest.raises(OmniFlowError, match="this process is ending") as caught:
            await call
        assert caught.value.reason is Reason.STORE_UNAVAILABLE


PARENT = """
import asyncio, sys
from pathlib import Path
from omniflow_server.data.metadata.embedded import running_store

async def main():
    async with running_store(Path(sys.argv[1])):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_server_dies_with_its_parent(tmp_path: Path) -> None:
    with Process("parent", (sys.executable, "-c", PARENT, str(tmp_path)), folder=tmp_path) as parent:
        await parent.wait_for_log("ready")
        info = await ask(url_of(tmp_path / "store.sock"), "INFO", "server")
        pid = next(int(line.split(b":")[1]) for line in info.splitlines() if line.startswith(b"process_id:"))
        assert is_running(pid)
        parent.kill()
        assert parent.exit_status == -signal.SIGKILL
        await wait_until(lambda: not is_running(pid))
    assert not await is_answering(tmp_path / "store.sock")
