"""Inline nodes: how many run at a time, and who waits for them."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from omniflow.dsl import Graph
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.interface import Context, Field, Inputs, Interface, groups
from omniflow.values import ValueType
from omniflow_server.control.inline import ACTIVATIONS_PER_NODE
from tests.roles.running import eventually
from tests.server.control.planes import channel_to, plane
from tests.server.rpc.client import GraphClient, texts

TEXT = ValueType.TEXT
WORDS = 300


class Many(Interface):
    """Numbers, as fast as they are taken."""

    name = "test.many"
    inputs = groups(text=Field(TEXT))
    outputs: ClassVar = {"text": Field(TEXT)}
    given: ClassVar[list[int]] = []

    async def run(self, inputs: Inputs, context: Context) -> Any:
        for i in range(int(str(inputs["text"]))):
            self.given.append(i)
            yield {"text": str(i)}


class Hold(Interface):
    """Passes its text on when it is let go."""

    name = "test.hold"
    inputs = groups(text=Field(TEXT))
    outputs: ClassVar = {"text": Field(TEXT)}
    gate: ClassVar[asyncio.Event]
    started: ClassVar[list[str]] = []

    async def run(self, inputs: Inputs, context: Context) -> Any:
        self.started.append(str(inputs["text"]))
        await self.gate.wait()
        return {"text": str(inputs["text"])}


def held() -> Graph:
    graph = Graph("held")
    many, hold = graph.node("many", Many, inline=True), graph.node("hold", Hold, inline=True)
    graph.input("text", TEXT) >> many.inputs.field("text")
    many.output("text") >> hold.inputs.field("text")
    hold.output("text") >> graph.output("text", TEXT)
    return graph


async def test_inline_activations_of_a_node_are_bounded_and_hold_their_producer_back() -> None:
    Many.given.clear()
    Hold.started.clear()
    Hold.gate = asyncio.Event()
    async with plane(Many, Hold, graphs=[held()]) as made, channel_to(made.target) as channel:
        reader = GraphClient(channel).stream("held", inputs={"text": str(WORDS)})
        await eventually(lambda: len(Hold.started) == ACTIVATIONS_PER_NODE)
        for _ in range(20):
            await asyncio.sleep(0)  # whatever else would start now
        assert len(Hold.started) == ACTIVATIONS_PER_NODE
        assert len(Many.given) < WORDS, "the producer waits for its yields to be accepted"
        Hold.gate.set()
        events, error = await reader.rest()
        assert error is None
        assert texts(events) == [str(i) for i in range(WORDS)]
        assert made.inline._running == {}
        assert made.inline._waiting == {}


async def test_cancel_ends_inline_activations_that_wait() -> None:
    Hold.started.clear()
    Hold.gate = asyncio.Event()
    async with plane(Many, Hold, graphs=[held()]) as made, channel_to(made.target) as channel:
        client = GraphClient(channel)
        reader = client.stream("held", inputs={"text": str(WORDS)})
        call_id = (await reader.expect("accepted")).accepted.call_id
        await eventually(lambda: len(Hold.started) == ACTIVATIONS_PER_NODE)
        assert await client.cancel(call_id)
        await reader.rest()
        await eventually(lambda: made.inline._running == {})
        assert made.inline._waiting == {}
        assert (await client.get(call_id)).state == pb.CALL_STATE_FAILED
        assert len(Hold.started) == ACTIVATIONS_PER_NODE, "what waited was never started"
