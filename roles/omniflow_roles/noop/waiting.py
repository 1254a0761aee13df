"""Interfaces that take their time, each with its own manners when it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import time

from omniflow.interface import Context, Field, Inputs, Interface, Outputs
from omniflow.values import ValueType
from omniflow_roles.noop.parameters import PARAMETERS, parameters


class Sleep(Interface):
    """Sleeps `seconds` on the loop; a cancel ends it at once."""

    name = "noop.sleep"
    inputs = PARAMETERS
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        await asyncio.sleep(parameters(inputs, seconds=1.0)["seconds"])
        return {"text": "slept"}


class Block(Interface):
    """Blocks its thread for `seconds` and looks at nothing. One place."""

    name = "noop.block"
    inputs = PARAMETERS
    outputs = {"text": Field(ValueType.TEXT)}

    def run(self, inputs: Inputs, context: Context) -> Outputs:
        time.sleep(parameters(inputs, seconds=1.0)["seconds"])
        return {"text": "blocked"}


class Stubborn(Interface):
    """Sleeps `seconds` on the loop and then `cleanup_s` more in its cleanup. One place."""

    name = "noop.stubborn"
    inputs = PARAMETERS
    outputs = {"text": Field(ValueType.TEXT)}

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        options = parameters(inputs, seconds=60.0, cleanup_s=1.0)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(options["seconds"])
        await asyncio.sleep(options["cleanup_s"])
        return {"text": "at last"}
