"""Values too large for a frame: kept by the process that made them, read by others with `ValueService.FetchValue`.

    producer                                       consumer
    value ─▶ encode(value, call, store) ─▶ message with RemoteRef ─▶ decode(message, fetcher) ─▶ value
                  └─▶ ValueStore  ◀──────── FetchValue, 256 KiB a piece ────────┘

A value lives until its call is released. The store has a byte budget; a call's values count from the moment their size is
known, so a transfer that was announced cannot fail half-way for want of room.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import os
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Self, cast

import grpc.aio

from omniflow.codec.common import crc32c, payload_of, split_value, value_from_proto, value_with_payload
from omniflow.codec.error import error_from_rpc
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.internal_rpc import internal_channel
from omniflow.process import HomeProcess
from omniflow.role.v1 import value_service_pb2, value_service_pb2_grpc
from omniflow.values import Buffer, Value
from omniflow_core.errors import OmniFlowError, Reason, invalid_field

logger = logging.getLogger(__name__)

INLINE_LIMIT = 65_536
"""Bytes of the largest payload that travels inside a frame between processes of the platform."""
CHUNK_BYTES = 256 * 1024
MAX_VALUE_BYTES = 1024 * 1024 * 1024 - 1
"""Largest value unless configured otherwise."""


class Block:
    """Memory for a value of known size that arrives in pieces. Pages that nobody has written to take no memory."""

    __slots__ = ("_memory", "ref")

    def __init__(self, ref: tensor_pb2.RemoteRef, memory: mmap.mmap, size_bytes: int) -> None:
        self.ref = ref
        self._memory = memoryview(memory)[:size_bytes]

    def write(self, offset_bytes: int, data: Buffer) -> None:
        """Raises INVALID_FIELD for bytes outside the block."""
        end = offset_bytes + memoryview(data).nbytes
        if end > len(self._memory):
            raise invalid_field("chunk.offset_bytes", f"the piece ends at byte {end} of {len(self._memory)}")
        self._memory[offset_bytes:end] = data

    @property
    def data(self) -> memoryview:
        """The bytes, read-only; valid also after the store has let go of the block."""
        return self._memory.toreadonly()


class ValueStore:
    """Values that this process keeps for others, without a copy; pieces are put together in memory files."""

    def __init__(self, *, endpoint: str, incarnation_id: str, budget_bytes: int) -> None:
        """`endpoint` is the gRPC target under which others reach this process's ValueService."""
        self.endpoint = endpoint
        self.incarnation_id = incarnation_id
        self._budget_bytes = budget_bytes
        self._kept: dict[str, memoryview] = {}
        self._call_of: dict[str, str] = {}
        self._ids_of: dict[str, set[str]] = {}
        self._last_id = 0
        self.used_bytes = 0

    def put(self, call_id: str, data: Buffer) -> tensor_pb2.RemoteRef:
        """Keeps a value of a call. Raises BUFFER_FULL beyond the budget.

        The memory is kept as it is: whoever puts it must not change it any more. A copy of a large tensor would hold up
        the process for longer than everything else that happens to it.
        """
        view = memoryview(data)
        ref = self._register(call_id, view.nbytes)
        self._kept[ref.value_id] = view.cast("B").toreadonly() if view.c_contiguous else memoryview(view.tobytes())
        return ref

    def reserve(self, call_id: str, size_bytes: int) -> Block:
        """Room for a value that arrives in pieces; its `ref` may be handed on once it is complete."""
        ref = self._register(call_id, size_bytes)
        block = Block(ref, _memory_file(size_bytes), size_bytes)
        self._kept[ref.value_id] = block.data
        return block

    def open(self, ref: tensor_pb2.RemoteRef) -> memoryview:
        """The bytes of a value, read-only. Raises UNKNOWN_RESOURCE for a value that is not or no longer kept."""
        kept = self._kept.get(ref.value_id) if ref.incarnation_id == self.incarnation_id else None
        if kept is None:
            raise OmniFlowError(
                Reason.UNKNOWN_RESOURCE, f"no value {ref.value_id!r} of incarnation {ref.incarnation_id!r} is kept here"
            )
        return kept

    def is_mine(self, ref: tensor_pb2.RemoteRef) -> bool:
        """The reference names a value of this process's life."""
        return ref.incarnation_id == self.incarnation_id

    def release(self, ref: tensor_pb2.RemoteRef) -> None:
        """Drops one value. Repeats and unknown references are harmless."""
        if ref.value_id in self._kept and self.is_mine(ref):
            self._ids_of[self._call_of[ref.value_id]].discard(ref.value_id)
            self._drop(ref.value_id)

    def release_call(self, call_id: str) -> None:
        """Drops all values of a call. Repeats and unknown calls are harmless."""
        for value_id in self._ids_of.pop(call_id, ()):
            self._drop(value_id)

    def check_integrity(self) -> None:
        """Asserts that the three indexes and the accounting agree."""
        assert sum(map(len, self._kept.values())) == self.used_bytes
        assert set(self._call_of) == set(self._kept)
        assert {(c, v) for c, ids in self._ids_of.items() for v in ids} == {(c, v) for v, c in self._call_of.items()}

    def _register(self, call_id: str, size_bytes: int) -> tensor_pb2.RemoteRef:
        if self.used_bytes + size_bytes > self._budget_bytes:
            raise OmniFlowError(
                Reason.BUFFER_FULL,
                f"{size_bytes} bytes do not fit: {self.used_bytes} of {self._budget_bytes} bytes are kept for running calls",
                retry_after_s=1.0,
            )
        self._last_id += 1
        value_id = str(self._last_id)
        self.used_bytes += size_bytes
        self._call_of[value_id] = call_id
        self._ids_of.setdefault(call_id, set()).add(value_id)
        return tensor_pb2.RemoteRef(
            endpoint=self.endpoint, value_id=value_id, incarnation_id=self.incarnation_id, size_bytes=size_bytes
        )

    def _drop(self, value_id: str) -> None:
        self.used_bytes -= len(self._kept.pop(value_id))
        del self._call_of[value_id]


