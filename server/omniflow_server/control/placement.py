"""Where a call belongs: with this process, or with another one of the cluster.

    session held by another life          ──▶ there
    request id of a call of another life  ──▶ there; OWNER_LOST when that life has ended
    this process drains                   ──▶ to any other that does not
    else                                  ──▶ here, under the fence of the session

A call that was passed on by another process is not passed on again: it is refused with STALE_OWNER, and the process that the
client speaks to looks again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from dataclasses import dataclass

from omniflow.graph.v1 import graph_service_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.call import Call
from omniflow_server.control.calls import CallTable, digest_of_request, draining, events_trimmed, owner_lost
from omniflow_server.control.membership import Membership
from omniflow_server.control.ownership import Ownership, store_away
from omniflow_server.control.tasks import BackgroundTasks
from omniflow_server.data.metadata.port import Owner, RequestRow

UNBORN_KEPT = 4096
LOOKS, LOOK_AGAIN_S = 16, 0.02
"""How often a place is looked for while owners and repeats come and go; each time a little later."""


class _ChangedError(Exception):
    """What was learned is true no more: look again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This process accepts the call."""

    call_id: str
    """For the call; empty when it needs none in advance."""
    fence: int
    is_claimed: bool = False
    """Its request id was claimed for it, and is given back when it is refused after all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The call belongs to, or is best given to, another process."""

    owner: Owner


class Placement:
    """Places calls, and keeps the books of what this process owns by them."""

    def __init__(self, calls: CallTable, ownership: Ownership, membership: Membership, tasks: BackgroundTasks) -> None:
        self._calls = calls
        self._ownership = ownership
        self._membership = membership
        self._tasks = tasks
        self._placing: dict[tuple[str, str], asyncio.Event] = {}
        """Request ids that are being claimed; repeats wait for what becomes of them."""
        self._unborn: OrderedDict[str, None] = OrderedDict()
        """Calls that have never begun, and whose request ids the store may have all the same: it did not answer."""
        self._turn = itertools.count()

    def at_once(self, graph: str, spec: graph_service_pb2.CallSpec, tenant: str) -> Here | None:
        """As `find`, when that needs no question to the store; None otherwise."""
        if self._calls.knows_request(tenant, spec.request_id):
            return Here(call_id="", fence=0)  # it joins that call, whatever this process does
        if self._calls.is_draining or (spec.request_id and not self._ownership.is_alone):
            return None
        fence = self._ownership.fence_of((tenant, spec.session)) if spec.session else 0
        return None if fence is None or not self._membership.epoch else Here(call_id="", fence=fence)

    async def find(
        self, graph: str, spec: graph_service_pb2.CallSpec, tenant: str, *, is_forwarded: bool
    ) -> Here | Elsewhere:
        """Where the call belongs. Raises what makes it no call at all before anything is claimed for it, OWNER_LOST for the
        request id of a call that is lost, DRAINING when nobody takes calls, and STORE_UNAVAILABLE."""
        key = (tenant, spec.request_id)
        for look in range(LOOKS):
            found = self.at_once(graph, spec, tenant)
            if found is not None:
                return found
            if spec.request_id and key in self._placing:
                await self._placing[key].wait()
                continue
            try:
                return await self._find(graph, spec, tenant, is_forwarded)
            except _ChangedError:
                await asyncio.sleep(LOOK_AGAIN_S * look)
        raise store_away()

    async def _find(
        self, graph: str, spec: graph_service_pb2.CallSpec, tenant: str, is_forwarded: bool
    ) -> Here | Elsewhere:
        if self._calls.is_draining:
            return self._another(is_forwarded)
        epoch = self._membership.epoch
        if not epoch:
            raise store_away()
        self._calls.check(graph, spec, tenant=tenant)
        fence = self._ownership.fence_of((tenant, spec.session)) if spec.session else 0
        if fence is None:
            lease = await self._ownership.claim((tenant, spec.session))
            if lease.epoch != epoch:
                return await self._with_owner(lease.epoch, is_forwarded)
            fence = lease.fence
        if spec.request_id and not self._ownership.is_alone:
            found = await self._claim_request(graph, spec, tenant, fence, is_forwarded)
        else:
            found = Here(call_id=self._calls.new_id(), fence=fence)
        if epoch != self._membership.epoch:
            raise store_away()  # what was claimed belongs to a life that has ended
        return found

    async def _claim_request(
        self, graph: str, spec: graph_service_pb2.CallSpec, tenant: str, fence: int, is_forwarded: bool
    ) -> Here | Elsewhere:
        key, call_id, digest = (tenant, spec.request_id), self._calls.new_id(), digest_of_request(graph, spec)
        if key in self._placing:
            raise _ChangedError  # another repeat came between
        settled = self._placing[key] = asyncio.Event()
        claiming = self._tasks.create_task(self._claimed(tenant, spec.request_id, call_id, digest))
        try:
            row = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            self._tasks.create_task(self._abandon(claiming, key, call_id))
            raise
        self._settle(key, settled)
        if isinstance(row, OmniFlowError):
            self._note_unborn(call_id)
            raise row
        if row.call_id == call_id or (row.call_id in self._unborn and row.digest == digest):
            self._unborn.pop(row.call_id, None)
            return Here(call_id=row.call_id, fence=fence, is_claimed=True)
        return await self._of_request(row, digest, is_forwarded)

    def _note_unborn(self, call_id: str) -> None:
        self._unborn[call_id] = None
        if len(self._unborn) > UNBORN_KEPT:
            self._unborn.popitem(last=False)

    async def _claimed(self, tenant: str, request_id: str, call_id: str, digest: bytes) -> RequestRow | OmniFlowError:
        """The row, or why there is none: nobody may be left to take an exception."""
        try:
            return await self._ownership.claim_request(tenant, request_id, call_id, digest)
        except OmniFlowError as error:
            return error

    async def _abandon(
        self, claiming: asyncio.Task[RequestRow | OmniFlowError], key: tuple[str, str], call_id: str
    ) -> None:
        """The caller left while its request id was claimed: the id is free again."""
        row = await claiming
        if isinstance(row, OmniFlowError):
            self._note_unborn(call_id)
        elif row.call_id == call_id:
            await self._give_back(*key, call_id)
        self._settle(key, self._placing[key])

    def _settle(self, key: tuple[str, str], settled: asyncio.Event) -> None:
        """Repeats look again. They run after this step, in which the call is accepted, or given back."""
        del self._placing[key]
        settled.set()

    def owner_of(self, call_id: str) -> Owner | None:
        """The other life that owns a call; None when it is one of this process, or nobody's."""
        epoch = epoch_of(call_id)
        if self._calls.knows(call_id) or epoch == self._membership.epoch:
            return None
        return self._membership.owners.get(epoch)

    async def owner_of_request(self, tenant: str, request_id: str) -> tuple[Owner, str] | None:
        """The other life that owns the call of a request id, and the call."""
        if not request_id or self._calls.knows_request(tenant, request_id):
            return None
        row = await self._ownership.find_request(tenant, request_id)
        owner = self.owner_of(row.call_id) if row is not None else None
        return None if owner is None or row is None else (owner, row.call_id)

    async def refused(self, placed: Here, spec: graph_service_pb2.CallSpec, tenant: str) -> None:
        """The call was refused after it was placed."""
        if placed.is_claimed:
            await self._give_back(tenant, spec.request_id, placed.call_id)

    async def _give_back(self, tenant: str, request_id: str, call_id: str) -> None:
        self._note_unborn(call_id)
        if await self._ownership.give_back_request(tenant, request_id, call_id):
            self._unborn.pop(call_id, None)

    # --- books (CallListener) -----------------------------------------------------------------------------------------

    def accepted(self, call: Call) -> None:
        if call.session:
            self._ownership.entered((call.tenant, call.session))
        if call.spec.request_id:
            self._ownership.request_accepted(call.tenant, call.spec.request_id)

    def ended(self, call: Call) -> None:
        if call.session:
            self._ownership.left((call.tenant, call.session))
        if call.spec.request_id:
            self._ownership.request_ended(call.tenant, call.spec.request_id)

    # --- elsewhere ----------------------------------------------------------------------------------------------------

    def _another(self, is_forwarded: bool) -> Elsewhere:
        peers = self._membership.peers()
        if is_forwarded or not peers:
            raise draining()
        return Elsewhere(owner=peers[next(self._turn) % len(peers)])

    async def _with_owner(self, epoch: int, is_forwarded: bool) -> Elsewhere:
        owner = self._membership.owners.get(epoch)
        if owner is None:  # it began after the last tick
            await self._membership.tick()
            owner = self._membership.owners.get(epoch)
        if is_forwarded:
            raise not_the_owner()
        if owner is None:
            raise _ChangedError  # its life has just ended
        return Elsewhere(owner=owner)

    async def _of_request(self, row: RequestRow, digest: bytes, is_forwarded: bool) -> Elsewhere:
        if row.epoch not in self._membership.owners:
            await self._membership.tick()
        if row.epoch != self._membership.epoch and row.epoch in self._membership.owners:
            return await self._with_owner(row.epoch, is_forwarded)
        if row.digest != digest:
            raise OmniFlowError(
                Reason.REQUEST_ID_REUSED, "The request id was used before with another request; make a new one."
            )
        # A call of this very life that the table does not know has ended so long ago that it was forgotten.
        raise events_trimmed(row.call_id) if row.epoch == self._membership.epoch else owner_lost(row.call_id)


def epoch_of(call_id: str) -> int:
    """The life that a call's identifier names; 0 for what is no identifier of ours."""
    _, separator, epoch = call_id.rpartition("-")
    try:
        return int(epoch, 16) if separator else 0
    except ValueError:
        return 0


def not_the_owner() -> OmniFlowError:
    """The refusal of a call that another process must take; the one that has passed it on looks again."""
    return OmniFlowError(
        Reason.STALE_OWNER, "Another control plane owns the session or the call; look again.", retry_after_s=0.05
    )
