"""Interfaces that only these tests know."""

from __future__ import annotations

from typing import ClassVar

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import ValueType


class Shout(Interface):
    """Gives its text in capitals."""

    name = "test.shout"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs: ClassVar = {"text": Field(ValueType.TEXT)}

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"text": str(inputs["text"]).upper()}
