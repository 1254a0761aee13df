"""One Execute stream of gRPC that a control plane has opened."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from omniflow.links.port import LinkSide, NewSide


class GrpcStream:
    """A reader and a writer over one RPC, whose handler waits in `carry`."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any], new_side: NewSide) -> None:
        self._context = context
        self._queued = asyncio.Event()
        self._side = new_side(self._queued.set)

    async def carry(self) -> None:
        """Until the peer or the link ends it. Raises what ended it: OmniFlowError for what the peer did."""
        writer = asyncio.ensure_future(self._write_all(self._side))
        parts = asyncio.ensure_future(self._read_all(self._side)), writer
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            # gRPC takes no status while a write is under way, also not after its task was cancelled: a stream that ended
            # here would never end for its peer. If the peer is gone, this task is cancelled.
            await asyncio.wait((writer,))
        finally:
            for part in parts:
                part.cancel()
            ends = await asyncio.gather(*parts, return_exceptions=True)
            self._side.closed()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _read_all(self, side: LinkSide) -> None:
        while (message := await self._context.read()) is not grpc.aio.EOF:
            side.received(message)
        side.peer_left()

    async def _write_all(self, side: LinkSide) -> None:
        while not side.is_finished:
            await self._queued.wait()
            self._queued.clear()
            while (message := side.take()) is not None:
                await self._context.write(message)
