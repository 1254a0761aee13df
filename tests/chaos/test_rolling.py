"""A rolling restart of everything under load: nobody notices, but whose call takes longer than a drain may."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import omniflow
from tests.chaos.fencing_flow import RECORD
from tests.chaos.load import Caller, Outcome, Targets, load
from tests.chaos.system import Cluster, cluster

DRAIN_S = 4.0
LONG_S = 12.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def test_rolling_restart_of_everything_fails_no_call_that_is_shorter_than_a_drain() -> None:
    async with cluster(f"control.drain_timeout_s={DRAIN_S}") as running:
        before = {name: running.pid(name) for name in running.names()}
        async with load(running.targets, stream_s=2.0) as steady:
            await asyncio.sleep(0.5)
            long, _ = await asyncio.gather(_long_streams(running), running.command("restart"))
        after = {name: running.pid(name) for name in running.names()}
        print(f"\n{steady.count()} calls, {steady.count('stream')} streams; long ones: {[str(o.error) for o in long]}")
        assert {name for name in before if before[name] == after[name]} == {"store"}, "all but the store are new"
        assert steady.faults() == []
        assert dict(steady.errors()) == {}
        assert list(steady.unended()) == []
        assert steady.count("stream") > 20
        assert steady.count("echo") > 500
        _are_counted_apart(long)


async def _long_streams(running: Cluster) -> list[Outcome]:
    """Streams that last longer than any drain, from both control planes, at the time of the restart."""
    targets = Targets(running.targets)
    try:
        parameters = {"count": 10, "rate_per_s": 10 / LONG_S}
        return await asyncio.gather(
            *(Caller(targets, number % 2).call("long", parameters=parameters) for number in range(6))
        )
    finally:
        await targets.close()


def _are_counted_apart(long: list[Outcome]) -> None:
    """Each comes to one end: OWNER_LOST or REPLICA_LOST with the process that could not wait for it."""
    assert [fault for outcome in long for fault in outcome.faults] == []
    assert all(outcome.terminals == 1 for outcome in long)
    assert {str(outcome.error) for outcome in long} <= {"OWNER_LOST", "REPLICA_LOST", "None"}
    assert any(outcome.error is not None for outcome in long)


async def test_restarts_of_single_replicas_fail_no_call_of_the_python_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each role is away for a moment, and so is the control plane that a client speaks to: calls wait, or are sent again."""
    monkeypatch.setenv(RECORD, str(tmp_path / "record"))
    async with cluster(flow="tests/chaos/fencing_flow.py") as running:
        both = f"ipv4:{','.join(running.targets)}"
        is_over, done, failed = asyncio.Event(), 0, []

        async def go_on(target: str) -> None:
            nonlocal done
            async with omniflow.connect(target) as client:
                while not is_over.is_set():
                    try:
                        await client.run("chaos", text="0")
                        done += 1
                    except omniflow.OmniFlowError as error:
                        failed.append(str(error))

        callers = [asyncio.ensure_future(go_on(both)) for _ in range(4)]
        for _ in range(3):
            await running.command("restart")
        is_over.set()
        await asyncio.gather(*callers)
    print(f"\n{done} calls")
    assert failed == []
    assert done > 200
