"""What a replica remembers so that late messages change nothing: cancelled calls and the fences of sessions."""

from __future__ import annotations

from collections import OrderedDict

_REMEMBERED = 16_384
"""A cancel overtakes at most what is on its way on one stream, and a stale owner writes within its lease: minutes of
traffic are enough. About 3 MB when full."""


class CancelledCalls:
    """Calls of which a cancel has been heard; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, None] = OrderedDict()

    def add(self, call_id: str) -> bool:
        """False when it was there before."""
        is_new = call_id not in self._calls
        self._calls[call_id] = None
        self._calls.move_to_end(call_id)
        if len(self._calls) > _REMEMBERED:
            self._calls.popitem(last=False)
        return is_new

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls


class SessionFences:
    """The highest fence seen of each session; an owner with a lower one has been replaced."""

    def __init__(self) -> None:
        self._highest: OrderedDict[tuple[str, str], int] = OrderedDict()

    def admits(self, tenant: str, session: str, fence: int) -> bool:
        """Remembers the fence unless a higher one has been seen."""
        key = (tenant, session)
        if fence < self._highest.get(key, 0):
            return False
        self._highest[key] = fence
        self._highest.move_to_end(key)
        if len(self._highest) > _REMEMBERED:
            self._highest.popitem(last=False)
        return True
