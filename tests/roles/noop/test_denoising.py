"""Stages of the denoising loop: what they make of what they are given."""

from __future__ import annotations

from typing import Any

import pytest

from omniflow.testing import run_interface
from omniflow.values import Json, Tensor, Value
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.noop import BeginStep, Guide, PredictNoise, PrepareLatents
from omniflow_roles.noop.denoising import Schedule


def data(value: Value) -> bytes:
    assert isinstance(value, Tensor)
    return bytes(value.data)


async def prepared(**parameters: Any) -> tuple[Value, Value]:
    """The first latents, and the schedule."""
    (outputs,) = (await run_interface(PrepareLatents, parameters=Json(parameters))).yields
    return outputs["latents"], outputs["schedule"]


async def guided(schedule: Schedule, **noises: Value) -> dict[str, Value]:
    latents, _ = await prepared(size_bytes=32)
    given = {"cond": latents, "uncond": latents, "image": latents, **noises}
    fields: dict[str, Any] = {"latents": latents, "schedule": schedule.value(), **given}
    (outputs,) = (await run_interface(Guide, **fields)).yields
    return dict(outputs)


async def test_preparation_gives_latents_of_a_size_and_fifty_steps() -> None:
    latents, schedule = await prepared(size_bytes=100, delay_s=0.5)
    assert data(latents) == bytes(100)
    assert Schedule.of(schedule) == Schedule(steps=50, delay_s=0.5)


@pytest.mark.parametrize(("name", "value"), [("steps", 0), ("size_bytes", 15)])
async def test_what_makes_no_loop_is_refused_and_named(name: str, value: int) -> None:
    with pytest.raises(OmniFlowError) as caught:
        await prepared(**{name: value})
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in caught.value.info.violations] == [f"parameters.{name}"]


async def test_iteration_begins_with_what_it_is_given() -> None:
    latents, schedule = await prepared()
    run = await run_interface(BeginStep, group="next", latents=latents, schedule=schedule)
    assert run.yields == ({"latents": latents, "schedule": schedule},)


async def test_noise_of_each_step_is_another() -> None:
    latents, _ = await prepared(size_bytes=100)
    noises = []
    for step in (0, 0, 1):
        schedule = Schedule(steps=3, step=step).value()
        (outputs,) = (await run_interface(PredictNoise, latents=latents, schedule=schedule)).yields
        noises.append(data(outputs["noise"]))
    assert noises[0] == noises[1] != noises[2]
    assert [len(noise) for noise in noises] == [100] * 3


async def test_guidance_goes_on_until_the_last_step() -> None:
    between = await guided(Schedule(steps=2))
    assert Schedule.of(between["schedule"]) == Schedule(steps=2, step=1)
    assert between.keys() == {"latents", "schedule"}
    assert (await guided(Schedule(steps=2, step=1))).keys() == {"result"}


@pytest.mark.parametrize("branch", ["cond", "uncond", "image"])
async def test_every_branch_has_its_part_in_the_latents(branch: str) -> None:
    latents, _ = await prepared(size_bytes=32)
    schedule = Schedule(steps=2)
    (outputs,) = (await run_interface(PredictNoise, latents=latents, schedule=schedule.value())).yields
    without, with_noise = await guided(schedule), await guided(schedule, **{branch: outputs["noise"]})
    assert data(without["latents"]) != data(with_noise["latents"])


@pytest.mark.parametrize("given", [Json("x"), Json({"steps": 1})])
async def test_what_is_no_schedule_is_refused(given: Json) -> None:
    with pytest.raises(OmniFlowError) as caught:
        Schedule.of(given)
    assert caught.value.reason is Reason.INVALID_FIELD
