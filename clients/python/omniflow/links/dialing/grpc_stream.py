"""An Execute stream of gRPC: reaches a replica anywhere, and costs a hand-over between threads for every message."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import grpc

from omniflow.codec.error import error_from_rpc
from omniflow.internal_rpc import MAX_FRAME_BYTES
from omniflow.links.port import END, LinkSide

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment is for the world outside
    ("grpc.use_local_subchannel_pool", 1),  # a dead connection must not be shared with the next incarnation
)


class GrpcStream:
    """Implements `Transport`. Has a connection of its own: on one that is breaking, a new stream would break with it."""

    name = "gRPC"

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._queued = asyncio.Event()
        self._queued.set()

    def wake(self) -> None:
        self._queued.set()

    async def carry(self, side: LinkSide) -> None:
        async with grpc.aio.insecure_channel(self._endpoint, options=CHANNEL_OPTIONS) as channel:
            execute: Any = channel.stream_stream(
                "/omniflow.role.v1.RoleExecutionService/Execute", request_serializer=None, response_deserializer=None
            )
            await self._carry(execute(), side)

    async def _carry(self, stream: Any, side: LinkSide) -> None:
        reader, writer = parts = (
            asyncio.ensure_future(_read_all(stream, side)),
            asyncio.ensure_future(self._write_all(stream, side)),
        )
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            if not reader.done() and isinstance(writer.exception(), asyncio.InvalidStateError | None):
                await asyncio.wait((reader,))  # the end was said here, and the replica's comes; or it is there already
        finally:
            for part in parts:
                part.cancel()
            ends = await asyncio.gather(*parts, return_exceptions=True)
            stream.cancel()
            side.closed()
        for end in ends:
            if isinstance(end, grpc.RpcError):
                raise _cause(end)
            if isinstance(end, Exception):
                raise end

    async def _write_all(self, stream: Any, side: LinkSide) -> None:
        while not side.is_finished:
            await self._queued.wait()
            self._queued.clear()
            while (message := side.take()) is not None:
                await stream.write(message)
        await stream.write(END)
        await stream.done_writing()


async def _read_all(stream: Any, side: LinkSide) -> None:
    while (message := await stream.read()) is not grpc.aio.EOF:
        side.received(message)
    side.peer_left()


def _cause(error: grpc.RpcError) -> Exception:
    """gRPC has one code for a process that is not there and a connection that broke; its text has the system's words."""
    cause = error_from_rpc(error)
    is_refused = any(os.strerror(number) in cause.message for number in (errno.ECONNREFUSED, errno.ENOENT))
    return ConnectionRefusedError(cause.message) if is_refused else cause
