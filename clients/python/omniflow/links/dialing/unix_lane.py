"""The lane unix-frames, dialled."""

from __future__ import annotations

import asyncio

from omniflow.links.port import LaneKind, LinkSide
from omniflow.links.unix_frames import UnixFrames


class UnixLane:
    """Implements `Transport`."""

    name = LaneKind.UNIX_FRAMES.value

    def __init__(self, path: str) -> None:
        self._path = path
        self._frames: UnixFrames | None = None

    def wake(self) -> None:
        if self._frames is not None:
            self._frames.wake()

    async def carry(self, side: LinkSide) -> None:
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[Exception | None] = loop.create_future()
        frames = UnixFrames(lambda _: side, lambda _, error: closed.set_result(error))
        await loop.create_unix_connection(lambda: frames, self._path)
        self._frames = frames
        try:
            error = await asyncio.shield(closed)
        finally:
            frames.abort()
        if error is not None:
            raise error
