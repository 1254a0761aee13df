"""What a link sends: frames are queued, and joined to a message when the transport can write one.

A frame is a serialized message with one item, and such frames concatenate to a valid message of many items. An idle link
writes a single frame without delay; while its transport is busy frames queue up, and the next message carries all of them.

Messages are numbered as they are taken, from 1, and kept until the peer has said that it has them. So the next transport
can go on where one broke:

    taken 1 2 3 4 5     received(2): 3 4 5 are kept     transport breaks, the next one's peer has 4: rewind(4), take() is 5
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from omniflow_core.errors import OmniFlowError, Reason

MESSAGE_BYTES = 1024 * 1024
"""Frames are joined up to this size; a single larger frame still goes in one message."""
QUEUE_LIMIT_BYTES = 512 * 1024 * 1024
"""Windows keep the queue far below this; a peer that starts work and never reads ends its link."""
KEPT_BYTES = 32 * 1024 * 1024
KEPT_MESSAGES = 16 * 1024
"""A peer tells every 64 messages or 1 MiB what it has; one that lets this much come up does not tell, and the link cannot
be resumed: what it was sent is not kept any more."""


class Outbox:
    """Queue of serialized frames. It outlives transports: `attach` gives it another."""

    def __init__(self, *, keeps: bool = False) -> None:
        """`keeps` is for links that can be resumed."""
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._is_closed = False
        self._is_wanted = False
        """Something was queued, or the transport was woken, since everything was taken."""
        self._wake: Callable[[], None] = _nobody
        self._keeps = keeps
        self._kept: deque[bytes] = deque()
        """The last messages taken; the first of them has the number after `_received`."""
        self._kept_bytes = 0
        self._received = 0
        self._again: deque[bytes] = deque()
        """Kept messages that the transport of now has not taken yet."""
        self.message_count = 0
        """Messages taken so far."""
        self.taken_at = 0.0
        """Monotonic time of the last one."""

    @property
    def is_idle(self) -> bool:
        """Nothing is queued."""
        return not self._frames and not self._again

    @property
    def is_closed(self) -> bool:
        """`close` was called."""
        return self._is_closed

    @property
    def is_finished(self) -> bool:
        """Closed, and everything queued was taken."""
        return self._is_closed and not self._frames and not self._again

    def attach(self, wake: Callable[[], None]) -> None:
        """Gives the queue a transport, which is told of what is queued already."""
        self._wake = wake
        wake()

    def detach(self) -> None:
        """Takes the transport away; frames queue up until there is another."""
        self._wake = _nobody

    def append(self, frame: bytes) -> None:
        """Queues a frame that stays until the next `wake` or `send`: for what need not travel alone."""
        self._frames.append(frame)
        self._queued_bytes += len(frame)

    def wake(self) -> None:
        """Tells the transport that something is queued."""
        self._is_wanted = True
        self._wake()

    def send(self, frame: bytes) -> None:
        """Queues a frame and wakes the transport."""
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        self._is_wanted = True
        self._wake()

    def drop(self) -> None:
        """Forgets what is queued."""
        self._again.clear()
        self._frames.clear()
        self._queued_bytes = 0

    def close(self) -> None:
        """The transport is to end when everything queued has been written."""
        self._is_closed = True
        self._wake()

    def take(self) -> bytes | None:
        """The next message, None while nobody asks for one. Raises BUFFER_FULL when the peer does not read."""
        if self._again:
            self.taken_at = time.monotonic()
            return self._again.popleft()
        if not self._frames or not (self._is_wanted or self._is_closed):
            self._is_wanted = False
            return None
        self.message_count += 1
        self.taken_at = time.monotonic()
        if self._queued_bytes <= MESSAGE_BYTES:
            message = b"".join(self._frames)  # one frame is handed on as it is, without a copy
            self._frames.clear()
            self._queued_bytes = 0
            self._is_wanted = False
        else:
            message = self._join_some()
        if self._keeps:
            self._keep(message)
        return message

    def received(self, count: int) -> None:
        """The peer has the first `count` messages. An older number than the last changes nothing. Raises
        PROTOCOL_VIOLATION for messages that were never sent."""
        if count > self.message_count:
            raise OmniFlowError(
                Reason.PROTOCOL_VIOLATION, f"the peer has received {count} messages, and {self.message_count} were sent"
            )
        while self._received < count and self._kept:
            self._received += 1
            self._kept_bytes -= len(self._kept.popleft())

    @property
    def can_rewind_all(self) -> bool:
        """Whether what the peer may lack is still here."""
        return self._keeps

    def can_rewind(self, count: int) -> bool:
        """Whether everything after the first `count` messages is still here."""
        return self._keeps and self._received <= count <= self.message_count

    def rewind(self, count: int) -> None:
        """The next transport's peer has the first `count` messages: the rest is taken again, before anything else."""
        self.received(count)
        self._again = deque(self._kept)

    def _keep(self, message: bytes) -> None:
        self._kept.append(message)
        self._kept_bytes += len(message)
        if self._kept_bytes > KEPT_BYTES or len(self._kept) > KEPT_MESSAGES:
            self._keeps = False
            self._kept.clear()

    def _join_some(self) -> bytes:
        if self._queued_bytes > QUEUE_LIMIT_BYTES:
            raise OmniFlowError(
                Reason.BUFFER_FULL, f"{self._queued_bytes} bytes wait to be sent, and the peer does not read"
            )
        frames = self._frames
        taken = [frames.popleft()]
        size = len(taken[0])
        while frames and size + len(frames[0]) <= MESSAGE_BYTES:
            taken.append(frames.popleft())
            size += len(taken[-1])
        self._queued_bytes -= size
        return b"".join(taken)


def _nobody() -> None:
    """Wakes no transport."""
