"""Accounting of the yields that an activation has sent and nobody has acknowledged yet.

A window of 4 yields and a credit of 100 bytes, after an ack of ordinal 0:

    ordinal   0      1    2    3
    bytes     10     80   30             undelivered: 2 yields, 110 bytes: closed until ordinal 1 is acked
              acked
"""

from __future__ import annotations

from collections import deque


class SendWindow:
    """Open while fewer than `yields` are undelivered, and fewer than `credit_bytes` (one yield may go past them).

    Yields below `first_ordinal` were delivered before.
    """

    __slots__ = ("_credit_bytes", "_first", "_sizes", "_yields", "undelivered_bytes")

    def __init__(self, yields: int, credit_bytes: int, *, first_ordinal: int = 0) -> None:
        self._yields = max(1, yields)
        self._credit_bytes = credit_bytes
        self._sizes: deque[int] = deque()
        self._first = first_ordinal
        self.undelivered_bytes = 0

    @property
    def is_open(self) -> bool:
        count = len(self._sizes)
        return count == 0 or (count < self._yields and self.undelivered_bytes < self._credit_bytes)

    @property
    def next_ordinal(self) -> int:
        """Ordinal of the next yield."""
        return self._first + len(self._sizes)

    def sent(self, size_bytes: int) -> None:
        self._sizes.append(size_bytes)
        self.undelivered_bytes += size_bytes

    def ack(self, next_ordinal: int) -> None:
        """Everything below `next_ordinal` is delivered. Repeats and acks of what was never sent change nothing more."""
        while self._sizes and self._first < next_ordinal:
            self.undelivered_bytes -= self._sizes.popleft()
            self._first += 1

    def resize(self, ordinal: int, size_bytes: int) -> None:
        """The true size of a yield that was sent with an estimate; nothing happens when it is delivered already."""
        index = ordinal - self._first
        if 0 <= index < len(self._sizes):
            self.undelivered_bytes += size_bytes - self._sizes[index]
            self._sizes[index] = size_bytes
