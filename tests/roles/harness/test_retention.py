"""Values of calls whose control plane is gone."""

from __future__ import annotations

import asyncio

from omniflow.large_values import ValueStore
from omniflow_roles.harness.retention import RetainedCalls
from tests.roles.running import eventually


def store_with(*calls: str) -> ValueStore:
    store = ValueStore(endpoint="unix:x", incarnation_id="i", budget_bytes=1000)
    for call in calls:
        store.put(call, b"12345")
    return store


async def test_released_call_is_dropped_at_once() -> None:
    store = store_with("a", "b")
    retained = RetainedCalls(store, retain_s=60)
    retained.attach("control")
    retained.note("control", "a")
    retained.release(["a", "unknown"])
    assert store.used_bytes == 5
    retained.close()


async def test_calls_of_an_owner_that_stays_away_are_dropped() -> None:
    store = store_with("a", "b")
    retained = RetainedCalls(store, retain_s=0.01)
    for owner, call in (("gone", "a"), ("here", "b")):
        retained.attach(owner)
        retained.note(owner, call)
    retained.detach("gone")
    assert store.used_bytes == 10
    await eventually(lambda: store.used_bytes == 5)
    store.check_integrity()
    retained.close()


async def test_owner_that_comes_back_in_time_finds_its_values() -> None:
    store = store_with("a")
    retained = RetainedCalls(store, retain_s=0.02)
    retained.attach("control")
    retained.note("control", "a")
    retained.attach("control")
    retained.detach("control")  # one of two streams
    retained.detach("control")
    retained.attach("control")
    await asyncio.sleep(0.05)  # past the time at which the values would have gone
    assert store.used_bytes == 5
    retained.close()
