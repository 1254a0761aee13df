"""A call that is recorded by hand: a clock of the test's own, and answers as a control plane would give them."""

from __future__ import annotations

from typing import Any, ClassVar

from omniflow.codec.error import status_to_proto
from omniflow.codec.workflow import graph_spec_from_proto
from omniflow.dsl import Graph
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.graph.v1 import inspection_pb2
from omniflow.interface import Context, Field, Inputs, Interface, groups
from omniflow.values import ValueType
from omniflow_core.control.commands import Command
from omniflow_core.control.events import Event
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.errors import ErrorInfo
from omniflow_core.graph.plan import plan_graph
from omniflow_server.control.recording import CallRecorder
from omniflow_server.rpc.inspection import record_to_proto, snapshot_to_proto, timestamp

TEXT = Field(ValueType.TEXT)
OPTIONS: dict[str, Any] = {
    "yield_window": 64,
    "byte_credit": 1 << 20,
    "store_limit_bytes": 64 << 20,
    "max_activations": 1000,
    "max_attempts": 3,
}


class Step(Interface):
    """Text in, text out; never run here."""

    name = "test.step"
    inputs = groups(x=TEXT)
    outputs: ClassVar = {"y": TEXT}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        yield {}


class Pair(Step):
    """Two texts in."""

    name = "test.pair"
    inputs = groups(p=TEXT, q=TEXT)


def diamond() -> Graph:
    """x -> a -> {b, c} -> j -> out; j joins what b and c make of one yield of a."""
    graph = Graph("diamond")
    a, b, c = (graph.node(name, Step, inline=True) for name in "abc")
    j = graph.node("j", Pair, inline=True)
    graph.input("x", ValueType.TEXT) >> a.inputs.field("x")
    a.y >> b.inputs.field("x")
    a.y >> c.inputs.field("x")
    b.y >> j.inputs.field("p")
    c.y >> j.inputs.field("q")
    j.y >> graph.output("out", ValueType.TEXT)
    return graph


class RecordedCall:
    """Feeds events to a scheduler, each at a time of its own, and says what InspectCall would."""

    def __init__(self, graph: Graph, *, limit_bytes: int = 1 << 20) -> None:
        self._now_us = 0
        self._graph = graph.spec()
        self.recorder = CallRecorder(limit_bytes=limit_bytes, began_ns=0, now_ns=lambda: self._now_us * 1000)
        self.scheduler = CallScheduler(plan_graph(graph_spec_from_proto(self._graph)), **OPTIONS)

    def at(self, time_us: int, *events: Event) -> list[Command]:
        """Hands over events at a time since the call was accepted; returns what the last one brought about."""
        self._now_us = time_us
        commands: list[Command] = []
        for event in events:
            commands = self.recorder.handle(self.scheduler, event)
        return commands

    def response(self, state: pb.CallState, error: ErrorInfo | None = None) -> pb.InspectCallResponse:
        """The answer of InspectCall now."""
        call = inspection_pb2.CallInspection(
            call_id="c0ffee",
            graph=self._graph,
            create_time=timestamp(1000.0),
            inspect_time=timestamp(1000.0 + self._now_us / 1e6),
            options=inspection_pb2.SchedulerOptions(**OPTIONS),
            record=record_to_proto(self.recorder),
            snapshot=snapshot_to_proto(self.scheduler.inspect()),
        )
        if error is not None:
            call.status.CopyFrom(status_to_proto(error))
        return pb.InspectCallResponse(state=state, call=call)
