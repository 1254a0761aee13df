"""A call table over a scripted dispatcher: tests play the replicas."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from omniflow.common.v1 import tensor_pb2
from omniflow.dsl import Graph
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.interface import Field, Inputs, Interface, groups
from omniflow.large_values import ValueStore
from omniflow.values import Value, ValueType
from omniflow_core.control.commands import StartActivation
from omniflow_core.control.events import ActivationAccepted, ActivationFailed, ActivationFinished, ActivationYielded
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_server.control.call import Call
from omniflow_server.control.calls import CallTable
from omniflow_server.control.carried import CarriedValue
from omniflow_server.control.catalog import Catalog
from omniflow_server.control.event_log import LogReader
from omniflow_server.control.resume_tokens import ResumeTokens
from omniflow_server.control.settings import ControlSettings
from omniflow_server.control.tasks import BackgroundTasks
from tests.server.control.test_inputs import call_of

STOPPED = ErrorInfo(reason=Reason.CALL_CANCELLED, message="stopped")


class Step(Interface):
    """Text in, text and bytes out; never run here."""

    name = "test.step"
    inputs = groups(x=Field(ValueType.TEXT))
    outputs: ClassVar = {"y": Field(ValueType.TEXT), "b": Field(ValueType.BYTES)}

    async def run(self, inputs: Inputs, context: Any) -> Any:
        yield {}


class Joint(Step):
    """The same from text or bytes."""

    name = "test.joint"
    inputs = groups(("main", {"x": Field(ValueType.TEXT)}), ("binary", {"b": Field(ValueType.BYTES)}))


def chain(name: str = "chain") -> Graph:
    """x or a stream of s -> a -> b -> text; a's bytes -> data."""
    graph = Graph(name)
    x = graph.input("x", ValueType.TEXT, optional=True)
    s = graph.input("s", ValueType.TEXT, streaming=True, optional=True)
    upload = graph.input("upload", ValueType.BYTES, optional=True)
    a, c = graph.node("a", Step, inline=True), graph.node("c", Step, inline=True)
    b = graph.node("b", Joint, inline=True)
    x >> a.inputs.field("x")
    a.y >> b.inputs.field("x")
    b.y >> graph.output("text", ValueType.TEXT)
    a.b >> graph.output("data", ValueType.BYTES)
    s >> c.inputs.field("x")
    c.y >> graph.output("heard", ValueType.TEXT)
    upload >> b.inputs.field("b")
    return graph


@dataclass
class Host:
    """Where activations run: nowhere; it records."""

    acks: list[tuple[int, int]] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)

    def ack(self, call_id: str, activation_id: int, next_ordinal: int) -> None:
        self.acks.append((activation_id, next_ordinal))

    def cancel(self, call_id: str, activation_id: int, reason: str) -> None:
        self.cancelled.append(activation_id)


