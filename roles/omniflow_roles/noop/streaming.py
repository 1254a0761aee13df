"""Many outputs of one activation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

from omniflow.interface import Context, Field, Inputs, Interface, Outputs
from omniflow.values import Tokens, ValueType
from omniflow_roles.noop.parameters import PARAMETERS, parameters


class Burst(Interface):
    """`count` token yields of `size` characters, `delay_s` apart: the load of a language model without one."""

    name = "noop.burst"
    inputs = PARAMETERS
    outputs = {"tokens": Field(ValueType.TOKENS)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        options = parameters(inputs, count=100, size=4, delay_s=0.0)
        text, delay_s = "x" * options["size"], options["delay_s"]
        for index in range(options["count"]):
            if delay_s:
                await asyncio.sleep(delay_s)
            yield {"tokens": Tokens((index,), text)}
        context.usage.output_tokens = options["count"]
        context.finish_reason = "stop"


class Pace(Interface):
    """Texts "0", "1" … below `count`, `rate_per_s` of them a second.

    Each is due at a time counted from the start, so one that is late makes the next no later; what is overdue comes at once.
    """

    name = "noop.pace"
    inputs = PARAMETERS
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        options = parameters(inputs, count=100, rate_per_s=100.0)
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        for index in range(options["count"]):
            early_s = start_s + index / options["rate_per_s"] - loop.time()
            if early_s > 0:
                await asyncio.sleep(early_s)
            yield {"text": str(index)}


class Count(Interface):
    """Texts "0", "1" … below `count`, `delay_s` apart, by an async generator."""

    name = "noop.count"
    inputs = PARAMETERS
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        options = parameters(inputs, count=10, delay_s=0.0)
        for index in range(options["count"]):
            if options["delay_s"]:
                await asyncio.sleep(options["delay_s"])
            yield {"text": str(index)}


class CountBlocking(Interface):
    """The same by a plain generator, which runs in a thread."""

    name = "noop.count_blocking"
    inputs = PARAMETERS
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 4

    def run(self, inputs: Inputs, context: Context) -> Iterator[Outputs]:
        options = parameters(inputs, count=10, delay_s=0.0)
        for index in range(options["count"]):
            if options["delay_s"]:
                time.sleep(options["delay_s"])
            yield {"text": str(index)}


class Progress(Interface):
    """Reports `steps` steps, `delay_s` each, then gives one text."""

    name = "noop.progress"
    inputs = PARAMETERS
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        options = parameters(inputs, steps=10, delay_s=0.01)
        for step in range(options["steps"]):
            context.progress(step + 1, options["steps"], "pretending")
            await asyncio.sleep(options["delay_s"])
        return {"text": "done"}
