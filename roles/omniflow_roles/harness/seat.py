"""Who runs and who waits at one interface. Decides only; starts nothing.

max_concurrency 2, session-ordered work of session s:      running {a(s,1), b}   waiting [c(s,2), d]
b ends  -> d starts: c must wait for a, which is of the same session
"""

from __future__ import annotations

from omniflow.interface import Interface
from omniflow_roles.harness.execution import Execution, OrderKey


class InterfaceSeat:
    """The places of one interface. First come, first served, except that a session's work runs one at a time, by ordinal."""

    __slots__ = ("_busy_keys", "interface", "running", "waiting")

    def __init__(self, interface: Interface) -> None:
        self.interface = interface
        self.running: set[Execution] = set()
        self.waiting: list[Execution] = []
        self._busy_keys: set[OrderKey] = set()

    def take_next(self) -> Execution | None:
        """Moves the next execution from waiting to running; None when there is none or no place is free."""
        if not self.waiting or len(self.running) >= self.interface.max_concurrency:
            return None
        execution = self._first_free()
        if execution is None:
            return None
        self.waiting.remove(execution)
        self.running.add(execution)
        if execution.order_key is not None:
            self._busy_keys.add(execution.order_key)
        return execution

    def leave(self, execution: Execution) -> None:
        """Gives up the place, running or waiting. Repeats change nothing."""
        if execution in self.running:
            self.running.discard(execution)
            if execution.order_key is not None:
                self._busy_keys.discard(execution.order_key)
        elif execution in self.waiting:
            self.waiting.remove(execution)

    def _first_free(self) -> Execution | None:
        """The first that waits and may run; of a session the one with the lowest ordinal."""
        for execution in self.waiting:
            if execution.order_key is None:
                return execution
            if execution.order_key not in self._busy_keys:
                same = (other for other in self.waiting if other.order_key == execution.order_key)
                return min(same, key=lambda other: other.ordinal)
        return None
