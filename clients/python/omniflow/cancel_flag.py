"""A threading.Event that costs nothing until somebody waits: every activation has one, few are waited for."""

from __future__ import annotations

import threading

_making = threading.Lock()


class CancelFlag:
    """Set once, by the loop; read and waited for by any thread."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wakes everybody who waits."""
        self._is_set = True
        with _making:
            event = self._event
        if event is not None:
            event.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until it is set, or the time is over; returns whether it is set."""
        with _making:
            event = self._event
            if event is None:
                event = self._event = threading.Event()
        if self._is_set:  # before the event was there
            return True
        return event.wait(timeout_s)
