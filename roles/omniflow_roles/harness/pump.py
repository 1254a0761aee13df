"""The only writer of a stream: joins what is queued into one message and writes at once.

gRPC takes one write at a time. While one is under way results queue up, and the next write carries all of them; an idle
stream writes a single result without delay. Frames of single items concatenate to a valid frame of many items.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from omniflow_core.errors import OmniFlowError, Reason

MESSAGE_BYTES = 1024 * 1024
"""Frames are joined up to this size; a single larger frame still goes in one message."""
QUEUE_LIMIT_BYTES = 512 * 1024 * 1024
"""Windows keep the queue far below this; a peer that starts work and never reads ends its stream."""


class WriterPump:
    """Queue of serialized frames, and the loop that writes them. All methods belong to the loop's thread."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False
        self.message_count = 0
        """Messages written so far."""
        self.written_at = 0.0
        """Loop time of the last write's start."""

    @property
    def is_idle(self) -> bool:
        """Nothing is queued."""
        return not self._frames

    def append(self, frame: bytes) -> None:
        """Queues a frame without waking the writer: for callers that queue more before the next `wake`."""
        self._frames.append(frame)
        self._queued_bytes += len(frame)

    def wake(self) -> None:
        """The writer runs in the next turn of the loop, after what was scheduled before."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def send(self, frame: bytes) -> None:
        """Queues a frame and wakes the writer."""
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def drop(self) -> None:
        """Forgets what is queued; a write that is under way goes on."""
        self._frames.clear()
        self._queued_bytes = 0

    def close(self) -> None:
        """`run` returns when everything queued has been written."""
        self._is_closed = True
        self.wake()

    async def run(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Writes until closed; raises what `write` raises, and BUFFER_FULL when the peer does not read."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._frames:
                if self._is_closed:
                    return
                await self._wait()
                continue
            self.message_count += 1
            self.written_at = loop.time()
            await write(self._take())

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _take(self) -> bytes:
        frames = self._frames
        if self._queued_bytes <= MESSAGE_BYTES:
            message = b"".join(frames)  # one frame is handed on as it is, without a copy
            frames.clear()
            self._queued_bytes = 0
            return message
        if self._queued_bytes > QUEUE_LIMIT_BYTES:
            raise OmniFlowError(
                Reason.BUFFER_FULL, f"{self._queued_bytes} bytes of results wait, and the peer does not read"
            )
        taken = [frames.popleft()]
        size = len(taken[0])
        while frames and size + len(frames[0]) <= MESSAGE_BYTES:
            taken.append(frames.popleft())
            size += len(taken[-1])
        self._queued_bytes -= size
        return b"".join(taken)
