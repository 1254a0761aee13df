"""How long values outlive the streams of the control plane that owns their calls.

attach(owner) ─▶ note(owner, call)… ─▶ release(call)              the usual end
                                    └▶ detach(owner) ─▶ attach    a broken stream: nothing is dropped
                                                     └▶ retain_s later: all calls of the owner are dropped
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from omniflow.large_values import ValueStore


class RetainedCalls:
    """Calls whose values are kept, by the life of the control plane that owns them."""

    def __init__(self, store: ValueStore, *, retain_s: float) -> None:
        self._store = store
        self._retain_s = retain_s
        self._streams: dict[str, int] = {}
        self._calls: dict[str, set[str]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def attach(self, owner: str) -> None:
        """A stream of the owner has begun."""
        self._streams[owner] = self._streams.get(owner, 0) + 1
        timer = self._timers.pop(owner, None)
        if timer is not None:
            timer.cancel()

    def detach(self, owner: str) -> None:
        """A stream of the owner has ended."""
        self._streams[owner] -= 1
        if self._streams[owner] == 0:
            del self._streams[owner]
            loop = asyncio.get_running_loop()
            self._timers[owner] = loop.call_later(self._retain_s, self._expire, owner)

    def note(self, owner: str, call_id: str) -> None:
        """A value of the call is in the store."""
        self._calls.setdefault(owner, set()).add(call_id)

    def release(self, call_ids: Iterable[str]) -> None:
        """The calls have ended."""
        for call_id in call_ids:
            self._store.release_call(call_id)
            for calls in self._calls.values():
                calls.discard(call_id)

    def close(self) -> None:
        """Cancels the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _expire(self, owner: str) -> None:
        self._timers.pop(owner, None)
        for call_id in self._calls.pop(owner, ()):
            self._store.release_call(call_id)
