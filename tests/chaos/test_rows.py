"""What happened to users of other systems when a replica died, with real processes."""

from __future__ import annotations

import asyncio
import signal
import time

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from omniflow_core.errors import Reason
from tests.chaos.load import Caller, Targets
from tests.chaos.system import Cluster, cluster

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
LONG = {"count": 100, "rate_per_s": 20}
IN_FLIGHT = 20

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def _health(running: Cluster, service: str) -> int:
    async with grpc.aio.insecure_channel(running.targets[0]) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


async def test_kill_of_one_replica_fails_its_calls_alone_and_is_seen() -> None:
    """vllm-omni#4285, #5326, #6247; sglang#22779."""
    async with cluster(control_planes=1) as running:
        targets = Targets(running.targets)
        caller = Caller(targets, 0)
        try:
            calls = [asyncio.ensure_future(caller.call("long", parameters=LONG)) for _ in range(IN_FLIGHT)]
            await asyncio.sleep(0.5)
            victim, killed_s = running.pid("worker-1"), time.monotonic()
            running.send("worker-1", signal.SIGKILL)
            assert await _health(running, "") == await _health(running, "graphs/chaos") == SERVING
            outcomes = await asyncio.gather(*calls)
            while (state := running.state())["phase"] == "ready" and running.pid("worker-1") == victim:
                assert time.monotonic() - killed_s < 2.0, "the supervisor names what is down"
            assert "worker-1" in await running.command("status")
            assert state["phase"] in ("degraded", "ready")
            await running.wait_ready()
            assert running.pid("worker-1") != victim
            assert (await caller.call("next", text="hello")).error is None
        finally:
            await targets.close()
    lost = [outcome for outcome in outcomes if outcome.error is not None]
    assert 5 <= len(lost) <= 8, "a third of the calls was bound to it"
    for outcome in lost:
        assert outcome.error is Reason.REPLICA_LOST
        assert outcome.metadata == {"node": "pace", "replica": "worker/worker-1"}
        assert outcome.end_s - killed_s < 2.0
    assert all(not outcome.faults and outcome.terminals == 1 for outcome in outcomes)
    assert all(outcome.values == LONG["count"] for outcome in outcomes if outcome.error is None)


async def test_kill_of_the_only_replica_is_not_serving_until_it_is_back() -> None:
    """vllm-omni PR#5326: health was 200 with a stage at zero replicas."""
    async with cluster(control_planes=1, flow="tests/chaos/fencing_flow.py") as running:
        assert await _health(running, "graphs/chaos") == SERVING
        running.send("worker-0", signal.SIGKILL)
        deadline_s = time.monotonic() + 2.0
        while await _health(running, "graphs/chaos") != NOT_SERVING:
            assert time.monotonic() < deadline_s
        assert await _health(running, "") == SERVING, "the process itself is well"
        await running.wait_ready()
        assert await _health(running, "graphs/chaos") == SERVING
