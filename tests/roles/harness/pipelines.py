"""Starts of pipelines for tests, and role servers for their nodes in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from omniflow.codec.common import value_from_proto
from omniflow.interface import Context, Field, Inputs, Interface, groups
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import ValueType
from omniflow_roles.harness.role_server import RoleServer
from tests.roles.driver import Driver, Result, dial, start_command
from tests.roles.running import running

CONTROL = "control-life-1"
"""The incarnation that drivers say that they have."""
EXIT = 1000
"""Handle of the exit, unless a test takes another."""
TEXT = Field(ValueType.TEXT)


class Words(Interface):
    """One word of the text a yield; "_" is a yield without any output."""

    name = "test.words"
    inputs = groups(text=TEXT)
    outputs: ClassVar = {"text": TEXT, "more": TEXT}
    max_concurrency = 64

    async def run(self, inputs: Inputs, context: Context) -> Any:
        for word in str(inputs["text"]).split():
            yield {} if word == "_" else {"text": word}
        context.usage.output_tokens = len(str(inputs["text"]).split())


class Mark(Words):
    """The text with the node's name."""

    name = "test.mark"

    async def run(self, inputs: Inputs, context: Context) -> Any:
        context.usage.input_tokens = 1
        return {"text": str(inputs["text"]) + context.node}


class Letters(Words):
    """One letter a yield."""

    name = "test.letters"

    async def run(self, inputs: Inputs, context: Context) -> Any:
        for letter in str(inputs["text"]):
            yield {} if letter == "_" else {"text": letter}


class Gate(Words):
    """Gives its text when the test has opened its gate."""

    name = "test.gate"

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.began: list[str] = []
        self.stopped: list[str] = []
        self.told: list[str] = []
        """Calls of which the cancel hook has heard."""

    def on_cancel(self, call_id: str) -> None:
        self.told.append(call_id)

    async def run(self, inputs: Inputs, context: Context) -> Any:
        text = str(inputs["text"])
        self.began.append(text)
        try:
            await self.gates[text].wait()
        except asyncio.CancelledError:
            self.stopped.append(text)
            raise
        return {"text": text}


def stage(server: RoleServer, node: str, interface: str, **fields: Any) -> messages.PipelineStage:
    """A stage that takes "text" as "text"."""
    options: dict[str, Any] = {
        "input_group": "main",
        "routes": [messages.PipelineRoute(output_field="text", input_field="text")],
        "required_fields": ["text"],
        "fails_when_partial": True,
        "replica": server.identity.message(server.host.state),
        "yield_window": 64,
        "activation_window": 64,
    }
    return messages.PipelineStage(node=node, interface=interface, **(options | fields))


def pipeline(
    *stages: messages.PipelineStage,
    exit_handle: int = EXIT,
    fields: Iterable[str] = ("text",),
    yield_window: int = 64,
    path: Collection[int] = (7,),
    number: int = 0,
    incarnation_id: str = CONTROL,
) -> messages.Pipeline:
    """What the start of the first node takes along, or that of node `number`."""
    end = messages.PipelineExit(
        incarnation_id=incarnation_id, handle=exit_handle, fields=fields, yield_window=yield_window
    )
    return messages.Pipeline(stages=stages, exit=end, entry_activation_id=5, origin_path=path, stage=number)


def entry_command(
    handle: int, interface: str, text: str, message: messages.Pipeline, **options: Any
) -> messages.ExecuteCommand:
    """The start of the first node, "a"."""
    command = start_command(handle, interface, {"text": text}, pipeline=message, **options)
    command.start.activation.node = "a"
    command.start.activation.activation_id = message.entry_activation_id
    return command


@contextlib.asynccontextmanager
async def replicas(
    folder: Path, *of_nodes: Sequence[Interface], acks: bool = True, **settings: Any
) -> AsyncIterator[tuple[list[RoleServer], list[Driver]]]:
    """A role server for each node, and the control plane's link with it."""
    async with contextlib.AsyncExitStack() as stack:
        servers, drivers = [], []
        for number, interfaces in enumerate(of_nodes):
            place = folder / f"role-{number}"
            place.mkdir()
            options = {"role": f"role-{number}", "replica_id": f"role-{number}-0", **settings}
            servers.append(await stack.enter_async_context(running(place, *interfaces, **options)))
        for server in servers:
            identity = server.identity
            drivers.append(await stack.enter_async_context(dial(identity.endpoint, identity.incarnation_id, acks=acks)))
        yield servers, drivers


async def exits(driver: Driver, count: int, *, handle: int = EXIT) -> list[Result]:
    """The next yields under the handle of an exit."""
    found: list[Result] = []
    while len(found) < count:
        result = await driver.next(handle)
        if result.WhichOneof("result") != "accepted":  # which the driver puts before the first yield of a handle
            found.append(result)
    return found


def told(results: Iterable[Result]) -> list[tuple[int, tuple[int, ...], str]]:
    """Ordinals, paths and texts of what has left."""
    outputs = [getattr(result, "yield") for result in results]
    return [(o.ordinal, tuple(o.origin_path), str(value_from_proto(o.fields["text"]))) for o in outputs]


def texts(results: Iterable[Result]) -> list[str]:
    """What has left."""
    return [text for _, _, text in told(results)]