def _memory_file(size_bytes: int) -> mmap.mmap:
    """Memory outside the heap: it goes back to the system when the last view is gone."""
    fd = os.memfd_create("omniflow-value", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, max(1, size_bytes))
        return mmap.mmap(fd, max(1, size_bytes))
    finally:
        os.close(fd)


def _fresh_memory(size_bytes: int) -> memoryview:
    """Memory whose pages come as they are written: a large bytearray is zeroed at once, which holds up the loop."""
    return memoryview(mmap.mmap(-1, size_bytes) if size_bytes else bytearray())


class ValueServicer(value_service_pb2_grpc.ValueServiceServicer):
    """ValueService over a store. Raises OmniFlowError, which `ErrorAnswering` turns into a status."""

    def __init__(self, store: ValueStore) -> None:
        self._store = store

    async def FetchValue(
        self, request: value_service_pb2.FetchValueRequest, context: Any
    ) -> AsyncGenerator[value_service_pb2.FetchValueResponse, None]:
        data = self._store.open(request.ref)
        start, size = request.offset_bytes, request.ref.size_bytes
        if start > size or size != len(data):
            raise invalid_field(
                "offset_bytes" if size == len(data) else "ref.size_bytes", f"the value has {len(data)} bytes"
            )
        while True:
            end = min(size, start + CHUNK_BYTES)
            piece = tensor_pb2.PayloadChunk(offset_bytes=start, data=bytes(data[start:end]), last=end == size)
            yield value_service_pb2.FetchValueResponse(chunk=piece)
            if end == size:
                return
            start = end

    async def ReleaseValues(
        self, request: value_service_pb2.ReleaseValuesRequest, context: Any
    ) -> value_service_pb2.ReleaseValuesResponse:
        for ref in request.refs:
            self._store.release(ref)
        return value_service_pb2.ReleaseValuesResponse()


