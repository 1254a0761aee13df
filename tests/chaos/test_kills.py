"""Every process of a cluster is killed and stopped under a steady load, again and again.

CHAOS_ROUNDS says how often each (5 by default, 50 in `make soak`). What must hold: every call comes to exactly one end, its
events have no gap, service is back within two seconds, and the store keeps nothing of what is over.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.chaos.load import Caller, Load, Targets, load
from tests.chaos.system import Cluster, cluster

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "5"))
BACK_S = 2.0
PAUSE_S = 2.5
"""Longer than the lease of an owner."""
KEPT_S = 2.0
"""How long ended calls, and so request ids, are kept here."""
EXPECTED = {"OWNER_LOST", "REPLICA_LOST"}
"""What may become of a call when the process that it depends on is lost; anything else is a fault."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240 + 60 * ROUNDS)]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What is done to which process."""

    victim: str
    is_pause: bool

    def __str__(self) -> str:
        return f"{'pause' if self.is_pause else 'kill'} {self.victim}"


def disturbances(names: list[str]) -> Iterator[Disturbance]:
    for round_ in range(ROUNDS):
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            yield Disturbance(name, is_pause=False)
            yield Disturbance(name, is_pause=True)


async def test_kills_and_pauses_of_every_process_under_load() -> None:
    async with cluster(f"control.ended_call_ttl_s={KEPT_S}", "control.lease_ttl_s=3.0") as running:
        slowest: dict[str, float] = {}
        async with load(running.targets) as steady:
            await asyncio.sleep(1.0)
            for disturbance in disturbances(running.names()):
                back_s = await _disturb(running, disturbance, steady)
                key = str(disturbance).rpartition("-")[0] or str(disturbance)
                slowest[key] = max(slowest.get(key, 0.0), back_s)
        print(f"\n{steady.count()} calls, {dict(steady.errors())}; slowest back in s: {slowest}")
        assert steady.faults() == []
        assert [str(outcome) for outcome in steady.unended()] == []
        assert set(steady.errors()) <= EXPECTED
        assert steady.count() > 1000, "the load went on all the time"
        await _only_live_keys(running)


async def _disturb(running: Cluster, disturbance: Disturbance, steady: Load) -> float:
    """Disturbs one process, and returns the seconds until calls work again."""
    victim = disturbance.victim
    targets = Targets(running.targets)
    owner = int(victim[-1]) if victim.startswith("control") else 0
    survivor = Caller(targets, 1 - owner)
    session = f"sessions/probe-{time.monotonic_ns()}"
    try:
        first = await Caller(targets, owner).call("probe", session=session, text="mine")
        assert first.error is None, f"{first} before {disturbance}"
        begin_s = time.monotonic()
        if disturbance.is_pause:
            back_s = await _paused(running, victim, survivor, session)
        else:
            pid = running.pid(victim)
            running.send(victim, signal.SIGKILL)
            back_s = await _back(survivor, session, begin_s)
            await running.wait_replaced(victim, pid)
        assert back_s < BACK_S, f"{disturbance}: back after {back_s:.2f} s\n{running.logs(5)}"
        await running.wait_ready()
        await _works_well(steady, disturbance)
    finally:
        await targets.close()
    return back_s


async def _paused(running: Cluster, victim: str, survivor: Caller, session: str) -> float:
    """Stops a process for longer than its lease. Without the store nothing is taken over, so that counts from its return."""
    begin_s = time.monotonic()
    running.send(victim, signal.SIGSTOP)
    try:
        if victim == "store":
            await asyncio.sleep(PAUSE_S)
        else:
            back_s = await _back(survivor, session, begin_s)
            await asyncio.sleep(max(0.0, begin_s + PAUSE_S - time.monotonic()))
    finally:
        running.send(victim, signal.SIGCONT)
    return await _back(survivor, session, time.monotonic()) if victim == "store" else back_s


async def _back(survivor: Caller, session: str, since_s: float) -> float:
    """Seconds until a call of the session, which the lost process owned, ends well."""
    while True:
        outcome = await survivor.call("probe", session=session, text="hello")
        if outcome.error is None:
            return time.monotonic() - since_s
        assert time.monotonic() - since_s < 20, outcome
        await asyncio.sleep(0.02)


async def _works_well(steady: Load, disturbance: Disturbance) -> None:
    """From now on calls end well, and soon."""
    since_s, seen = time.monotonic(), len(steady.outcomes)
    await asyncio.sleep(0.3)
    for outcome in steady.outcomes[seen:]:
        if outcome.begin_s > since_s:
            assert outcome.error is None, f"after {disturbance}: {outcome}"
            assert outcome.seconds < BACK_S, f"after {disturbance}: {outcome}"


async def _only_live_keys(running: Cluster) -> None:
    """Rows of calls and of idle sessions go by themselves; what is left does not grow with what there was."""
    deadline_s = time.monotonic() + 45
    while (keys := await running.store_keys())["session"] or keys["request"]:
        assert time.monotonic() < deadline_s, keys
        await asyncio.sleep(0.1)
    assert max(keys.values()) <= 4, keys
    assert keys.total() <= 16, keys
