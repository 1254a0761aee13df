"""Interfaces run without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from omniflow import Context, Field, Inputs, Interface, OmniFlowError, Outputs, Reason, ValueType, groups
from omniflow.testing import run_interface


class Upper(Interface):
    name = "test.upper"
    inputs = groups(text=Field(ValueType.TEXT), suffix=Field(ValueType.TEXT, is_optional=True))
    outputs = {"text": Field(ValueType.TEXT)}  # declared by the base

    def setup(self) -> None:
        self.prefix = ">"

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        context.usage.output_tokens += 1
        return {"text": self.prefix + "".join(str(text) for text in inputs.all("text")).upper()}


class Letters(Interface):
    name = "test.letters"
    inputs = groups(("typed", {"text": Field(ValueType.TEXT)}), ("spoken", {"text": Field(ValueType.TEXT)}))
    outputs = {"letter": Field(ValueType.TEXT)}

    async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:
        context.progress(1, 2, inputs.group)
        for letter in str(inputs["text"]):
            yield {"letter": letter}
        context.finish_reason = "stop"


class Wrong(Interface):
    name = "test.wrong"
    inputs = groups()
    outputs = {"text": Field(ValueType.TEXT)}

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        return {"other": "x"}


async def test_run_interface_sets_up_and_collects() -> None:
    run = await run_interface(Upper, text=("a", "b"))
    assert run.yields == ({"text": ">AB"},)
    assert run.usage.output_tokens == 1


async def test_run_interface_with_an_instance_uses_it_as_it_is() -> None:
    upper = Upper()
    upper.prefix = "!"
    assert (await run_interface(upper, {"text": "a"})).text("text") == "!A"


async def test_run_interface_collects_a_stream() -> None:
    run = await run_interface(Letters, text="abc", group="spoken")
    assert (run.text("letter"), run.finish_reason, run.progress) == ("abc", "stop", ((1, 2, "spoken"),))


async def test_run_interface_raises_the_activations_error() -> None:
    with pytest.raises(OmniFlowError) as caught:
        await run_interface(Wrong)
    assert caught.value.reason is Reason.INVALID_OUTPUT


async def test_run_interface_needs_fitting_inputs() -> None:
    with pytest.raises(ValueError, match="no input group"):
        await run_interface(Upper, other="x")
    with pytest.raises(ValueError, match="several groups"):
        await run_interface(Letters, text="x")
