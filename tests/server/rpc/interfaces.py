"""Inline interfaces for tests over a real socket, and graphs of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

from omniflow.dsl import Graph
from omniflow.interface import Context, Field, Inputs, Interface, groups
from omniflow.values import Json, Signal, Tensor, Tokens, ValueType
from tests.support.interfaces import TEXT, Exclaim, Fail, Gate, Words, single

TENSOR, BYTES = ValueType.TENSOR, ValueType.BYTES


class Count(Words):
    """As many numbers as the text says, with usage."""

    name = "test.count"
    outputs: ClassVar = {"tokens": Field(ValueType.TOKENS)}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        for i in range(int(str(inputs["text"]))):
            context.usage.output_tokens += 1
            yield {"tokens": Tokens((i,), f"{i} ")}
        context.finish_reason = "length"


class Block(Words):
    """Blocks its thread until it is cancelled, or for ten seconds when the text is "deaf"."""

    name = "test.block"

    def run(self, inputs: Inputs, context: Context) -> Any:
        until_s = time.monotonic() + 10
        while time.monotonic() < until_s and not (context.is_cancelled and inputs["text"] != "deaf"):
            time.sleep(0.005)
        return {"text": "done"}


class Wrong(Words):
    """Gives what it did not declare, or what cannot be sent."""

    name = "test.wrong"
    outputs: ClassVar = {"text": Field(TEXT), "json": Field(ValueType.JSON)}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        return {
            "type": {"text": b"bytes"},
            "name": {"nope": "x"},
            "nan": {"json": Json(float("nan"))},
            "surrogate": {"text": "\ud800"},
            "large": {"text": "x" * (5 * 2**20)},
        }[str(inputs["text"])]


class Same(Interface):
    """The tensor again."""

    name = "test.same"
    inputs = groups(tensor=Field(TENSOR))
    outputs: ClassVar = {"tensor": Field(TENSOR)}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        tensor = inputs["tensor"]
        assert isinstance(tensor, Tensor)
        return {"tensor": tensor}


class Make(Words):
    """As many bytes as the text says."""

    name = "test.make"
    outputs: ClassVar = {"data": Field(BYTES)}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        return {"data": bytes(range(256)) * (int(str(inputs["text"])) // 256)}


class Steps(Words):
    """Progress, then a signal."""

    name = "test.steps"
    outputs: ClassVar = {"done": Field(ValueType.SIGNAL)}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        context.progress(1, 2, "half")
        await asyncio.sleep(0)
        return {"done": Signal()}


INTERFACES: tuple[type[Interface], ...] = (Words, Exclaim, Count, Gate, Block, Fail, Wrong, Same, Make, Steps)


def _shout() -> Graph:
    """text -> words -> exclaim -> text; the bare words too."""
    graph = Graph("shout")
    words, exclaim = graph.node("words", Words, inline=True), graph.node("exclaim", Exclaim, inline=True)
    graph.input("text", TEXT) >> words.inputs.field("text")
    words.text >> exclaim.inputs.field("text")
    exclaim.text >> graph.output("text", TEXT)
    words.text >> graph.output("raw", TEXT)
    return graph


def graphs() -> tuple[Graph, ...]:
    """All of them, by the name of what they do."""
    return (
        _shout(),
        single("count", Count),
        single("gate", Gate),
        single("block", Block),
        single("fail", Fail),
        single("wrong", Wrong),
        single("same", Same),
        single("make", Make),
        single("steps", Steps),
        single("listen", Exclaim, streaming=True),
        single("listen_tensors", Same, streaming=True),
    )
