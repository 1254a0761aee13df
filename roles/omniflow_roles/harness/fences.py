"""What a replica remembers so that late messages change nothing: what is over, and the fences of sessions."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_REMEMBERED = 16_384
"""A cancel overtakes at most what is on its way on one stream, and a stale owner writes within its lease: minutes of
traffic are enough. About 3 MB when full."""


KeyT = TypeVar("KeyT", bound=Hashable)


class Remembered(Generic[KeyT]):
    """Keys of what is over; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._keys: OrderedDict[KeyT, None] = OrderedDict()

    def add(self, key: KeyT) -> bool:
        """False when it was there before."""
        is_new = key not in self._keys
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > _REMEMBERED:
            self._keys.popitem(last=False)
        return is_new

    def __contains__(self, key: KeyT) -> bool:
        return key in self._keys


class CancelledCalls(Remembered[str]):
    """Calls of which a cancel has been heard."""


class FenceAge(enum.Enum):
    """A fence beside those that were seen of its session before."""

    STALE = "lower: its owner has been replaced"
    CURRENT = "the highest, or the first"
    NEWER = "higher: the owner before it has been replaced"


class SessionFences:
    """The highest fence seen of each session; an owner with a lower one has been replaced."""

    def __init__(self) -> None:
        self._highest: OrderedDict[tuple[str, str], int] = OrderedDict()

    def see(self, tenant: str, session: str, fence: int) -> FenceAge:
        """Remembers the fence unless a higher one has been seen."""
        key = (tenant, session)
        highest = self._highest.get(key, fence)
        if fence < highest:
            return FenceAge.STALE
        self._highest[key] = fence
        self._highest.move_to_end(key)
        if len(self._highest) > _REMEMBERED:
            self._highest.popitem(last=False)
        return FenceAge.NEWER if fence > highest else FenceAge.CURRENT
