"""Admission: which call of which session may run.

Calls of one session run one at a time, first in, first out; sessions run side by side. Limits are counted here, so that a
refused call has allocated nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from omniflow_core.errors import OmniFlowError, Reason, Violation

SessionKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Answer to a new call: whether it runs at once, and which calls it supersedes."""

    is_admitted: bool
    superseded: tuple[str, ...] = ()


class Admission:
    """Calls that have not ended, by tenant and session."""

    def __init__(self, *, max_calls: int, max_calls_per_tenant: int, retry_after_s: float = 1.0) -> None:
        self._max_calls = max_calls
        self._max_per_tenant = max_calls_per_tenant
        self._retry_after_s = retry_after_s
        self._tenant_of: dict[str, str] = {}
        self._session_of: dict[str, SessionKey] = {}
        self._per_tenant: dict[str, int] = defaultdict(int)
        self._queues: dict[SessionKey, deque[str]] = {}
        """Calls of a session in order of arrival; the first one runs."""

    def __len__(self) -> int:
        return len(self._tenant_of)

    def arrive(self, call_id: str, *, tenant: str, session: str = "", supersede: bool = False) -> Arrival:
        """Takes a call in. Raises TOO_MANY_CALLS without a trace. Superseded calls must be ended by the caller."""
        self._check_limits(tenant)
        self._tenant_of[call_id] = tenant
        self._per_tenant[tenant] += 1
        if not session:
            return Arrival(is_admitted=True)
        key = (tenant, session)
        queue = self._queues.setdefault(key, deque())
        superseded = tuple(queue) if supersede else ()
        queue.append(call_id)
        self._session_of[call_id] = key
        return Arrival(is_admitted=len(queue) == 1, superseded=superseded)

    def end(self, call_id: str) -> str | None:
        """The call's terminal event is out. Returns the call that may run now. Unknown calls change nothing."""
        tenant = self._tenant_of.pop(call_id, None)
        if tenant is None:
            return None
        self._per_tenant[tenant] -= 1
        if not self._per_tenant[tenant]:
            del self._per_tenant[tenant]
        key = self._session_of.pop(call_id, None)
        if key is None:
            return None
        queue = self._queues[key]
        was_running = queue[0] == call_id
        queue.remove(call_id)
        if not queue:
            del self._queues[key]
            return None
        return queue[0] if was_running else None

    def _check_limits(self, tenant: str) -> None:
        if len(self._tenant_of) >= self._max_calls:
            raise OmniFlowError(
                Reason.TOO_MANY_CALLS,
                f"{self._max_calls} calls are running or queued; try again later.",
                violations=(Violation(field="max_calls", description=f"the limit is {self._max_calls}"),),
                retry_after_s=self._retry_after_s,
            )
        if self._per_tenant.get(tenant, 0) >= self._max_per_tenant:
            raise OmniFlowError(
                Reason.TOO_MANY_CALLS,
                f"Tenant {tenant!r} has {self._max_per_tenant} calls running or queued; try again later.",
                violations=(
                    Violation(field="max_calls_per_tenant", description=f"the limit is {self._max_per_tenant}"),
                ),
                retry_after_s=self._retry_after_s,
            )

    def check_integrity(self) -> None:
        """Recomputes the counts. For tests and idle drivers."""
        per_tenant: dict[str, int] = defaultdict(int)
        for tenant in self._tenant_of.values():
            per_tenant[tenant] += 1
        assert per_tenant == self._per_tenant, "calls per tenant are miscounted"
        queued = {call_id: key for key, queue in self._queues.items() for call_id in queue}
        assert queued == self._session_of, "a session's queue and its calls differ"
        assert all(self._queues.values()), "an empty queue was kept"
