"""The topologies that are compared, as our flows have them: what a call gets, and what it must answer.

chain3      a -> b -> c
diamond4    a -> {b, c} -> j
fan5        pre -> {img, aud, agg} -> agg -> out
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from omniflow.codec.common import value_to_proto
from omniflow.common.v1 import value_pb2
from omniflow.flow import RolePlan
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.values import Json
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_roles.noop import graphs
from omniflow_roles.noop.items import Item
from tests.bench.peers.protocol import expect


def _reply(name: str, **inputs: list[str]) -> value_pb2.Value:
    return value_to_proto(Item(name=name, inputs=inputs).value())


FLOWS = {"chain3": graphs.chain3, "diamond4": graphs.diamond4, "fan5": graphs.fan5}
TOPOLOGIES: Sequence[str] = tuple(FLOWS)
REPLIES: Mapping[str, value_pb2.Value] = {
    "chain3": _reply("x.a0.b0.c0"),
    "diamond4": _reply("x.a0.j0", a=["x.a0.b0"], b=["x.a0.c0"]),
    "fan5": _reply("x.pre0.agg0.out0", a=["x.pre0.img0"], b=["x.pre0.aud0"], c=["x.pre0"]),
}
"""The item that comes out: its name says how it was made, and it keeps what the join on its way was given."""


def roles() -> tuple[RolePlan, ...]:
    """A process for each role; the topologies share them."""
    interfaces: dict[str, set[str]] = {}
    for flow in FLOWS.values():
        for role in flow.roles:
            interfaces.setdefault(role.name, set()).update(role.interfaces)
    return tuple(RolePlan(name=name, interfaces=tuple(sorted(hosted))) for name, hosted in sorted(interfaces.items()))


def inline_spec(topology: str) -> graph_spec_pb2.GraphSpec:
    """The graph with every node in the control plane."""
    spec = FLOWS[topology].graph.spec()
    spec.name = f"graphs/inline-{topology}"
    for node in spec.nodes:
        node.is_inline = True
        node.role = ""
    return spec


def graph_name(topology: str, *, is_inline: bool) -> str:
    """Resource name of a topology's graph."""
    return (inline_spec(topology) if is_inline else FLOWS[topology].graph.spec()).name


def call_spec() -> graph_service_pb2.CallSpec:
    """What every call gets."""
    return graph_service_pb2.CallSpec(inputs={"item": value_to_proto(Json({"name": "x"}))})


def check_reply(topology: str, events: Iterable[graph_event_pb2.GraphEvent]) -> None:
    """Raises RuntimeError unless the call gave the item that it must give, and finished."""
    values: list[value_pb2.Value] = []
    end = None
    for event in events:
        end = event.WhichOneof("event")
        if end == "value":
            values.append(event.value)
    expect(values, [REPLIES[topology]])
    expect(end, "finished")
