"""Calls over joins, counts and gates, cancelled at random moments, leave nothing in the control plane: not even memory."""

from __future__ import annotations

import asyncio
import random

import grpc.aio
import pytest

import omniflow
from omniflow import Json, OmniFlowError, Reason
from omniflow.graph.v1 import graph_service_pb2, graph_service_pb2_grpc
from tests.integration.noop_system import item, noop_system
from tests.support.processes import rss_bytes, wait_until
from tests.support.system import System

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(500)]

CANCELS = 3_000
WARM_UP = 3_000
"""More than the ended calls that a control plane keeps, so that it has let go of some."""
SIDE_BY_SIDE = 16
ENDS = (Reason.CALL_CANCELLED, Reason.CALL_SUPERSEDED)


async def cancel_many(client: omniflow.Client, count: int, seed: int) -> int:
    """Runs calls and cancels each at a random moment; returns how many had not ended by themselves."""
    chance = random.Random(seed)
    cancelled = 0
    numbers = iter(range(count))

    async def one_after_another(session: str) -> None:
        nonlocal cancelled
        for number in numbers:
            graph, inputs = chance.choice(
                [
                    ("noop-figure5", {"item": item(h={"delay_s": 0.002})}),
                    ("noop-fan5", {"item": item()}),
                    ("noop-figure4", {"item": item(), "frames": Json(["image", "text", "image"])}),
                ]
            )
            call = client.stream(graph, session=session, supersede=number % 5 == 0, **inputs)
            reading = asyncio.ensure_future(read(call))
            await asyncio.sleep(chance.random() * 0.02)
            await client.cancel(request_id=call.request_id)
            cancelled += await reading

    async def read(call: omniflow.EventStream) -> bool:
        try:
            async for _ in call:
                pass
        except OmniFlowError as error:
            assert error.reason in ENDS
            return True
        return False

    async with asyncio.TaskGroup() as tasks:
        for index in range(SIDE_BY_SIDE):
            tasks.create_task(one_after_another(f"session{index}"))
    return cancelled


async def quiet_rss_bytes(system: System) -> int:
    """Resident memory of the control plane once nothing runs; no kept call has anything left."""
    async with grpc.aio.insecure_channel(system.target) as channel:
        stub = graph_service_pb2_grpc.GraphServiceStub(channel)

        async def idle() -> bool:
            page = await stub.ListCalls(graph_service_pb2.ListCallsRequest(page_size=1_000))
            return not any(call.active_activations for call in page.calls)

        await wait_until(idle, what="the end of all activations")
        page = await stub.ListCalls(graph_service_pb2.ListCallsRequest(page_size=50))
        for call in page.calls:
            response = await stub.InspectCall(graph_service_pb2.InspectCallRequest(call_id=call.call_id))
            snapshot = response.call.snapshot
            assert (len(snapshot.activations), len(snapshot.buckets), snapshot.stored_bytes) == (0, 0, 0)
    return rss_bytes(system.control.pid)


async def test_cancelled_calls_leave_less_than_a_kilobyte_each() -> None:
    async with noop_system() as system, system.connect() as client:
        await cancel_many(client, WARM_UP, seed=1)
        before = await quiet_rss_bytes(system)
        cancelled = await cancel_many(client, CANCELS, seed=2)
        assert cancelled > CANCELS / 4, "too few were caught while they ran"
        grown = await quiet_rss_bytes(system) - before
        assert grown / CANCELS < 1024, f"{grown / CANCELS:.0f} bytes a cancel"
