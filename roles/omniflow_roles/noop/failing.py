"""Interfaces that go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import ValueType
from omniflow_roles.noop.parameters import PARAMETERS, parameters


class Fail(Interface):
    """Gives `after` texts, then raises with the text `message`, which no caller must ever see."""

    name = "noop.fail"
    inputs = PARAMETERS
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        options = parameters(inputs, after=0, message="a secret")
        for index in range(options["after"]):
            yield {"text": str(index)}
        raise RuntimeError(options["message"])


class Cancel(Interface):
    """Raises CancelledError although nobody cancelled it."""

    name = "noop.cancel"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        raise asyncio.CancelledError


class Undeclared(Interface):
    """Gives an output that it does not declare."""

    name = "noop.undeclared"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"texts": inputs["text"]}
