"""A control plane and real role servers in the test's loop, for tests through the client library."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

from omniflow.dsl import Graph
from omniflow.interface import Context, Field, Inputs, Interface, groups
from omniflow.values import ElementType, Tensor, Tokens, ValueType
from omniflow_roles.harness.role_server import RoleServer
from omniflow_roles.harness.settings import RoleSettings
from omniflow_server.compose import ControlPlane
from tests.roles.running import eventually

TEXT, TENSOR = ValueType.TEXT, ValueType.TENSOR


class Upper(Interface):
    """One upper-case word a yield."""

    name = "whole.upper"
    inputs = groups(text=Field(TEXT))
    outputs = {"text": Field(TEXT)}
    max_concurrency = 64

    async def run(self, inputs: Inputs, context: Context) -> Any:
        for word in str(inputs["text"]).split():
            yield {"text": word.upper()}


class Mark(Upper):
    """The text with the role process's mark."""

    name = "whole.mark"

    async def run(self, inputs: Inputs, context: Context) -> Any:
        return {"text": str(inputs["text"]) + "!"}


class Count(Upper):
    """Numbers without an end, or up to the text; waits at each of its stops until it is let on."""

    name = "whole.count"
    outputs = {"tokens": Field(ValueType.TOKENS)}
    given: ClassVar[list[int]] = []
    stops: ClassVar[dict[int, asyncio.Event]] = {}

    @classmethod
    def reset(cls, *stops: int) -> None:
        cls.given, cls.stops = [], {stop: asyncio.Event() for stop in stops}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        most = int(str(inputs["text"]))
        for i in itertools.count() if most < 0 else range(most):
            if i in self.stops:
                await self.stops[i].wait()
            self.given.append(i)
            yield {"tokens": Tokens((i,), "x" * 5_000)}


class Hold(Upper):
    """Yields "began", then waits for its gate."""

    name = "whole.hold"
    gates: ClassVar[defaultdict[str, asyncio.Event]] = defaultdict(asyncio.Event)
    began: ClassVar[list[str]] = []
    ended: ClassVar[list[str]] = []
    cancelled_calls: ClassVar[list[str]] = []

    @classmethod
    def reset(cls) -> None:
        cls.gates, cls.began, cls.ended, cls.cancelled_calls = defaultdict(asyncio.Event), [], [], []

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


class Fail(Upper):
    """Fails after one yield."""

    name = "whole.fail"

    async def run(self, inputs: Inputs, context: Context) -> Any:
        yield {"text": "part"}
        raise RuntimeError("secret")


class Invert(Interface):
    """Every byte of a tensor inverted."""

    name = "whole.invert"
    inputs = groups(tensor=Field(TENSOR))
    outputs = {"tensor": Field(TENSOR)}

    def run(self, inputs: Inputs, context: Context) -> Any:
        tensor = inputs["tensor"]
        assert isinstance(tensor, Tensor)
        flipped = bytes(tensor.data).translate(bytes(255 - i for i in range(256)))
        return {"tensor": Tensor(ElementType.UINT8, tensor.shape, flipped)}


ROLE_INTERFACES = (Mark, Count, Hold, Fail, Invert)
INTERFACES: tuple[type[Interface], ...] = (Upper, *ROLE_INTERFACES)


def graphs() -> tuple[Graph, ...]:
    """words: an inline node before one of the role. twice: a tensor through the role two times. The rest: one node."""
    words = Graph("words")
    upper, mark = words.node("upper", Upper, inline=True), words.node("mark", Mark, role="worker")
    words.input("text", TEXT) >> upper.inputs.field("text")
    upper.output("text") >> mark.inputs.field("text")
    mark.output("text") >> words.output("text", TEXT)
    twice = Graph("twice")
    first, second = (twice.node(n, Invert, role="worker") for n in ("first", "second"))
    twice.input("tensor", TENSOR) >> first.inputs.field("tensor")
    first.output("tensor") >> second.inputs.field("tensor")
    second.output("tensor") >> twice.output("tensor", TENSOR)
    first.output("tensor") >> twice.output("inverted", TENSOR)
    return (words, twice, *(_single(i) for i in (Count, Hold, Fail)))


def _single(interface: type[Interface]) -> Graph:
    graph = Graph(interface.name.partition(".")[2])
    node = graph.node("node", interface, role="worker", spread=True)
    graph.input("text", TEXT) >> node.inputs.field("text")
    ((name, field),) = interface.outputs.items()
    node.output(name) >> graph.output(name, field.type)
    return graph


@contextlib.asynccontextmanager
async def role_server(made: ControlPlane, replica_id: str = "worker-0", **settings: Any) -> AsyncIterator[RoleServer]:
    """A role server that has registered and is connected. Leaving it without a drain is its death."""
    with tempfile.TemporaryDirectory(prefix="of-role-") as folder:
        options: dict[str, Any] = {
            "role": "worker",
            "replica_id": replica_id,
            "listen": f"unix:{Path(folder) / 'role.sock'}",
            "registry": made.internal_target,
            "drain_grace_s": 5.0,
        }
        async with RoleServer(RoleSettings(**(options | settings)), [i() for i in ROLE_INTERFACES]) as server:
            running = asyncio.create_task(server.run())
            try:
                await eventually(lambda: _is_connected(made, server))
                yield server
            finally:
                running.cancel()
                await asyncio.wait((running,))


def _is_connected(made: ControlPlane, server: RoleServer) -> bool:
    return any(
        link.is_connected
        and link.registration.is_ready
        and link.registration.replica.incarnation_id == server.identity.incarnation_id
        for link in made.dispatcher._links.values()
    )
