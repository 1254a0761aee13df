"""Which yields of an activation are delivered, so that its producer may go on.

A yield is delivered when every activation that it started has been accepted by a replica; what it emits counts as
delivered when it is handed to the caller's log (the driver holds acknowledgements back while the log is full).
Acknowledgements are cumulative and are given at half a window or half the byte credit, whichever comes first: a message
per yield would cost more than the yield, and later ones would leave a producer of large yields waiting for ever.
"""

from __future__ import annotations

from collections import deque
from itertools import islice


class YieldWindow:
    """Delivery of one activation's yields."""

    __slots__ = (
        "_acked",
        "_delivered",
        "_delivered_bytes",
        "_pending",
        "_sizes",
        "_step",
        "_step_bytes",
        "next_ordinal",
    )

    def __init__(self, window: int, credit_bytes: int) -> None:
        self.next_ordinal = 0
        """Ordinal that the next yield must have."""
        self._step = max(1, window // 2)
        self._step_bytes = credit_bytes // 2
        self._sizes: deque[int] = deque()
        """Sizes of the yields that are not acknowledged, from `_acked` on."""
        self._delivered_bytes = 0
        """Bytes of those of them that are delivered."""
        self._pending: dict[int, int] = {}
        self._delivered = 0
        self._acked = 0

    @property
    def undelivered(self) -> int:
        """Yields that have come and are not delivered."""
        return self.next_ordinal - self._delivered

    def register(self, receivers: int, size_bytes: int) -> int | None:
        """The next yield came and waits for `receivers` acceptances. Returns a due acknowledgement."""
        ordinal = self.next_ordinal
        self.next_ordinal += 1
        self._sizes.append(size_bytes)
        if receivers:
            self._pending[ordinal] = receivers
            return None
        return self._advance() if ordinal == self._delivered else None

    def accept(self, ordinal: int) -> int | None:
        """One receiver of the yield has accepted. Returns a due acknowledgement."""
        left = self._pending[ordinal] - 1
        if left:
            self._pending[ordinal] = left
            return None
        del self._pending[ordinal]
        return self._advance() if ordinal == self._delivered else None

    def _advance(self) -> int | None:
        pending, limit = self._pending, self.next_ordinal
        if pending:
            limit = next(iter(pending))  # ordinals are registered in order, so the first is the lowest
        start = self._delivered - self._acked
        self._delivered_bytes += sum(islice(self._sizes, start, limit - self._acked))
        self._delivered = limit
        if limit - self._acked < self._step and self._delivered_bytes < self._step_bytes:
            return None
        for _ in range(limit - self._acked):
            self._sizes.popleft()
        self._delivered_bytes = 0
        self._acked = limit
        return limit
