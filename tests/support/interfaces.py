"""Small interfaces that run inline and in roles alike, and the graph of a single one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, ClassVar

from omniflow.dsl import Graph
from omniflow.interface import Context, Field, Inputs, Interface, groups
from omniflow.values import ValueType

TEXT = ValueType.TEXT


class Words(Interface):
    """One upper-case word a yield."""

    name = "test.words"
    inputs = groups(text=Field(TEXT))
    outputs: ClassVar = {"text": Field(TEXT)}
    max_concurrency = 64

    async def run(self, inputs: Inputs, context: Context) -> Any:
        for word in str(inputs["text"]).split():
            yield {"text": word.upper()}


class Exclaim(Words):
    """The text with a mark."""

    name = "test.exclaim"

    async def run(self, inputs: Inputs, context: Context) -> Any:
        return {"text": str(inputs["text"]) + "!"}


class Gate(Words):
    """Yields "began", waits until the gate named by the text is opened, then yields its name."""

    name = "test.gate"
    gates: ClassVar[defaultdict[str, asyncio.Event]] = defaultdict(asyncio.Event)
    began: ClassVar[list[str]] = []
    ended: ClassVar[list[str]] = []
    cancelled_calls: ClassVar[list[str]] = []

    @classmethod
    def reset(cls) -> None:
        """Closes all gates and forgets what was."""
        cls.gates = defaultdict(asyncio.Event)
        cls.began, cls.ended, cls.cancelled_calls = [], [], []

    def on_cancel(self, call_id: str) -> None:
        self.cancelled_calls.append(call_id)

    async def run(self, inputs: Inputs, context: Context) -> Any:
        name = str(inputs["text"])
        self.began.append(name)
        try:
            yield {"text": "began"}
            await self.gates[name].wait()
            yield {"text": name}
        finally:
            self.ended.append(name)


class Fail(Words):
    """Fails after one yield."""

    name = "test.fail"

    async def run(self, inputs: Inputs, context: Context) -> Any:
        yield {"text": "part"}
        raise RuntimeError("secret")


def single(name: str, interface: type[Interface], *, role: str = "", streaming: bool = False) -> Graph:
    """A graph of one node, "node", inline or spread over a role; its inputs and outputs have the names of the node's."""
    graph = Graph(name)
    node = graph.node("node", interface, role=role, inline=not role, spread=bool(role))
    for source, field in interface.inputs["main"].items():
        graph.input(source, field.type, streaming=streaming) >> node.inputs.field(source)
    for output, field in interface.outputs.items():
        node.output(output) >> graph.output(output, field.type)
    return graph
