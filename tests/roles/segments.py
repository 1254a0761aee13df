"""Starts of segments for tests, and what a handle says of what happened inside."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from omniflow.codec.common import value_to_proto
from omniflow.dsl import Graph
from omniflow.interface import Context, Inputs, Interface, Outputs
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import Json, Value, ValueType
from omniflow_roles.noop import Step
from tests.roles.driver import Result, start_command


def segment_command(
    handle: int, graph: Graph, entry: str, inputs: Mapping[str, Value], *, outside: Collection[str] = (), **options: Any
) -> messages.ExecuteCommand:
    """A start of the segment that is all of a graph but the nodes `outside`, by its entry's first input group."""
    spec = graph.spec()
    nodes = {node.name: node for node in spec.nodes if node.name not in outside}
    command = start_command(handle, nodes[entry].interface, {}, **options)
    start = command.start
    start.activation.node = entry
    start.facets[0].input_group = nodes[entry].input_groups[0].name
    for name, value in inputs.items():
        start.facets[0].fields[name].values.add(value=value_to_proto(value))
    segment = start.segment
    segment.nodes.extend(nodes.values())
    exits: dict[str, dict[str, None]] = {}
    for edge in spec.edges:
        if edge.source_node in nodes and edge.target_node in nodes:
            segment.edges.append(edge)
        elif edge.source_node in nodes:
            exits.setdefault(edge.source_node, {})[edge.source_field] = None
    for node, fields in exits.items():
        segment.exits.add(node=node, fields=fields)
    return command


def inner_events(results: Iterable[Result]) -> list[messages.InnerEvent]:
    """All events inside, in order."""
    return [event for result in results for event in result.segment_step.events]


def yields_of(results: Iterable[Result]) -> list[tuple[int, messages.ActivationYield]]:
    """Inner ids and yields, in order; those that come with an end too."""
    found = ((event.inner_activation_id, given_by(event)) for event in inner_events(results))
    return [(inner_id, given) for inner_id, given in found if given is not None]


def given_by(event: messages.InnerEvent) -> messages.ActivationYield | None:
    """The yield that an event tells of."""
    if event.HasField("completed") and event.completed.HasField("last_yield"):
        return event.completed.last_yield
    return getattr(event, "yield") if event.HasField("yield") else None


def story(results: Iterable[Result]) -> list[str]:
    """What happened inside, a line for each event: `+` a start below a yield, `!` an end, `*` a failure.

    A yield says what leaves, and in parentheses what stays.
    """
    names = {0: "entry"}
    told = []
    for event in inner_events(results):
        kind, inner_id = event.WhichOneof("event"), event.inner_activation_id
        if kind == "started":
            began = event.started
            names[inner_id] = f"{began.node}{inner_id}"
            told.append(f"+{names[inner_id]} below {names[began.parent_activation_id]}.{began.parent_ordinal}")
            continue
        given = given_by(event)
        if given is not None:
            fields = [*sorted(given.fields), *(f"({name})" for name in given.inside_fields)]
            told.append(f"{names[inner_id]}.{given.ordinal} {' '.join(fields)}".rstrip())
        if kind != "yield":
            told.append(f"{'!' if kind == 'completed' else '*'}{names[inner_id]}")
    return told


def item(name: str = "x", **stages: Any) -> dict[str, Value]:
    """Inputs of a noop stage; stages are options by node."""
    return {"item": Json({"name": name, "stages": stages})}


def chain(*interfaces: type[Interface], **options: Mapping[str, Any]) -> Graph:
    """Nodes a, b, c... that hand items on; what the last one gives leaves. Options of the DSL by node."""
    graph = Graph("test-chain")
    nodes = [
        graph.node(name, interface, role="test", **options.get(name, {}))
        for name, interface in zip("abcdef", interfaces, strict=False)
    ]
    graph.input("item", ValueType.JSON) >> nodes[0].item
    for source, target in itertools.pairwise(nodes):
        source.item >> target.item
    nodes[-1].item >> graph.output("item", ValueType.JSON)
    return graph


class Holds(Step):
    """A step that waits until the test opens its node's gate."""

    name = "test.holds"

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.held: list[str] = []
        """Nodes whose activations came to their gates."""

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        self.held.append(context.node)
        await self.gates[context.node].wait()
        return await super().run(inputs, context)