@dataclass
class ScriptedDispatcher:
    """Records what calls want done. `payloads` are what replicas keep, by value id; None never comes."""

    host: Host = field(default_factory=Host)
    started: list[tuple[Call, StartActivation]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    payloads: dict[str, list[bytes] | None] = field(default_factory=dict)
    fail_start: Exception | None = None
    ends_at_once: bool = False
    """A cancelled activation reports its end from within `cancel`, as inline ones do."""

    def start(self, call: Call, command: StartActivation) -> None:
        if self.fail_start is not None:
            raise self.fail_start
        call.running[command.activation_id] = self.host
        self.started.append((call, command))

    def cancel(self, call: Call, reason: str) -> None:
        self.cancelled.append(call.call_id)
        if self.ends_at_once:
            for activation_id in tuple(call.running):
                call.activation_ended(activation_id)
                call.handle(ActivationFailed(activation_id, STOPPED))

    def release(self, call: Call) -> None:
        self.released.append(call.call_id)

    def ended(self, call: Call, activation_id: int) -> None:
        """No activation waits for another one's end here."""

    async def stream_payload(self, ref: tensor_pb2.RemoteRef) -> AsyncGenerator[bytes, None]:
        pieces = self.payloads[ref.value_id]
        if pieces is None:
            await asyncio.get_running_loop().create_future()
        for piece in pieces or ():
            yield piece


@dataclass
class Table:
    """The table with what it is made of, and shorthands."""

    calls: CallTable
    dispatcher: ScriptedDispatcher
    store: ValueStore
    tasks: BackgroundTasks
    tokens: ResumeTokens

    def accept(
        self,
        *,
        tenant: str = "t",
        graph: str = "graphs/chain",
        open_inputs: str = "",
        inputs: Any = None,
        **fields: Any,
    ) -> Call:
        return self.accept_or_join(tenant=tenant, graph=graph, open_inputs=open_inputs, inputs=inputs, **fields)[0]

    def accept_or_join(
        self,
        *,
        tenant: str = "t",
        graph: str = "graphs/chain",
        open_inputs: str = "",
        inputs: Any = None,
        **fields: Any,
    ) -> tuple[Call, bool]:
        spec = call_of(open_inputs, **({"x": "hello"} if inputs is None else inputs))
        spec.MergeFrom(graph_service_pb2.CallSpec(**fields))
        result = self.calls.accept(graph, spec, tenant=tenant)
        self.calls.check_integrity()
        return result

    def activations(self, call: Call) -> list[tuple[int, str]]:
        """Activations that were started for the call: (id, node)."""
        return [
            (command.activation_id, command.node.name) for owner, command in self.dispatcher.started if owner is call
        ]

    def yields(self, call: Call, activation_id: int, ordinal: int = 0, **fields: Value) -> None:
        carried = {name: CarriedValue(native=value) for name, value in fields.items()}
        call.handle(ActivationYielded(activation_id, ordinal, carried))

    def finishes(self, call: Call, activation_id: int, yields: int = 0) -> None:
        call.activation_ended(activation_id)
        call.handle(ActivationFinished(activation_id, yields))

    def stops(self, call: Call, activation_id: int) -> None:
        call.activation_ended(activation_id)
        call.handle(ActivationFailed(activation_id, STOPPED))

    def accepts(self, call: Call, activation_id: int) -> None:
        call.handle(ActivationAccepted(activation_id))

    def finish(self, call: Call) -> None:
        """Ends everything that runs for the call without a yield."""
        for activation_id, _ in self.activations(call):
            self.finishes(call, activation_id)

    def attach(self, call: Call, after: int = 0) -> LogReader:
        return self.calls.attach(call, after, lambda _: None)

    def read(self, call: Call, after: int = 0) -> list[graph_event_pb2.GraphEvent]:
        """The call's events so far, without a reader that stays."""
        reader = call.read(after, lambda _: None)
        events = events_of(reader)
        reader.close()
        return events


def events_of(reader: LogReader) -> list[graph_event_pb2.GraphEvent]:
    found: list[graph_event_pb2.GraphEvent] = []
    while fragments := reader.take(1 << 30):
        found += graph_service_pb2.StreamCallResponse.FromString(b"".join(fragments)).events
    return found


def kinds(events: list[graph_event_pb2.GraphEvent]) -> list[str]:
    return [str(event.WhichOneof("event")) for event in events]


@contextlib.asynccontextmanager
async def call_table(*graphs: Graph, **settings: Any) -> AsyncIterator[Table]:
    """A table with the chain graph and others installed."""
    the_settings = ControlSettings(**settings)
    catalog = Catalog([Step.name, Joint.name])
    for graph in (chain(), *graphs):
        catalog.install(catalog.compile(graph.spec()))
    store = ValueStore(endpoint="unix:/x", incarnation_id="i", budget_bytes=the_settings.spool_bytes)
    dispatcher, tokens = ScriptedDispatcher(), ResumeTokens(b"k" * 32)
    async with BackgroundTasks() as tasks:
        calls = CallTable(
            settings=the_settings, catalog=catalog, dispatcher=dispatcher, store=store, tokens=tokens, tasks=tasks
        )
        yield Table(calls, dispatcher, store, tasks, tokens)
        calls.check_integrity()
