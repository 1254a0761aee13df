"""This process among the control planes of its cluster: its life in the metadata store, and the lives of the others.

    begin ──▶ epoch ──▶ tick every TICK_S ──▶ … ──▶ end
                          │  STALE_OWNER: the others have taken this process for dead (it stood still, or the store was
                          │  wiped): everything that it owned is lost, and it begins again under a new epoch
                          └─ the owners that live; what has changed of replicas and graphs, for the members

A lease is only trusted for as long as the store can be sure to keep it: from the moment that the renewal was sent, by a
clock that goes on while the machine sleeps. Whoever acts for a session asks `has_lease` first, and waits when it has run
out: the next tick tells whether it is still good.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.port import MetadataStore, Owner, Renewal, Tick

log = logging.getLogger(__name__)

TICK_S = 0.25
"""Several within a lease of 1.5 s, and what one control plane knows the others know well within a second."""
FIGHT_LOSSES, FIGHT_S, FIGHT_PAUSE_S = 3, 10.0, 5.0
"""So many lives lost so fast: two processes have one identifier, and end each other's. Then it takes its time."""
FIRST_WAIT_S = 15.0
"""How long a process that starts waits for the store."""


class Member(Protocol):
    """What has something to tell the store with each tick, or to learn from it."""

    def renewals(self) -> Sequence[Renewal]: ...

    def take(self, tick: Tick) -> None: ...


