"""When a process that died is started again. Pure.

death      1      2      3      4      5          ready for stable_after_s, then death
pause    0.2    0.4    0.8    1.6    give up      0.2 again
                                     (never been ready)
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

USAGE_STATUS = 2
"""Exit status of a process that was started wrongly; starting it again would not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Times in seconds; meanings as in SupervisorSettings."""

    delay_s: float
    delay_max_s: float
    stable_after_s: float
    max_failed_starts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How a process ended: its exit status (negative: the signal) and how long it had been ready, None if never."""

    status: int
    ready_for_s: float | None
    cause: str = ""
    """Why there was no process at all; `status` says nothing then."""

    def __str__(self) -> str:
        if self.cause:
            return self.cause
        if self.status >= 0:
            return f"ended with status {self.status}"
        known = {number.value: number.name for number in signal.Signals}
        return f"was killed by {known.get(-self.status, f'signal {-self.status}')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Deaths of one process in a row, and whether it has ever been ready."""

    streak: int = 0
    has_been_ready: bool = False

    def after(self, death: Death, policy: RestartPolicy) -> Restarts:
        """The history with one more death."""
        is_stable = death.ready_for_s is not None and death.ready_for_s >= policy.stable_after_s
        return Restarts(
            streak=1 if is_stable else self.streak + 1,
            has_been_ready=self.has_been_ready or death.ready_for_s is not None,
        )

    def is_hopeless(self, death: Death, policy: RestartPolicy) -> bool:
        """Whether the process is given up. One that has been ready is restarted for ever."""
        return not self.has_been_ready and self.is_failing(death, policy)

    def is_failing(self, death: Death, policy: RestartPolicy) -> bool:
        """Whether the process ended before it was ready, and so often or so clearly that it will not come back by itself."""
        is_early = death.ready_for_s is None
        return is_early and (death.status == USAGE_STATUS or self.streak >= policy.max_failed_starts)

    def delay_s(self, policy: RestartPolicy) -> float:
        """Pause before the next start."""
        # Past 2**30 the pause is the longest one anyway; without the bound the power overflows after weeks of deaths.
        return min(policy.delay_s * 2.0 ** min(max(self.streak - 1, 0), 30), policy.delay_max_s)
