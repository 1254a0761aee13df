"""Text in, text out, in one step of a coroutine."""

from __future__ import annotations

from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import ValueType


class Echo(Interface):
    """Gives its text back."""

    name = "noop.echo"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"text": inputs["text"]}


class Join(Interface):
    """Joins three texts with blanks; `c` may be missing."""

    name = "noop.join"
    inputs = groups(a=Field(ValueType.TEXT), b=Field(ValueType.TEXT), c=Field(ValueType.TEXT, is_optional=True))
    outputs = {"text": Field(ValueType.TEXT)}
    max_concurrency = 256

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"text": " ".join(str(value) for name in "abc" for value in inputs.all(name))}