class ValueFetcher:
    """Reads values that other processes keep; one channel per process. Values of `local` are read without an RPC.

        async with ValueFetcher(local=store) as fetcher:
            data = await fetcher.fetch(ref)

    At most `max_parallel` values are on their way at the same time; the rest wait.
    """

    def __init__(
        self, *, local: ValueStore | None = None, max_parallel: int = 4, max_value_bytes: int = MAX_VALUE_BYTES
    ) -> None:
        self._local = local
        self._max_value_bytes = max_value_bytes
        self._parallel = asyncio.Semaphore(max_parallel)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._home = HomeProcess("this value fetcher")
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def fetch(self, ref: tensor_pb2.RemoteRef) -> memoryview:
        """The whole value, read-only.

        Raises what the keeping process says (UNKNOWN_RESOURCE when it has been released), REPLICA_LOST when it is gone,
        PAYLOAD_TOO_LARGE before anything is allocated, and CHECKSUM_MISMATCH or STATE_LOST when the bytes are not whole.
        """
        if self._is_local(ref):
            return cast("ValueStore", self._local).open(ref)
        self._check_size(ref)
        async with self._parallel:
            received = _fresh_memory(ref.size_bytes)
            offset = 0
            async with contextlib.aclosing(self._pieces(ref)) as pieces:
                async for piece in pieces:
                    received[offset : offset + len(piece)] = piece
                    offset += len(piece)
            return received.toreadonly()

    async def stream(self, ref: tensor_pb2.RemoteRef, *, offset_bytes: int = 0) -> AsyncGenerator[bytes, None]:
        """The value from an offset on, in pieces of at most 256 KiB as they come; raises as `fetch` does."""
        if self._is_local(ref):
            data = cast("ValueStore", self._local).open(ref)
            for start in range(offset_bytes, len(data), CHUNK_BYTES):
                yield bytes(data[start : start + CHUNK_BYTES])
            return
        self._check_size(ref)
        async with contextlib.aclosing(self._pieces(ref, offset_bytes)) as pieces:
            async for piece in pieces:
                yield piece

    def _is_local(self, ref: tensor_pb2.RemoteRef) -> bool:
        return self._local is not None and self._local.is_mine(ref)

    def _check_size(self, ref: tensor_pb2.RemoteRef) -> None:
        if ref.size_bytes > self._max_value_bytes:
            raise OmniFlowError(
                Reason.PAYLOAD_TOO_LARGE, f"the value has {ref.size_bytes} bytes, the limit is {self._max_value_bytes}"
            )

    async def _pieces(self, ref: tensor_pb2.RemoteRef, offset_bytes: int = 0) -> AsyncGenerator[bytes, None]:
        request = value_service_pb2.FetchValueRequest(ref=ref, offset_bytes=offset_bytes)
        call = value_service_pb2_grpc.ValueServiceStub(self._channel(ref.endpoint)).FetchValue(request)
        expected = offset_bytes
        try:
            async for response in call:
                _check_chunk(response.chunk, expected, ref.size_bytes)
                expected += len(response.chunk.data)
                yield response.chunk.data
        except grpc.aio.AioRpcError as rpc_error:
            error = error_from_rpc(rpc_error)
            if error.reason is not Reason.CONNECTION_LOST:
                raise error from None
            # for the log alone: callers do not learn the address
            logger.warning("a value of %s cannot be fetched: %s", ref.endpoint, error)
            raise OmniFlowError(Reason.REPLICA_LOST, "The process that keeps a value of the call is gone.") from None
        finally:
            call.cancel()  # leaving the loop early would leave the RPC open
        if expected != ref.size_bytes:
            raise OmniFlowError(Reason.STATE_LOST, f"{expected} of {ref.size_bytes} bytes of the value arrived")

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        if not self._is_open:
            raise RuntimeError("use the value fetcher inside 'async with'")
        self._home.check()
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = internal_channel(endpoint)
        return channel


def _check_chunk(chunk: tensor_pb2.PayloadChunk, expected_offset: int, size_bytes: int) -> None:
    if chunk.offset_bytes != expected_offset or expected_offset + len(chunk.data) > size_bytes:
        raise OmniFlowError(
            Reason.STATE_LOST,
            f"a piece at byte {chunk.offset_bytes} came where byte {expected_offset} of {size_bytes} is next",
        )
    if chunk.HasField("crc32c") and crc32c(chunk.data) != chunk.crc32c:
        raise OmniFlowError(
            Reason.CHECKSUM_MISMATCH, f"the piece at byte {chunk.offset_bytes} does not match its CRC-32C"
        )


def encode(value: Value, call_id: str, store: ValueStore) -> tuple[value_pb2.Value, int]:
    """The message of a value, and its payload bytes that went to the store: those over the inline limit are not copied
    into the message. Raises what `value_to_proto` and `ValueStore.put` raise.
    """
    message, data = split_value(value)
    if data is None:
        return message, 0
    payload = cast("tensor_pb2.Payload", payload_of(message))
    size = memoryview(data).nbytes
    if size <= INLINE_LIMIT:
        payload.inline = data if type(data) is bytes else bytes(data)
        return message, 0
    payload.remote.CopyFrom(store.put(call_id, data))
    return message, size


async def decode(message: value_pb2.Value, fetcher: ValueFetcher, *, path: str = "value") -> Value:
    """The value of a message, its payload fetched where it is remote."""
    ref = remote_of(message)
    if ref is None:
        return value_from_proto(message, path=path)
    return value_with_payload(message, await fetcher.fetch(ref), path=path)


def remote_of(message: value_pb2.Value) -> tensor_pb2.RemoteRef | None:
    """The reference of a payload that another process keeps."""
    payload = payload_of(message)
    return payload.remote if payload is not None and payload.WhichOneof("place") == "remote" else None


def externalise(message: value_pb2.Value, call_id: str, store: ValueStore) -> value_pb2.Value:
    """The message with an inline payload over the limit moved to the store; the same message when there is none."""
    payload = payload_of(message)
    if payload is None or payload.WhichOneof("place") != "inline":
        return message
    data = payload.inline
    if len(data) <= INLINE_LIMIT:
        return message
    moved = value_pb2.Value()
    moved.CopyFrom(message)
    cast("tensor_pb2.Payload", payload_of(moved)).remote.CopyFrom(store.put(call_id, data))
    return moved
