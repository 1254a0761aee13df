"""A control plane and real role servers in the test's loop, for tests through the client library."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
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
from tests.support.interfaces import TEXT, Exclaim, Fail, Gate, Words, single

TENSOR = ValueType.TENSOR


class Count(Words):
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


ROLE_INTERFACES = (Exclaim, Count, Gate, Fail, Invert)
INTERFACES: tuple[type[Interface], ...] = (Words, *ROLE_INTERFACES)


def graphs() -> tuple[Graph, ...]:
    """words: an inline node before one of the role. twice: a tensor through the role two times. The rest: one node."""
    words = Graph("words")
    split, mark = words.node("split", Words, inline=True), words.node("mark", Exclaim, role="worker")
    words.input("text", TEXT) >> split.inputs.field("text")
    split.output("text") >> mark.inputs.field("text")
    mark.output("text") >> words.output("text", TEXT)
    twice = Graph("twice")
    first, second = (twice.node(n, Invert, role="worker") for n in ("first", "second"))
    twice.input("tensor", TENSOR) >> first.inputs.field("tensor")
    first.output("tensor") >> second.inputs.field("tensor")
    second.output("tensor") >> twice.output("tensor", TENSOR)
    first.output("tensor") >> twice.output("inverted", TENSOR)
    kinds = {"count": Count, "gate": Gate, "fail": Fail}
    return (words, twice, *(single(name, interface, role="worker") for name, interface in kinds.items()))


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
        for link in made.dispatcher.links.all()
    )