def now_s() -> float:
    """Seconds on a clock that also goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Membership:
    """The life of one process. `run` ticks until it is cancelled."""

    def __init__(
        self,
        store: MetadataStore,
        owner: Owner,
        *,
        ttl_s: float,
        replica_ttl_s: float,
        on_lost: Callable[[], None],
        on_back: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_lost`: the others have taken everything over; called before a new life begins. `on_back`: the store was away,
        and the life goes on."""
        self._on_back = on_back
        self._store = store
        self._owner = owner
        self._ttl_s = ttl_s
        self._replica_ttl_s = replica_ttl_s
        self._on_lost = on_lost
        self._members: list[Member] = []
        self._lease_end_s = 0.0
        self._soon = asyncio.Event()
        self._ticking = asyncio.Lock()
        self._is_away = False
        self._losses: deque[float] = deque(maxlen=FIGHT_LOSSES)
        self._revision = 0
        self._incarnation = ""
        self._gone: dict[int, asyncio.Event] = {}
        self._undecided: list[Callable[[], None]] = []
        self.owners: Mapping[int, Owner] = {}
        """All that live, by epoch; this one among them."""

    @property
    def epoch(self) -> int:
        """Of the present life; 0 before it has begun."""
        return self._owner.epoch

    @property
    def own(self) -> Owner:
        return self._owner

    @property
    def has_lease(self) -> bool:
        """Nobody else can have taken over what this process owns."""
        return now_s() < self._lease_end_s

    @property
    def is_draining(self) -> bool:
        return self._owner.is_draining

    def join(self, member: Member) -> None:
        """Adds somebody who is asked before each tick and told after it."""
        self._members.append(member)

    # --- life -------------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Begins the first life. Raises STORE_UNAVAILABLE when the store does not come up in time."""
        deadline_s = now_s() + FIRST_WAIT_S
        while True:
            try:
                await self._open()
                await self._tick()
                return
            except OmniFlowError as error:
                if error.reason is not Reason.STORE_UNAVAILABLE or now_s() > deadline_s:
                    raise
                log.info("waiting for the metadata store: %s", error.message)
                await asyncio.sleep(TICK_S)

    async def run(self) -> None:
        """Ticks for ever."""
        while True:
            try:
                async with asyncio.timeout(TICK_S):
                    await self._soon.wait()
            except TimeoutError:
                pass
            self._soon.clear()
            await self.tick()

    def tick_soon(self) -> None:
        """There is news for the others."""
        self._soon.set()

    async def tick(self) -> None:
        """One tick. A life that has ended is followed by the next; a store that is away is asked again."""
        async with self._ticking:  # two at once would end two lives for one
            await self._tick_once()

    async def _tick_once(self) -> None:
        try:
            await self._tick()
        except OmniFlowError as error:
            if error.reason is Reason.STALE_OWNER:
                await self._begin_again()
            elif error.reason is Reason.STORE_UNAVAILABLE:
                if not self._is_away:
                    log.warning("the metadata store is away: %s", error.message)
                self._is_away = True
            else:
                log.error("the metadata store refuses this control plane: %s", error.message)

    async def drain(self) -> None:
        """Tells the others to send nothing more here."""
        self._owner = dataclasses.replace(self._owner, is_draining=True)
        await self.tick()

    async def end(self) -> None:
        """Ends the life in order, if the store can be reached: what it owns is free at once."""
        try:
            await self._store.close_owner(self.epoch)
        except OmniFlowError as error:
            log.warning("this control plane's lease will run out by itself: %s", error.message)

    async def _open(self) -> None:
        sent_s = now_s()
        epoch = await self._store.open_owner(self._owner, ttl_s=self._ttl_s)
        self._owner = dataclasses.replace(self._owner, epoch=epoch)
        self._lease_end_s = sent_s + self._ttl_s

    async def _tick(self) -> None:
        sent_s = now_s()
        tick = await self._store.tick(
            self.epoch,
            ttl_s=self._ttl_s,
            is_draining=self._owner.is_draining,
            renewals=[renewal for member in self._members for renewal in member.renewals()],
            replica_ttl_s=self._replica_ttl_s,
            replica_revision=self._revision,
            store_incarnation=self._incarnation,
        )
        self._lease_end_s = sent_s + self._ttl_s
        if self._is_away:
            log.info("the metadata store is back")
            self._is_away = False
            self._on_back()
        self._revision, self._incarnation = tick.replica_revision, tick.store_incarnation
        self.owners = {owner.epoch: owner for owner in tick.owners}
        self._tell_gone()
        self._decide()
        for member in self._members:
            member.take(tick)

    async def _begin_again(self) -> None:
        log.warning(
            "control plane %s was taken for dead under epoch %d; it begins again", self._owner.owner_id, self.epoch
        )
        self._lease_end_s = 0.0
        self._owner = dataclasses.replace(self._owner, incarnation_id=secrets.token_hex(8), epoch=0)
        self._revision = 0
        self._on_lost()
        await self._pause_in_a_fight()
        try:
            await self._open()
        except OmniFlowError as error:
            # Epoch 0 is refused as stale, so the next tick tries again.
            log.warning("no new life yet: %s", error.message)
        self._decide()

    async def _pause_in_a_fight(self) -> None:
        self._losses.append(now_s())
        if len(self._losses) == FIGHT_LOSSES and self._losses[-1] - self._losses[0] < FIGHT_S:
            log.error(
                "is another process a control plane of the same control_id, %s? Each needs its own",
                self._owner.owner_id,
            )
            await asyncio.sleep(FIGHT_PAUSE_S)

    # --- the others -------------------------------------------------------------------------------------------------

    def peers(self) -> list[Owner]:
        """The others that take calls, by epoch."""
        return [owner for epoch, owner in sorted(self.owners.items()) if epoch != self.epoch and not owner.is_draining]

    async def wait_gone(self, epoch: int) -> None:
        """Returns when that life has ended; at once for one that is not known."""
        if epoch not in self.owners:
            return
        await self._gone.setdefault(epoch, asyncio.Event()).wait()

    def _tell_gone(self) -> None:
        for epoch in [epoch for epoch in self._gone if epoch not in self.owners]:
            self._gone.pop(epoch).set()

    def when_decided(self, callback: Callable[[], None]) -> None:
        """Calls back once it is known whether a lease that had run out is still good."""
        self._undecided.append(callback)
        self.tick_soon()

    def _decide(self) -> None:
        waiting, self._undecided = self._undecided, []
        for callback in waiting:
            callback()
