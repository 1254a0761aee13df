"""The topologies that are compared, with nodes that do nothing: what a call gets, and what it must answer.

chain3      a -> b -> c
diamond4    a -> {b, c} -> j
fan5        pre -> {img, aud, agg} -> agg -> out

Every node gives the text that it is given, as the peers' stages hand their payload on; a join gives one text for each branch
that it has seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from omniflow.codec.common import value_to_proto
from omniflow.common.v1 import value_pb2
from omniflow.dsl import Graph
from omniflow.flow import RolePlan
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.values import ValueType
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_roles.noop import Echo, Join
from tests.bench.peers.protocol import expect

ROUTES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "chain3": {"a": (), "b": ("a",), "c": ("b",)},
    "diamond4": {"a": (), "b": ("a",), "c": ("a",), "j": ("b", "c")},
    "fan5": {"pre": (), "img": ("pre",), "aud": ("pre",), "agg": ("pre", "img", "aud"), "out": ("agg",)},
}
"""By topology and node: where its input comes from, nowhere for the first one."""
TOPOLOGIES: Sequence[str] = tuple(ROUTES)
REPLIES: Mapping[str, value_pb2.Value] = {
    "chain3": value_to_proto("x"),
    "diamond4": value_to_proto("x x"),
    "fan5": value_to_proto("x x x"),
}
_JOINED = "abc"
"""Input fields of a join, one for each source."""


def graph(topology: str) -> Graph:
    """Each node on a role of its own: the first on stage1, the next on stage2 and so on."""
    made = Graph(topology)
    routes = ROUTES[topology]
    nodes = {
        name: made.node(name, Join if len(sources) > 1 else Echo, role=f"stage{number}")
        for number, (name, sources) in enumerate(routes.items(), start=1)
    }
    for name, sources in routes.items():
        fields = ["text"] if len(sources) < 2 else list(_JOINED)
        for source, field in zip(sources, fields, strict=False):
            nodes[source].text >> nodes[name].inputs.field(field)
    first, *_, last = nodes.values()
    made.input("text", ValueType.TEXT) >> first.inputs.field("text")
    last.text >> made.output("text", ValueType.TEXT)
    return made


def roles() -> tuple[RolePlan, ...]:
    """A process for each role; the topologies share them."""
    most = max(map(len, ROUTES.values()))
    return tuple(RolePlan(name=f"stage{i}", interfaces=(Echo.name, Join.name)) for i in range(1, most + 1))


def inline_spec(topology: str) -> graph_spec_pb2.GraphSpec:
    """The graph with every node in the control plane."""
    spec = graph(topology).spec()
    spec.name = f"graphs/inline-{topology}"
    for node in spec.nodes:
        node.is_inline = True
        node.role = ""
    return spec


def graph_name(topology: str, *, is_inline: bool) -> str:
    """Resource name of a topology's graph."""
    return (inline_spec(topology) if is_inline else graph(topology).spec()).name


def call_spec() -> graph_service_pb2.CallSpec:
    """What every call gets."""
    return graph_service_pb2.CallSpec(inputs={"text": value_to_proto("x")})


def check_reply(topology: str, events: Iterable[graph_event_pb2.GraphEvent]) -> None:
    """Raises RuntimeError unless the call gave the text that it must give, and finished."""
    values: list[value_pb2.Value] = []
    end = None
    for event in events:
        end = event.WhichOneof("event")
        if end == "value":
            values.append(event.value)
    expect(values, [REPLIES[topology]])
    expect(end, "finished")
