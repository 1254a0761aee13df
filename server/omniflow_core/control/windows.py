"""Which yields of an activation are delivered, so that its producer may go on. SEMANTICS rule 10.

A yield is delivered when every activation that it started has been accepted by a replica; what it emits counts as
delivered when it is handed to the caller's log (the driver holds acknowledgements back while the log is full).
Acknowledgements are cumulative and are given at half a window: a message per yield would cost more than the yield.
"""

from __future__ import annotations


class YieldWindow:
    """Delivery of one activation's yields."""

    __slots__ = ("_acked", "_delivered", "_pending", "_step", "next_ordinal")

    def __init__(self, window: int) -> None:
        self.next_ordinal = 0
        """Ordinal that the next yield must have."""
        self._step = max(1, window // 2)
        self._pending: dict[int, int] = {}
        self._delivered = 0
        self._acked = 0

    def register(self, receivers: int) -> int | None:
        """The next yield came and waits for `receivers` acceptances. Returns a due acknowledgement."""
        ordinal = self.next_ordinal
        self.next_ordinal += 1
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
        self._delivered = limit
        if self._delivered - self._acked >= self._step:
            self._acked = self._delivered
            return self._acked
        return None
