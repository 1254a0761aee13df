"""An agent without a model: what a cycle over a tool needs."""

from __future__ import annotations

from collections.abc import AsyncIterator

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import ValueType
from omniflow_roles.noop.items import ITEM, Item


class Agent(Interface):
    """Says its name, then calls a tool; after as many calls as asked for by `yields`, two by default, it answers."""

    name = "noop.agent"
    inputs = groups(("prompt", {"item": ITEM}), ("result", {"item": ITEM}))
    outputs = {"text": Field(ValueType.TEXT), "call": ITEM, "answer": ITEM}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        item = Item.of(inputs["item"])
        options = item.options(context, yields=2)
        calls = sum(part.rstrip("0123456789") == context.node for part in item.name.split("."))
        await options.pause(context, 0)
        yield {"text": item.made(context, 0, options).name}
        yield {"call" if calls < options.yields else "answer": item.made(context, 1, options).value()}
