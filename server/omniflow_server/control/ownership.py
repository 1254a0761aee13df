"""What this process owns in its cluster: sessions, under fences, and the calls of request ids.

    session   held ──last call ends──▶ idle ──IDLE_S, or a drain──▶ released
              A held session needs no store: nobody else gets it while the life of this process stands.
    request   claimed before the call is accepted, renewed while it runs, kept for a while after that

A session that another life holds is that life's business, and so is a call whose request id is taken: the answer is then who
owns it. Everything here is lost when the life of this process ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.membership import Membership, now_s
from omniflow_server.data.metadata.port import MetadataStore, RequestRow, SessionLease, SessionName

log = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_S = 5.0
"""How long a session is held after its last call: the next turn of a conversation mostly follows soon. Longer than a claim
may take: a session must not be given up under a call that is being placed."""
SESSION_KEEP_S = 30.0
"""How long the store keeps the row of a session whose owner says nothing more of it; it is renewed at a third. A store that
was away for longer has lost rows of owners that live, and these look at once what is left of them."""


@dataclass(slots=True)
class _Held:
    fence: int
    renew_s: float
    """When its row is due for renewal."""
    calls: int = 0
    idle_since_s: float = 0.0


class Ownership:
    """Sessions and request ids of this process. All methods on the loop's thread."""

    def __init__(
        self,
        store: MetadataStore,
        membership: Membership,
        *,
        is_alone: bool,
        request_keep_s: float,
        on_session_lost: Callable[[SessionName], None],
    ) -> None:
        """`is_alone`: no other process can share the store, so request ids need no rows. `on_session_lost`: another process
        owns a session that was held here, because the store has forgotten that."""
        self._on_session_lost = on_session_lost
        self._store = store
        self._membership = membership
        self._is_alone = is_alone
        self._request_keep_s = request_keep_s
        self._held: dict[SessionName, _Held] = {}
        self._to_release: set[SessionName] = set()
        """Sessions that were given up, and of which the store has not heard it."""
        self._requests: dict[tuple[str, str], float] = {}
        """Request ids of calls that run, with the time at which their rows are renewed."""
        self._ended_requests: set[tuple[str, str]] = set()
        """Those of calls that have ended since: their rows are renewed once more."""

    @property
    def is_alone(self) -> bool:
        return self._is_alone

    @property
    def session_count(self) -> int:
        """Sessions held now."""
        return len(self._held)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def fence_of(self, session: SessionName) -> int | None:
        """The fence under which the session is held here for certain; None when the store must be asked. Whoever asks is
        about to accept a call, so the session is not idle."""
        held = self._held.get(session)
        if held is None or not self._membership.has_lease:
            return None
        held.idle_since_s = now_s()
        return held.fence

    async def claim(self, session: SessionName) -> SessionLease:
        """Who owns the session: this process, if nobody else does. Raises STORE_UNAVAILABLE."""
        epoch = self._membership.epoch
        (lease,) = await self._answer(lambda: self._store.claim_sessions(epoch, [session], keep_s=SESSION_KEEP_S))
        if lease.epoch == epoch == self._membership.epoch:
            self._to_release.discard(session)
            held = self._held.setdefault(session, _Held(lease.fence, 0.0))
            held.fence = lease.fence  # another one when its row had run out; the calls that it has go on
            held.idle_since_s = now_s()
            held.renew_s = now_s() + SESSION_KEEP_S / 3
        return lease

    def entered(self, session: SessionName) -> None:
        """A call of the session was accepted here."""
        held = self._held.get(session)
        if held is not None:
            held.calls += 1

    def left(self, session: SessionName) -> None:
        """A call of the session has ended."""
        held = self._held.get(session)
        if held is not None and held.calls:
            held.calls -= 1
            held.idle_since_s = now_s()

    # --- request ids --------------------------------------------------------------------------------------------------

    async def claim_request(self, tenant: str, request_id: str, call_id: str, digest: bytes) -> RequestRow:
        """What the request id stands for; the given call, if for nothing else. Raises STORE_UNAVAILABLE."""
        epoch = self._membership.epoch
        item = (tenant, request_id, call_id, digest)
        (row,) = await self._answer(lambda: self._store.claim_requests(epoch, [item], keep_s=self._request_keep_s))
        return row

    def request_accepted(self, tenant: str, request_id: str) -> None:
        """A call runs under the request id; its row is renewed for as long as it does."""
        if not self._is_alone:
            self._requests[tenant, request_id] = now_s() + self._request_keep_s / 3

    async def find_request(self, tenant: str, request_id: str) -> RequestRow | None:
        """What the request id stands for."""
        return None if self._is_alone else await self._store.find_request(tenant, request_id)

    async def give_back_request(self, tenant: str, request_id: str, call_id: str) -> bool:
        """The call was refused after all: the request id is free again. False when the store has not said so."""
        self._requests.pop((tenant, request_id), None)
        try:
            await self._store.release_requests(self._membership.epoch, [(tenant, request_id, call_id)])
        except OmniFlowError as error:
            log.info("request id %s may stay taken until its row runs out: %s", request_id, error.message)
            return False
        return True

    def request_ended(self, tenant: str, request_id: str) -> None:
        """Its call has ended: the row stays for as long as rows are kept."""
        if self._requests.pop((tenant, request_id), None) is not None:
            self._ended_requests.add((tenant, request_id))

    async def _answer(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer of the store. A caller is not to blame for a life that has ended meanwhile: it may try again."""
        if not self._membership.epoch:
            raise store_away()
        try:
            return await ask()
        except OmniFlowError as error:
            if error.reason is not Reason.STALE_OWNER:
                raise
            self._membership.tick_soon()
            raise store_away() from None

    # --- in between ---------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Renews what is due and gives up what is idle. To be called a few times a second."""
        epoch = self._membership.epoch
        try:
            await self._release_idle(epoch)
            await self._renew_sessions(epoch)
            await self._renew_requests(epoch)
        except OmniFlowError as error:
            log.info("sessions and requests are renewed later: %s", error.message)

    async def _release_idle(self, epoch: int) -> None:
        idle_s = 0.0 if self._membership.is_draining else IDLE_S
        since_s = now_s() - idle_s
        for name in [name for name, held in self._held.items() if not held.calls and held.idle_since_s <= since_s]:
            del self._held[name]
            self._to_release.add(name)
        releasing = list(self._to_release)
        if releasing:
            await self._store.release_sessions(epoch, releasing)
            self._to_release.difference_update(releasing)

    async def _renew_sessions(self, epoch: int) -> None:
        due = [name for name, held in self._held.items() if held.renew_s <= now_s()]
        if due:
            leases = await self._store.claim_sessions(epoch, due, keep_s=SESSION_KEEP_S)
            for name, lease in zip(due, leases, strict=True):
                self._note(name, lease, epoch)

    async def _renew_requests(self, epoch: int) -> None:
        due = [name for name, due_s in self._requests.items() if due_s <= now_s()]
        ended = list(self._ended_requests)
        if not due and not ended:
            return
        await self._store.renew_requests(epoch, [*due, *ended], keep_s=self._request_keep_s)
        self._ended_requests.difference_update(ended)
        for name in due:
            if name in self._requests:
                self._requests[name] = now_s() + self._request_keep_s / 3

    def _note(self, session: SessionName, lease: SessionLease, epoch: int) -> None:
        """What the store has said of a session that is held here."""
        held = self._held.get(session)
        if held is None or epoch != self._membership.epoch:
            return
        if lease.epoch != epoch:
            del self._held[session]
            self._on_session_lost(session)
        else:
            held.fence = lease.fence  # another one when the row had gone, and nobody had taken the session
            held.renew_s = now_s() + SESSION_KEEP_S / 3

    async def renew_all(self) -> None:
        """The store was away: rows may have run out meanwhile."""
        for held in self._held.values():
            held.renew_s = 0.0
        await self.keep()

    async def keep_for_ever(self, interval_s: float = 0.25) -> None:
        """Keeps until it is cancelled; a draining process gives sessions up at once."""
        while True:
            await asyncio.sleep(0.05 if self._membership.is_draining else interval_s)
            await self.keep()

    def forget_all(self) -> None:
        """The life has ended: others may own everything by now."""
        self._held.clear()
        self._to_release.clear()
        self._requests.clear()
        self._ended_requests.clear()


def store_away() -> OmniFlowError:
    """The error of a caller who cannot be answered without the metadata store."""
    return OmniFlowError(
        Reason.STORE_UNAVAILABLE,
        "The metadata store does not answer, or this process is just coming back; try again.",
        retry_after_s=0.2,
    )
