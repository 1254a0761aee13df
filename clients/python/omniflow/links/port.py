"""Where a link and the transport that carries it meet.

    transport                                     side of the link
      a message has come                ──▶  received(message); END is the peer's last
      it can write                      ──▶  take() -> the next message, None while nothing is queued
      the peer writes nothing any more  ──▶  peer_left()
      it is gone                        ──▶  closed()
      wake(): something is queued       ◀──

The transport asks for messages when it can write them, so what queues up meanwhile travels as one. Nothing here waits:
every method is called on the loop's thread and returns at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol


class LaneKind(enum.Enum):
    """Same-host lanes, by their names in the contract (LaneOffer)."""

    UNIX_FRAMES = "unix-frames"
    ZMQ_IPC = "zmq-ipc"


END = b""
"""The last message of a side that ends a link in order: it will not go on over another transport."""


class LinkSide(Protocol):
    """One end of a link, as a transport sees it."""

    def take(self) -> bytes | None:
        """The next message to write; None while there is none, and then `wake` tells of the next."""

    def received(self, message: bytes) -> None:
        """Takes a message in. What it raises ends the transport."""

    def peer_left(self) -> None:
        """A transport of two directions that end apart: the peer's has ended, and it may still read."""

    def closed(self) -> None:
        """The transport is gone. Always the last call."""

    @property
    def is_finished(self) -> bool:
        """Nothing will be taken any more: the transport writes END and ends."""


NewSide = Callable[[Callable[[], None]], LinkSide]
"""Makes the side of a transport that a peer has opened, of its `wake`."""
