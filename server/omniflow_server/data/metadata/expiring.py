"""A dictionary whose entries are kept for a time: it decides when an entry is gone. Time comes in as an argument.

What has run out is taken away when the dictionary has doubled since it last was, so it stays O(live) at O(1) a change.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_FIRST_SWEEP = 256


class Expiring(Generic[K, V]):
    """Entries with the millisecond at which they are gone."""

    def __init__(self) -> None:
        self._entries: dict[K, tuple[int, V]] = {}
        self._sweep_at = _FIRST_SWEEP

    def get(self, key: K, now_ms: int) -> V | None:
        found = self._entries.get(key)
        return found[1] if found is not None and now_ms < found[0] else None

    def put(self, key: K, value: V, *, now_ms: int, keep_ms: int) -> None:
        if len(self._entries) >= self._sweep_at:
            self.sweep(now_ms)
            self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._entries))
        self._entries[key] = (now_ms + keep_ms, value)

    def remove(self, key: K) -> None:
        self._entries.pop(key, None)

    def sweep(self, now_ms: int) -> int:
        """Takes away what has run out; returns how many are left."""
        self._entries = {key: entry for key, entry in self._entries.items() if now_ms < entry[0]}
        return len(self._entries)
