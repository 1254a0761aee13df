"""Execution gates: the activations of a session run one at a time, and in order.

Inside a call a session-ordered node has an `ExecutionGate`. Its order tree (`ordering`) says whose turn has come: every
earlier sibling subtree that could have reached the node has settled. The gate lets one of those run and queues the rest.
Between the calls of a session, `SessionGates` lets a node of the next call begin only after the previous call's activations
of it have ended: a call is admitted after its predecessor's terminal event, when work may still be winding down.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from omniflow_core.control.commands import StartActivation


class ExecutionGate:
    """The gate of one session-ordered node in one call."""

    __slots__ = ("_queue", "node", "running")

    def __init__(self, node: str) -> None:
        self.node = node
        self.running = 0
        """The activation that runs, or 0."""
        self._queue: deque[StartActivation] = deque()

    @property
    def waiting(self) -> tuple[int, ...]:
        """Activations whose turn in the order has come, while another one runs."""
        return tuple(start.activation_id for start in self._queue)

    def enter(self, start: StartActivation) -> StartActivation | None:
        """The activation's turn in the order has come. Returns it when it may run now."""
        if self.running:
            self._queue.append(start)
            return None
        self.running = start.activation_id
        return start

    def leave(self, activation_id: int) -> StartActivation | None:
        """The activation has ended. Returns the one that may run now. Others than the running one change nothing."""
        if activation_id != self.running:
            return None
        self.running = 0
        return self.enter(self._queue.popleft()) if self._queue else None

    def clear(self) -> None:
        """The call has ended: nothing that waits will run."""
        self._queue.clear()
        self.running = 0


@dataclass(frozen=True, slots=True)
class GateKey:
    """What is ordered: the activations of one interface in one session."""

    tenant: str
    session: str
    interface: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One activation of one call. Ordinals grow in the order of entry, over all sessions, so a session's have gaps."""

    call_id: str
    activation_id: int
    ordinal: int


@dataclass(slots=True)
class _Line:
    inside: dict[tuple[str, int], Entry]
    """Those that run; all of one call."""
    waiting: dict[tuple[str, int], Entry]


class SessionGates:
    """Activations of session-ordered interfaces that have not ended, over all calls. Calls of a session come in order."""

    def __init__(self) -> None:
        self._lines: dict[GateKey, _Line] = {}
        self._next_ordinal = 1

    def __len__(self) -> int:
        return sum(len(line.inside) + len(line.waiting) for line in self._lines.values())

    def enter(self, key: GateKey, call_id: str, activation_id: int) -> Entry | None:
        """An activation is to start. Returns its entry when it may, None when it waits for an earlier call's to end.

        Entering twice is the same as once: a second attempt keeps its place.
        """
        line = self._lines.setdefault(key, _Line({}, {}))
        place = (call_id, activation_id)
        known = line.inside.get(place)
        if known is not None or place in line.waiting:
            return known
        entry = Entry(call_id, activation_id, self._next_ordinal)
        self._next_ordinal += 1
        if all(other == call_id for other, _ in line.inside) and not line.waiting:
            line.inside[place] = entry
            return entry
        line.waiting[place] = entry
        return None

    def entry_of(self, key: GateKey, call_id: str, activation_id: int) -> Entry | None:
        """The entry of an activation that may run."""
        line = self._lines.get(key)
        return line.inside.get((call_id, activation_id)) if line is not None else None

    def leave(self, key: GateKey, call_id: str, activation_id: int) -> list[Entry]:
        """The activation has ended, or will never start. Returns those that may start now. Unknown ones change nothing."""
        line = self._lines.get(key)
        if line is None:
            return []
        place = (call_id, activation_id)
        line.inside.pop(place, None)
        line.waiting.pop(place, None)
        admitted: list[Entry] = []
        while not line.inside and line.waiting:
            first = next(iter(line.waiting))[0]
            for waiting in [w for w in line.waiting if w[0] == first]:
                admitted.append(entry := line.waiting.pop(waiting))
                line.inside[waiting] = entry
        if not line.inside:
            del self._lines[key]
        return admitted

    def check_integrity(self) -> None:
        """For tests and idle drivers."""
        for line in self._lines.values():
            assert line.inside, "a gate without anybody inside was kept"
            assert len({call_id for call_id, _ in line.inside}) == 1, "two calls are inside one gate"
