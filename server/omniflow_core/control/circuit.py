"""Circuit breaking: which replicas of a role are left alone for a while because their activations keep failing.

              failures in a row                a start after open_s
    CLOSED ─────────────────────▶ OPEN ─────────────────────────────▶ HALF_OPEN
       ▲                            ▲                                   │    │
       │                            └───────────── fails ──────────────┘    │
       └────────────────────────────────────────── succeeds ───────────────┘

Every failed probe doubles `open_s`; a success forgets all. Results carry no name: one of an activation that began before the
circuit opened changes nothing while it is open, and counts as the probe's while it is half open. A probe that says nothing
for `open_s` (its call was cancelled) is followed by another.

Inputs that fail everywhere open every circuit, and would take a role down that works. So never more than half of its
replicas are left out (rounded down): those whose circuits opened first.

It does not know which failures speak against a replica, and reads no clock: the caller says both.
M. Nygard, "Release It!", 2nd edition, chapter 5; the bound on what is left out is Envoy's `max_ejection_percent`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FAILURES = 5
OPEN_S = 1.0
MAX_OPEN_S = 30.0


class CircuitState(enum.Enum):
    """What may be sent to a replica."""

    CLOSED = "closed"
    """Everything."""
    OPEN = "open"
    """Nothing until its time has passed, then a probe."""
    HALF_OPEN = "half open"
    """A probe is on its way."""


class CircuitEvent(enum.Enum):
    """What moves a circuit."""

    TRIPPED = "failures in a row reached the limit"
    PROBED = "an activation started after the time had passed"
    SUCCEEDED = "an activation succeeded"
    FAILED = "an activation failed"


TRANSITIONS: Mapping[tuple[CircuitState, CircuitEvent], CircuitState] = {
    (CircuitState.CLOSED, CircuitEvent.TRIPPED): CircuitState.OPEN,
    (CircuitState.OPEN, CircuitEvent.PROBED): CircuitState.HALF_OPEN,
    (CircuitState.HALF_OPEN, CircuitEvent.PROBED): CircuitState.HALF_OPEN,
    (CircuitState.HALF_OPEN, CircuitEvent.SUCCEEDED): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, CircuitEvent.FAILED): CircuitState.OPEN,
}
"""All there are; anything else changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitReport:
    """A circuit for people."""

    key: str
    state: CircuitState
    failures: int
    """In a row, since the last success."""
    wait_s: float
    """How long until an activation may start; 0: now."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Circuit:
    """A replica that has failed since its last success."""

    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    open_s: float
    next_probe_s: float = 0.0
    """When a probe, or the next one, may start."""
    order: int = 0
    """Grows with every circuit that opens; kept while probes fail."""

    def move(self, event: CircuitEvent) -> bool:
        """False for what is no transition: nothing has changed."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            return False
        self.state = following
        return True

    def is_left_out(self, now_s: float) -> bool:
        return self.state is not CircuitState.CLOSED and now_s < self.next_probe_s


class Circuits:
    """The circuits of a role's replicas. Only those that have failed lately are kept; times are of any one clock."""

    def __init__(self, *, failures: int = FAILURES, open_s: float = OPEN_S, max_open_s: float = MAX_OPEN_S) -> None:
        self._failures = failures
        self._open_s = open_s
        self._max_open_s = max_open_s
        self._circuits: dict[str, _Circuit] = {}
        self._opened = 0

    def admissible(self, keys: Sequence[str], now_s: float) -> Sequence[str]:
        """Those of a role's replicas that may be given work, in their order; at least half of them."""
        if not self._circuits:
            return keys
        left_out = [key for key in keys if key in self._circuits and self._circuits[key].is_left_out(now_s)]
        left_out.sort(key=lambda key: self._circuits[key].order)
        without = set(left_out[: len(keys) // 2])
        return [key for key in keys if key not in without] if without else keys

    def started(self, key: str, now_s: float) -> None:
        """An activation was sent to the replica: its probe, when it is time for one."""
        circuit = self._circuits.get(key)
        if circuit is not None and now_s >= circuit.next_probe_s and circuit.move(CircuitEvent.PROBED):
            circuit.next_probe_s = now_s + circuit.open_s

    def succeeded(self, key: str) -> None:
        """An activation of the replica has succeeded."""
        circuit = self._circuits.get(key)
        if circuit is None:
            return
        if circuit.state is CircuitState.CLOSED or circuit.move(CircuitEvent.SUCCEEDED):
            del self._circuits[key]

    def failed(self, key: str, now_s: float) -> bool:
        """An activation of the replica has failed in a way that speaks against it. True when that opened its circuit."""
        circuit = self._circuits.get(key)
        if circuit is None:
            circuit = self._circuits[key] = _Circuit(open_s=self._open_s)
        if circuit.move(CircuitEvent.FAILED):
            circuit.open_s = min(self._max_open_s, circuit.open_s * 2)
        elif circuit.state is CircuitState.OPEN:
            return False
        else:
            circuit.failures += 1
            if circuit.failures < self._failures:
                return False
            circuit.move(CircuitEvent.TRIPPED)
            self._opened += 1
            circuit.order = self._opened
        circuit.next_probe_s = now_s + circuit.open_s
        return True

    def forget(self, key: str) -> None:
        """The replica is gone, or begins a new life."""
        self._circuits.pop(key, None)

    def reports(self, now_s: float) -> Sequence[CircuitReport]:
        """Replicas that have failed since their last success, by key; the others are closed."""
        return [
            CircuitReport(
                key=key,
                state=circuit.state,
                failures=circuit.failures,
                wait_s=circuit.next_probe_s - now_s if circuit.is_left_out(now_s) else 0.0,
            )
            for key, circuit in sorted(self._circuits.items())
        ]

    def check_integrity(self) -> None:
        """For tests and idle drivers."""
        opened = [circuit for circuit in self._circuits.values() if circuit.state is not CircuitState.CLOSED]
        assert all(0 < circuit.failures <= self._failures for circuit in self._circuits.values()), (
            "a miscounted failure"
        )
        assert all(circuit.failures == self._failures for circuit in opened), "a circuit opened too early"
        assert len({circuit.order for circuit in opened}) == len(opened), "two circuits opened at the same place"
        assert all(self._open_s <= circuit.open_s <= self._max_open_s for circuit in self._circuits.values()), (
            "a circuit stays open too long, or not long enough"
        )
