"""A canary and a rollback under load drop nothing."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import omniflow
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.workflow.v1 import graph_spec_pb2
from tests.chaos.flow import flow
from tests.chaos.load import Load, Targets, load
from tests.chaos.system import Cluster, cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PHASE_S = 2.5


async def test_canary_promotion_and_rollback_under_load_drop_nothing() -> None:
    async with cluster("control.ended_call_ttl_s=60") as running:
        first = flow.graph.spec()
        second = graph_spec_pb2.GraphSpec()
        second.CopyFrom(first)
        second.description = "the second revision"
        async with omniflow.connect(running.targets[0]) as client, load(running.targets, stream_s=0.5) as steady:
            (old,) = (await client.graph_revisions("chaos")).revisions
            new = (await client.apply(second, canary_percent=30)).revision
            shares = [await _shares(running, steady, {old.revision, new})]
            for share in (100, 0):
                await client.set_traffic("chaos", {old.revision: 100 - share, new: share})
                shares.append(await _shares(running, steady, {old.revision, new}))
        print(f"\n{steady.count()} calls; share of the second revision in each phase: {[s[new] for s in shares]}")
        assert steady.faults() == []
        assert dict(steady.errors()) == {}
        assert 0.1 < shares[0][new] < 0.5, "a canary of 30 %"
        assert shares[1][new] == 1.0, "promoted"
        assert shares[2][new] == 0.0, "rolled back"


async def _shares(running: Cluster, steady: Load, revisions: set[str]) -> dict[str, float]:
    """The shares of revisions among calls that have no session and begin from a moment after now on: both control planes
    know of a change within a second."""
    await asyncio.sleep(1.0)
    begin = len(steady.outcomes)
    await asyncio.sleep(PHASE_S)
    sample = [outcome.call_id for outcome in steady.outcomes[begin:] if outcome.kind == "echo"][-200:]
    targets = Targets(running.targets)
    try:
        found: Counter[str] = Counter()
        for call_id in sample:
            answer = await targets.stubs[0].InspectCall(pb.InspectCallRequest(call_id=call_id))
            found[answer.call.graph.revision] += 1
    finally:
        await targets.close()
    assert set(found) <= revisions
    return {revision: found[revision] / len(sample) for revision in revisions}
