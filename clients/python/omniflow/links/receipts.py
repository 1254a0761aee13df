"""What a link has taken in of its peer's messages, and when the peer is to be told."""

from __future__ import annotations

from omniflow.role.v1 import role_execution_service_pb2

TOLD_AFTER_MESSAGES = 64
TOLD_AFTER_BYTES = 1024 * 1024
"""The peer keeps that much at most, and what is on its way."""


class Receipts:
    """Counts messages. What tells of them is a message too, so it must be rarer than one in two."""

    __slots__ = ("_told", "_untold_bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        """Messages taken in, hellos aside."""
        self._told = 0
        self._untold_bytes = 0

    def add(self, size_bytes: int) -> bool:
        """Counts a message; whether the peer is to be told now."""
        self.count += 1
        self._untold_bytes += size_bytes
        return self.count - self._told >= TOLD_AFTER_MESSAGES or self._untold_bytes >= TOLD_AFTER_BYTES

    def frame(self) -> bytes:
        """Tells the peer; empty when it knows. Both directions have the same field for it."""
        if self._told == self.count:
            return b""
        self._told, self._untold_bytes = self.count, 0
        return role_execution_service_pb2.ExecuteRequest(received_messages=self.count).SerializeToString()
