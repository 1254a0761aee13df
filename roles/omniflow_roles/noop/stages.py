"""Stages of noop graphs that take and give items."""

from __future__ import annotations

from collections.abc import AsyncIterator

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import ValueType
from omniflow_roles.noop.items import ITEM, ITEM_INPUT, Item


class Step(Interface):
    """One item for each."""

    name = "noop.step"
    inputs = ITEM_INPUT
    outputs = {"item": ITEM}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        item = Item.of(inputs["item"])
        options = item.options(context)
        await options.pause(context, 0)
        return {"item": item.made(context, 0, options).value()}


class Repeat(Interface):
    """As many items as asked for, two by default. Goes on where another attempt was lost."""

    name = "noop.repeat"
    inputs = ITEM_INPUT
    outputs = {"item": ITEM}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        item = Item.of(inputs["item"])
        options = item.options(context, yields=2)
        for ordinal in range(len(context.delivered), options.yields):
            await options.pause(context, ordinal)
            yield {"item": item.made(context, ordinal, options).value()}


class Gather(Interface):
    """One item for what came by two branches or three; it tells them by field."""

    name = "noop.gather"
    inputs = groups(a=ITEM, b=ITEM, c=Field(ValueType.JSON, is_optional=True))
    outputs = {"item": ITEM}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        item = Item.joined({name: inputs.all(name) for name in inputs})
        options = item.options(context)
        await options.pause(context, 0)
        return {"item": item.made(context, 0, options).value()}
