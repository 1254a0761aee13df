"""Values that are kept by one process and read by another."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from omniflow.codec.common import crc32c, value_to_proto
from omniflow.common.v1 import tensor_pb2
from omniflow.large_values import (
    CHUNK_BYTES,
    INLINE_LIMIT,
    ValueFetcher,
    ValueServicer,
    ValueStore,
    decode,
    encode,
    externalise,
)
from omniflow.role.v1 import value_service_pb2 as messages
from omniflow.role.v1 import value_service_pb2_grpc
from omniflow.rpc_errors import ErrorAnswering
from omniflow.values import Action, Audio, ElementType, Image, Tensor, Value
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.noop.large import pattern
from tests.roles.running import eventually


def new_store(endpoint: str = "unix:x", budget_bytes: int = 1 << 30) -> ValueStore:
    return ValueStore(endpoint=endpoint, incarnation_id="life-1", budget_bytes=budget_bytes)


@contextlib.asynccontextmanager
async def serving(folder: Path, servicer: Any = None) -> AsyncIterator[ValueStore]:
    """A store behind a real socket."""
    store = new_store(f"unix:{folder}/values.sock")
    server = grpc.aio.server()
    value_service_pb2_grpc.add_ValueServiceServicer_to_server(servicer or ValueServicer(store), ErrorAnswering(server))
    server.add_insecure_port(store.endpoint)
    await server.start()
    try:
        yield store
    finally:
        await server.stop(0)


def test_store_gives_back_what_was_put_until_the_call_is_released() -> None:
    store = new_store()
    kept = bytes(1000)
    first, second = store.put("a", kept), store.put("b", bytearray(b"xyz"))
    assert store.open(first) == kept
    assert bytes(store.open(second)) == b"xyz"
    assert store.used_bytes == 1003
    store.release_call("a")
    store.release_call("a")
    store.release_call("unknown")
    store.check_integrity()
    assert store.used_bytes == 3
    with pytest.raises(OmniFlowError) as caught:
        store.open(first)
    assert caught.value.reason is Reason.UNKNOWN_RESOURCE


def test_store_releases_single_values_and_ignores_strangers() -> None:
    store = new_store()
    ref = store.put("a", b"1234")
    stranger = tensor_pb2.RemoteRef(value_id=ref.value_id, incarnation_id="another life")
    store.release(stranger)
    assert store.used_bytes == 4
    store.release(ref)
    store.release(ref)
    assert store.used_bytes == 0
    store.check_integrity()


def test_store_keeps_memory_without_a_copy_and_gives_it_read_only() -> None:
    store, memory = new_store(), bytearray(b"abcdef")
    kept = store.open(store.put("a", memory))
    assert kept.obj is memory
    assert kept.readonly
    every_second = store.open(store.put("a", memoryview(memory)[::2]))
    assert bytes(every_second) == b"ace"
    assert store.used_bytes == 9
    store.check_integrity()


def test_view_of_a_released_value_stays_valid() -> None:
    store = new_store()
    view = store.open(store.put("a", bytearray(b"abc")))
    store.release_call("a")
    assert bytes(view) == b"abc"


def test_budget_counts_announced_bytes_before_they_come() -> None:
    store = new_store(budget_bytes=100)
    store.reserve("a", 80)
    with pytest.raises(OmniFlowError) as caught:
        store.put("a", bytes(21))
    assert caught.value.reason is Reason.BUFFER_FULL
    assert caught.value.info.retry_after_s
    store.put("a", bytes(20))
    store.release_call("a")
    store.put("b", bytes(100))
    store.check_integrity()


def test_block_takes_pieces_and_refuses_what_does_not_fit() -> None:
    block = new_store().reserve("a", 6)
    block.write(3, b"def")
    block.write(0, b"abc")
    assert bytes(block.data) == b"abcdef"
    with pytest.raises(OmniFlowError) as caught:
        block.write(4, b"xyz")
    assert caught.value.reason is Reason.INVALID_FIELD


def test_announced_gibibyte_takes_no_memory_before_it_comes() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident_bytes()
    store = new_store(budget_bytes=1 << 31)
    block = store.reserve("a", 1 << 30)
    block.write(1 << 29, b"x")
    assert resident_bytes() - before < 1 << 24


async def test_fetch_over_a_socket_is_whole_and_in_pieces(tmp_path: Path) -> None:
    data = pattern(3 * CHUNK_BYTES + 17)
    async with serving(tmp_path) as store, ValueFetcher() as fetcher:
        ref = store.put("a", data)
        assert await fetcher.fetch(ref) == data
        pieces = [piece async for piece in fetcher.stream(ref)]
        assert b"".join(pieces) == data
        assert [len(piece) for piece in pieces] == [CHUNK_BYTES] * 3 + [17]
        tail = [piece async for piece in fetcher.stream(ref, offset_bytes=CHUNK_BYTES)]
        assert b"".join(tail) == data[CHUNK_BYTES:]
        assert bytes(await fetcher.fetch(store.put("a", b""))) == b""


async def test_local_value_is_read_without_a_copy_and_without_a_socket() -> None:
    store = new_store("unix:/nobody/listens/here")
    data = bytes(pattern(CHUNK_BYTES + 5))
    ref = store.put("a", data)
    async with ValueFetcher(local=store) as fetcher:
        view = await fetcher.fetch(ref)
        assert isinstance(view, memoryview)
        assert view.obj is data
        assert b"".join([piece async for piece in fetcher.stream(ref)]) == data


async def test_fetch_tells_why_a_value_does_not_come(tmp_path: Path) -> None:
    async with serving(tmp_path) as store, ValueFetcher(max_value_bytes=1000) as fetcher:
        ref = store.put("a", b"1234")

        async def reason_for(change: Callable[[tensor_pb2.RemoteRef], Any]) -> Reason:
            changed = tensor_pb2.RemoteRef()
            changed.CopyFrom(ref)
            change(changed)
            with pytest.raises(OmniFlowError) as caught:
                await fetcher.fetch(changed)
            return caught.value.reason

        assert await reason_for(lambda r: setattr(r, "value_id", "99")) is Reason.UNKNOWN_RESOURCE
        assert await reason_for(lambda r: setattr(r, "incarnation_id", "earlier")) is Reason.UNKNOWN_RESOURCE
        assert await reason_for(lambda r: setattr(r, "size_bytes", 3)) is Reason.INVALID_FIELD
        assert await reason_for(lambda r: setattr(r, "size_bytes", 1001)) is Reason.PAYLOAD_TOO_LARGE
        assert await reason_for(lambda r: setattr(r, "endpoint", f"unix:{tmp_path}/no.sock")) is Reason.REPLICA_LOST


class Mangles(value_service_pb2_grpc.ValueServiceServicer):
    """Answers with the given chunks."""

    def __init__(self, *chunks: tensor_pb2.PayloadChunk) -> None:
        self.chunks = chunks

    async def FetchValue(self, request: messages.FetchValueRequest, context: Any) -> Any:
        for chunk in self.chunks:
            yield messages.FetchValueResponse(chunk=chunk)


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        ((), Reason.STATE_LOST),
        ((tensor_pb2.PayloadChunk(data=b"123"),), Reason.STATE_LOST),
        ((tensor_pb2.PayloadChunk(offset_bytes=1, data=b"123456"),), Reason.STATE_LOST),
        ((tensor_pb2.PayloadChunk(data=b"1234567"),), Reason.STATE_LOST),
        ((tensor_pb2.PayloadChunk(data=b"123456", crc32c=1),), Reason.CHECKSUM_MISMATCH),
    ],
)
async def test_bytes_that_are_not_whole_are_never_given(
    tmp_path: Path, chunks: tuple[tensor_pb2.PayloadChunk, ...], reason: Reason
) -> None:
    async with serving(tmp_path, Mangles(*chunks)) as store, ValueFetcher() as fetcher:
        with pytest.raises(OmniFlowError) as caught:
            await fetcher.fetch(store.put("a", b"123456"))
    assert caught.value.reason is reason


async def test_matching_checksum_is_accepted(tmp_path: Path) -> None:
    chunk = tensor_pb2.PayloadChunk(data=b"123456", crc32c=crc32c(b"123456"))
    async with serving(tmp_path, Mangles(chunk)) as store, ValueFetcher() as fetcher:
        assert bytes(await fetcher.fetch(store.put("a", b"123456"))) == b"123456"


async def test_fetches_run_side_by_side_up_to_their_bound(tmp_path: Path) -> None:
    class Counts(Mangles):
        now = most = 0

        async def FetchValue(self, request: messages.FetchValueRequest, context: Any) -> Any:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.01)
            self.now -= 1
            yield messages.FetchValueResponse(chunk=tensor_pb2.PayloadChunk(data=b"x"))

    servicer = Counts()
    async with serving(tmp_path, servicer) as store, ValueFetcher(max_parallel=3) as fetcher:
        refs = [store.put("a", b"x") for _ in range(9)]
        await asyncio.gather(*(fetcher.fetch(ref) for ref in refs))
    assert servicer.most == 3


async def test_leaving_a_stream_ends_its_rpc(tmp_path: Path) -> None:
    class Endless(Mangles):
        is_left = False

        async def FetchValue(self, request: messages.FetchValueRequest, context: Any) -> Any:
            try:
                for index in range(1_000_000):
                    yield messages.FetchValueResponse(chunk=tensor_pb2.PayloadChunk(offset_bytes=index, data=b"x"))
                    await asyncio.sleep(0.001)
            finally:
                self.is_left = True

    servicer = Endless()
    async with serving(tmp_path, servicer), ValueFetcher() as fetcher:
        ref = tensor_pb2.RemoteRef(endpoint=f"unix:{tmp_path}/values.sock", size_bytes=1_000_000)
        async with contextlib.aclosing(fetcher.stream(ref)) as pieces:
            async for _piece in pieces:
                break
        await eventually(lambda: servicer.is_left)


async def test_fetcher_outside_its_block_is_refused() -> None:
    fetcher = ValueFetcher()
    with pytest.raises(RuntimeError, match="async with"):
        await fetcher.fetch(tensor_pb2.RemoteRef(endpoint="unix:x", size_bytes=1))


BIG = bytes(pattern(INLINE_LIMIT + 1))
VALUES: list[Value] = [
    Tensor(ElementType.UINT8, (len(BIG),), BIG),
    Image(BIG, "image/png"),
    Audio(BIG, "audio/wav", 3, 1.5, True),
    Action("arm", Tensor(ElementType.UINT8, (1, len(BIG)), BIG)),
    BIG,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
async def test_every_kind_of_large_value_goes_out_and_comes_back(value: Value) -> None:
    store = new_store()
    async with ValueFetcher(local=store) as fetcher:
        message, size = encode(value, "a", store)
        assert size == len(BIG)
        assert message.ByteSize() < 500
        assert await decode(message, fetcher) == value

        inline = value_to_proto(value)
        moved = externalise(inline, "a", store)
        assert moved.ByteSize() < 500
        assert inline == value_to_proto(value)
        assert await decode(moved, fetcher) == value
        store.release_call("a")
        assert store.used_bytes == 0


@pytest.mark.parametrize("value", ["x" * 100_000, b"x" * INLINE_LIMIT, Image(b"x", "image/png")])
async def test_text_and_small_payloads_stay_inline(value: Value) -> None:
    store = new_store()
    message, size = encode(value, "a", store)
    assert size == 0
    assert externalise(message, "a", store) is message
    async with ValueFetcher(local=store) as fetcher:
        assert await decode(message, fetcher) == value
    assert store.used_bytes == 0
