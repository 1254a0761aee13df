"""Admission: which call of which session may run.

Calls of one session run one at a time, first in, first out; sessions run side by side. Limits are counted here, so that a
refused call has allocated nothing.

Two limits hold always: `max_calls`, and `max_calls_per_tenant` for each. Fair shares keep a flood of one tenant from filling
the first: the last tenth of the places is for tenants that have less than their share.

    share of a tenant = max_calls / tenants that have calls, itself counted; at least two once two were ever seen

    100 places, only a was ever seen   a may have 100: there is nobody to leave room for
    100 places, b was seen before      a may have 90 while it is alone; b finds 10, and up to 50 as calls of a end
    100 places, a has 60 and b 30      both shares are 50: a is refused, b may have 10 more; so may a newcomer c of its 33
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from omniflow_core.errors import OmniFlowError, Reason, Violation

SessionKey = tuple[str, str]

SHARED_TENTHS = 9
"""Tenths of `max_calls` that anybody may fill. The last one has room for a newcomer's first calls while those of a flood
end, and is little to keep from a tenant that has much to do while nobody else is there."""


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
        self._first_tenant: str | None = None
        self._has_several = False
        """A second tenant has been seen. It stays so: a tenant that was here comes again."""

    def __len__(self) -> int:
        return len(self._tenant_of)

    def arrive(self, call_id: str, *, tenant: str, session: str = "", supersede: bool = False) -> Arrival:
        """Takes a call in. Raises TOO_MANY_CALLS without a trace, but that there is the tenant is remembered.

        Superseded calls must be ended by the caller.
        """
        self._see(tenant)
        self.check_limits(tenant)
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

    def _see(self, tenant: str) -> None:
        if self._first_tenant is None:
            self._first_tenant = tenant
        self._has_several = self._has_several or tenant != self._first_tenant

    def check_limits(self, tenant: str) -> None:
        taken, own = len(self._tenant_of), self._per_tenant.get(tenant, 0)
        if taken >= self._max_calls:
            raise self._refusal(
                f"{self._max_calls} calls are running or queued; try again later.",
                Violation(field="max_calls", description=f"the limit is {self._max_calls}"),
            )
        if own >= self._max_per_tenant:
            raise self._refusal(
                f"Tenant {tenant!r} has {self._max_per_tenant} calls running or queued; try again later.",
                Violation(field="max_calls_per_tenant", description=f"the limit is {self._max_per_tenant}"),
            )
        tenants = self._tenants_with(tenant)
        if own * tenants >= self._max_calls and (taken + 1) * 10 > self._max_calls * SHARED_TENTHS:
            raise self._refusal(
                f"Tenant {tenant!r} has its share, {own} calls running or queued, and the last tenth of {self._max_calls} "
                "is for tenants that have less; try again later.",
                Violation(
                    field="max_calls",
                    description=f"the limit is {self._max_calls}, of which {tenants} tenants share the last tenth",
                ),
            )

    def _tenants_with(self, tenant: str) -> int:
        """How many share, this one counted. Another that was seen before may come any time."""
        others = len(self._per_tenant) - (tenant in self._per_tenant)
        return max(others + 1, 2 if self._has_several else 1)

    def _refusal(self, message: str, violation: Violation) -> OmniFlowError:
        return OmniFlowError(Reason.TOO_MANY_CALLS, message, violations=(violation,), retry_after_s=self._retry_after_s)

    def check_integrity(self) -> None:
        """Recomputes the counts. For tests and idle drivers."""
        per_tenant: dict[str, int] = defaultdict(int)
        for tenant in self._tenant_of.values():
            per_tenant[tenant] += 1
        assert per_tenant == self._per_tenant, "calls per tenant are miscounted"
        queued = {call_id: key for key, queue in self._queues.items() for call_id in queue}
        assert queued == self._session_of, "a session's queue and its calls differ"
        assert all(self._queues.values()), "an empty queue was kept"
