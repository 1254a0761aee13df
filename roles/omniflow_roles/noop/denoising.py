"""Denoising without a model: the loop of a diffusion transformer, three branches of guidance in each iteration.

Latents are as large as asked for, and every stage makes new ones, as models do. Their first bytes alone say what happened:
the digest of what they were made from, so the last latents tell whether every iteration had its own three branches.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from dataclasses import dataclass

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import ElementType, Json, Tensor, Value, ValueType
from omniflow_core.errors import invalid_field
from omniflow_roles.noop.parameters import PARAMETERS, parameters

LATENTS = Field(ValueType.TENSOR)
SCHEDULE = Field(ValueType.JSON)
MARK_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Where the loop is."""

    steps: int
    """Iterations."""
    step: int = 0
    """Those that are done."""
    delay_s: float = 0.0
    """What a branch takes."""

    @classmethod
    def of(cls, value: Value) -> Schedule:
        """Raises INVALID_FIELD for what is no schedule."""
        given = value.value if isinstance(value, Json) else None
        if not isinstance(given, dict) or given.keys() != {"steps", "step", "delay_s"}:
            raise invalid_field("schedule", 'an object such as {"steps": 50, "step": 0, "delay_s": 0} is wanted')
        # numbers are doubles on the wire
        return cls(steps=int(given["steps"]), step=int(given["step"]), delay_s=float(given["delay_s"]))

    def value(self) -> Json:
        """The schedule as a value of a field."""
        return Json(dataclasses.asdict(self))

    def next(self) -> Schedule:
        """After one iteration more."""
        return dataclasses.replace(self, step=self.step + 1)


class PrepareLatents(Interface):
    """The first latents, of `size_bytes`, and the schedule of `steps` iterations whose branches take `delay_s` each."""

    name = "noop.prepare_latents"
    inputs = PARAMETERS
    outputs = {"latents": LATENTS, "schedule": SCHEDULE}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        options = parameters(inputs, steps=50, size_bytes=32 * 1024, delay_s=0.0)
        for name, least in (("steps", 1), ("size_bytes", MARK_BYTES)):
            if options[name] < least:
                raise invalid_field(f"parameters.{name}", f"at least {least} is wanted")
        schedule = Schedule(steps=options["steps"], delay_s=options["delay_s"])
        return {"latents": _tensor(bytes(options["size_bytes"])), "schedule": schedule.value()}


class BeginStep(Interface):
    """Begins an iteration, the first one or the next: what its branches have in common."""

    name = "noop.begin_step"
    inputs = groups(
        ("first", {"latents": LATENTS, "schedule": SCHEDULE}), ("next", {"latents": LATENTS, "schedule": SCHEDULE})
    )
    outputs = {"latents": LATENTS, "schedule": SCHEDULE}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"latents": inputs["latents"], "schedule": inputs["schedule"]}


class PredictNoise(Interface):
    """The noise that one branch sees in the latents."""

    name = "noop.predict_noise"
    inputs = groups(latents=LATENTS, schedule=SCHEDULE)
    outputs = {"noise": LATENTS}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        schedule = Schedule.of(inputs["schedule"])
        if schedule.delay_s:
            await asyncio.sleep(schedule.delay_s)
        return {"noise": _marked(inputs["latents"], context.node.encode(), str(schedule.step).encode())}


class Guide(Interface):
    """Ends an iteration: latents for the next one, or after the last the result."""

    name = "noop.guide"
    inputs = groups(latents=LATENTS, schedule=SCHEDULE, cond=LATENTS, uncond=LATENTS, image=LATENTS)
    outputs = {"latents": LATENTS, "schedule": SCHEDULE, "result": LATENTS}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        schedule = Schedule.of(inputs["schedule"]).next()
        latents = _marked(inputs["latents"], *(_mark(inputs[name]) for name in ("cond", "uncond", "image")))
        if schedule.step >= schedule.steps:
            return {"result": latents}
        return {"latents": latents, "schedule": schedule.value()}


def _tensor(data: bytes) -> Tensor:
    return Tensor(ElementType.UINT8, (len(data),), data)


def _mark(value: Value) -> bytes:
    assert isinstance(value, Tensor), "fields are checked before a value is given to an interface"
    return bytes(memoryview(value.data)[:MARK_BYTES])


def _marked(latents: Value, *parts: bytes) -> Tensor:
    """New latents: the old ones with the digest of their mark and of the parts for a mark."""
    assert isinstance(latents, Tensor), "fields are checked before a value is given to an interface"
    digest = hashlib.blake2b(b"\0".join((_mark(latents), *parts)), digest_size=MARK_BYTES).digest()
    return _tensor(b"".join((digest, memoryview(latents.data)[MARK_BYTES:])))
