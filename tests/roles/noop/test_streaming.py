"""When paced yields come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from omniflow.interface import Context, Inputs
from omniflow.testing import run_interface
from omniflow.values import Json
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.noop import Pace
from tests.support.clock import fast_clock


async def times_s(count: int, rate_per_s: float, delays_s: Sequence[float] = ()) -> list[float]:
    """When each yield comes, counted from the start, to a reader that takes its time after each of the first ones."""
    loop = asyncio.get_running_loop()
    inputs = Inputs("main", {"parameters": (Json({"count": count, "rate_per_s": rate_per_s}),)})
    context = Context(call_id="c", activation_id=1, node="n")
    start_s, delays, found = loop.time(), iter(delays_s), []
    async for _ in Pace().run(inputs, context):
        found.append(round(loop.time() - start_s, 6))
        await asyncio.sleep(next(delays, 0.0))
    return found


@fast_clock
async def test_pace_yields_at_its_rate() -> None:
    assert await times_s(5, 4) == [0.0, 0.25, 0.5, 0.75, 1.0]


@fast_clock
async def test_pace_goes_back_to_its_schedule_after_a_reader_was_slow() -> None:
    assert await times_s(6, 4, delays_s=[0.6]) == [0.0, 0.6, 0.6, 0.75, 1.0, 1.25]


@fast_clock
async def test_pace_counts_from_zero() -> None:
    run = await run_interface(Pace, parameters=Json({"count": 3, "rate_per_s": 1000.0}))
    assert [outputs["text"] for outputs in run.yields] == ["0", "1", "2"]


@fast_clock
async def test_pace_refuses_a_rate_that_is_no_number() -> None:
    with pytest.raises(OmniFlowError) as caught:
        await run_interface(Pace, parameters=Json({"rate_per_s": "fast"}))
    assert caught.value.reason is Reason.INVALID_FIELD
