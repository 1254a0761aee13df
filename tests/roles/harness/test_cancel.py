"""Cancel: on the stream, by call, by a lost stream."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from omniflow.interface import Context, Inputs, Outputs
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.errors import Reason
from omniflow_roles.noop import Block, Count, CountBlocking, Echo, Sleep, Stubborn
from tests.roles.driver import Driver, dial, kinds
from tests.roles.running import driving, eventually, running

pytestmark = pytest.mark.usefixtures("transport")


async def cancelled_within(driver: Driver, handle: int, limit_s: float) -> None:
    began = time.monotonic()
    error, is_retryable = await driver.error(handle)
    assert error.reason is Reason.CALL_CANCELLED
    assert not is_retryable
    assert time.monotonic() - began < limit_s


class Told(Sleep):
    """Keeps what its cancel hook is told, and whether the activation still ran then."""

    name = "test.told"

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.running = 0

    def on_cancel(self, call_id: str) -> None:
        self.told.append((call_id, self.running))
        raise RuntimeError("a hook that fails changes nothing")

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        self.running += 1
        try:
            return await super().run(inputs, context)
        finally:
            self.running -= 1


async def test_cancel_on_the_stream_ends_a_sleeping_coroutine(tmp_path: Path) -> None:
    async with driving(tmp_path, Sleep()) as (server, driver):
        await driver.parameters(1, "noop.sleep", {"seconds": 60})
        await driver.expect(1, "accepted")
        await driver.cancel(1, "changed my mind")
        await cancelled_within(driver, 1, 0.1)
        await eventually(lambda: not server.host.load().running)


async def test_cancel_of_a_blocked_handler_is_answered_and_frees_its_only_place(tmp_path: Path) -> None:
    async with driving(tmp_path, Block()) as (server, driver):
        await driver.parameters(1, "noop.block", {"seconds": 2.0})
        await driver.expect(1, "accepted")
        await eventually(lambda: server.host.load().running == 1)
        await asyncio.sleep(0.01)
        await driver.cancel(1)
        await cancelled_within(driver, 1, 0.1)
        began = time.monotonic()
        await driver.parameters(2, "noop.block", {"seconds": 0.0})
        assert kinds(await driver.finish(2)) == ["accepted", "yield", "completed"]
        assert time.monotonic() - began < 1.0
        assert server.host.abandoned_threads == 1
        await eventually(lambda: server.host.abandoned_threads == 0)
        assert not driver.pending(1)


async def test_cancel_of_a_blocking_generator_stops_it_at_the_next_step(tmp_path: Path) -> None:
    async with driving(tmp_path, CountBlocking()) as (server, driver):
        await driver.parameters(1, "noop.count_blocking", {"count": 100_000, "delay_s": 0.001})
        await driver.expect(1, "accepted")
        await driver.expect(1, "yield")
        await driver.cancel(1)
        await cancelled_within(driver, 1, 0.1)
        await eventually(lambda: not server.host.load().running)
        assert server.host.abandoned_threads == 0


async def test_cancel_rpc_stops_every_activation_of_the_call_and_is_idempotent(tmp_path: Path) -> None:
    async with driving(tmp_path, Sleep(), Block()) as (_, driver):
        for handle, name in ((1, "noop.sleep"), (2, "noop.block"), (3, "noop.block")):
            await driver.parameters(handle, name, {"seconds": 1.0}, call_id="c")
            await driver.expect(handle, "accepted")
        await driver.parameters(4, "noop.sleep", {"seconds": 0.1}, call_id="other")
        request = messages.CancelActivationsRequest(call_id="c", reason="user left")
        began = time.monotonic()
        assert (await driver.stub.CancelActivations(request)).cancelled == 3
        assert time.monotonic() - began < 0.1
        for handle in (1, 2, 3):
            error, _ = await driver.error(handle)
            assert (error.reason, error.message) == (Reason.CALL_CANCELLED, "user left")
        assert (await driver.stub.CancelActivations(request)).cancelled == 0
        assert kinds(await driver.finish(4))[-1] == "completed"


async def test_cancel_rpc_for_unknown_calls_is_harmless(tmp_path: Path) -> None:
    async with driving(tmp_path, Echo()) as (_, driver):
        request = messages.CancelActivationsRequest(call_id="never seen")
        for _repeat in range(2):
            assert (await driver.stub.CancelActivations(request)).cancelled == 0


async def test_activation_that_the_cancel_overtook_never_starts(tmp_path: Path) -> None:
    async with driving(tmp_path, Echo()) as (_, driver):
        await driver.stub.CancelActivations(messages.CancelActivationsRequest(call_id="c"))
        await driver.start(1, "noop.echo", {"text": "late"}, call_id="c")
        results = await driver.finish(1)
        assert kinds(results) == ["failed"]
        assert b"CALL_CANCELLED" in results[0].SerializeToString()


async def test_cancel_in_the_queue_never_runs_the_handler(tmp_path: Path) -> None:
    ran: list[str] = []

    class Notes(Block):
        name = "test.notes"

        def run(self, inputs: Inputs, context: Context) -> Outputs:
            ran.append(context.call_id)
            return super().run(inputs, context)

    async with driving(tmp_path, Notes()) as (server, driver):
        for handle in (1, 2):
            await driver.parameters(handle, "test.notes", {"seconds": 0.2})
            await driver.expect(handle, "accepted")
        await driver.cancel(2)
        await cancelled_within(driver, 2, 0.1)
        assert server.host.load().waiting == 0
        assert kinds(await driver.finish(1))[-1] == "completed"
    assert ran == ["call-1"]


async def test_cancel_twice_and_after_the_end_changes_nothing(tmp_path: Path) -> None:
    async with driving(tmp_path, Sleep(), Echo()) as (_, driver):
        await driver.parameters(1, "noop.sleep", {"seconds": 60})
        await driver.cancel(1)
        await driver.cancel(1)
        await cancelled_within(driver, 1, 1.0)
        await driver.start(2, "noop.echo", {"text": "x"})
        await driver.finish(2)
        await driver.cancel(2)
        await driver.cancel(99)
        await driver.start(3, "noop.echo", {"text": "x"})
        await driver.finish(3)
        assert not driver.pending(1)
        assert not driver.pending(2)


async def test_interface_is_told_before_its_activation_is_stopped(tmp_path: Path) -> None:
    told = Told()
    async with driving(tmp_path, told) as (_, driver):
        for handle in (1, 2):
            await driver.parameters(handle, "test.told", {"seconds": 60})
        await eventually(lambda: told.running == 2)
        await driver.stub.CancelActivations(messages.CancelActivationsRequest(call_id="call-1"))
        assert told.told == [("call-1", 2)]
        await driver.cancel(2)
        await cancelled_within(driver, 2, 0.1)
        assert told.told[1][0] == "call-2"


async def test_coroutine_that_cleans_up_for_long_gives_its_place_away(tmp_path: Path) -> None:
    async with driving(tmp_path, Stubborn(), cleanup_grace_s=0.05) as (_, driver):
        await driver.parameters(1, "noop.stubborn", {"cleanup_s": 1.0})
        await driver.expect(1, "accepted")
        await asyncio.sleep(0.01)
        await driver.cancel(1)
        await cancelled_within(driver, 1, 0.1)
        began = time.monotonic()
        await driver.parameters(2, "noop.stubborn", {"seconds": 0.0, "cleanup_s": 0.0})
        assert kinds(await driver.finish(2))[-1] == "completed"
        assert time.monotonic() - began < 0.9


async def test_end_of_the_stream_cancels_what_it_started(tmp_path: Path) -> None:
    async with running(tmp_path, Sleep(), Count(), heartbeat_s=0.05) as server:
        endpoint, life = server.identity.endpoint, server.identity.incarnation_id
        async with dial(endpoint, life) as staying:
            await staying.parameters(1, "noop.sleep", {"seconds": 60})
            for end in ("drop", "half_close"):
                async with dial(endpoint, life, acks=False) as leaving:
                    await leaving.parameters(1, "noop.sleep", {"seconds": 60})
                    await leaving.parameters(2, "noop.count", {"count": 10}, yield_window=1)
                    await eventually(lambda: server.host.load().running == 3)
                    result: Any = getattr(leaving, end)()
                    if result is not None:
                        await result
                    await eventually(lambda: server.host.load().running == 1)
            await staying.cancel(1, "by its own stream")
            error, _retryable = await staying.error(1)
            assert error.message == "by its own stream"


async def test_released_call_leaves_nothing_running(tmp_path: Path) -> None:
    async with driving(tmp_path, Sleep()) as (server, driver):
        await driver.parameters(1, "noop.sleep", {"seconds": 60}, call_id="c")
        await driver.expect(1, "accepted")
        await driver.stub.ReleaseCall(messages.ReleaseCallRequest(call_ids=["c"]))
        await eventually(lambda: not server.host.load().running)
