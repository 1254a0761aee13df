"""Policies on real replicas: jobs of 1 x and 4 x, of which round robin gives the long ones to always the same replica."""

from __future__ import annotations

import asyncio
import statistics
import time

import pytest

import omniflow
from omniflow.values import Json
from tests.chaos.system import cluster
from tests.chaos.work_flow import POLICIES, UNIT_S, graph

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

JOBS = 90
LOAD = 0.85
"""Of what three replicas can do."""


async def test_policies_that_know_the_load_beat_round_robin_on_a_mixed_trace() -> None:
    async with (
        cluster(control_planes=1, flow="tests/chaos/work_flow.py") as running,
        omniflow.connect(running.targets[0]) as client,
    ):
        for policy in POLICIES:
            await client.apply(graph(policy))
        found = {policy: await _run(client, policy) for policy in POLICIES}
    print(f"\nmean and slowest job in units of a short one: {found}")
    mean = {policy: figures[0] for policy, figures in found.items()}
    slowest = {policy: figures[1] for policy, figures in found.items()}
    for policy in ("least_loaded", "cost_aware"):
        assert mean[policy] < 0.7 * mean["round_robin"], found
        assert slowest[policy] < 0.8 * slowest["round_robin"], found


async def _run(client: omniflow.Client, policy: str) -> tuple[float, float]:
    """Mean and largest time of a job from its arrival to its end, in units. Jobs arrive at even times, long ones third by
    third, so that in turn they all go to one replica."""
    costs = [4 if number % 3 == 0 else 1 for number in range(JOBS)]
    apart_s = statistics.mean(costs) * UNIT_S / 3 / LOAD
    begin_s = time.monotonic()

    async def job(number: int, cost: int) -> float:
        await asyncio.sleep(begin_s + number * apart_s - time.monotonic())
        arrived_s = time.monotonic()
        await client.run(f"job_{policy}", cost=Json(cost))
        return (time.monotonic() - arrived_s) / UNIT_S

    times = await asyncio.gather(*(job(number, cost) for number, cost in enumerate(costs)))
    return round(statistics.mean(times), 1), round(max(times), 1)
