"""Which yields of an activation are delivered, so that its producer may go on.

A yield is delivered when every activation that it started has been accepted by a replica, and what it gave to joins and
chunks is stored; what it emits counts as delivered when it is handed to the caller's log (the driver holds acknowledgements
back while the log is full). While the call keeps too much (`room`) a stored contribution is a *debt*: it counts only when
room has been made.
Acknowledgements are cumulative and are given at half a window or half the byte credit, whichever comes first: a message
per yield would cost more than the yield, and later ones would leave a producer of large yields waiting for ever.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omniflow_core.control.work_items import Activation


class Debt:
    """One more receiver of a yield that must count before the yield is delivered. Paid once."""

    __slots__ = ("is_paid", "ordinal", "producer", "tree")

    def __init__(self, producer: Activation, ordinal: int, tree: int = -1) -> None:
        self.producer = producer
        self.ordinal = ordinal
        self.tree = tree
        """Order tree that holds an event of the yield; -1 for a contribution that is stored."""
        self.is_paid = False


class YieldWindow:
    """Delivery of one activation's yields."""

    __slots__ = (
        "_acked",
        "_credit_bytes",
        "_delivered",
        "_delivered_bytes",
        "_pending",
        "_sizes",
        "_step",
        "_step_bytes",
        "_window",
        "next_ordinal",
    )

    def __init__(self, window: int, credit_bytes: int) -> None:
        self.next_ordinal = 0
        """Ordinal that the next yield must have."""
        self._window = max(1, window)
        self._credit_bytes = credit_bytes
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
    def delivered(self) -> int:
        """Ordinal of the first yield that is not delivered."""
        return self._delivered

    @property
    def is_closed(self) -> bool:
        """The producer may not yield until something is acknowledged."""
        return len(self._sizes) >= self._window or sum(self._sizes) >= self._credit_bytes

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
