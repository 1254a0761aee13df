"""The graph inside a segment, as a start brings it: checked, compiled, and kept for the next start.

    start.segment                         SegmentGraph
    nodes, edges  ─▶ graph.inside ─▶      plan            what the run follows
    exits         ─▶                      exits, inside   which outputs of a node are sent, and which stay here

Nothing of a segment has run when it is refused, and the error names the field that is wrong.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from omniflow.codec.workflow import graph_spec_from_proto
from omniflow.role.v1 import role_execution_service_pb2
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason, Violation, invalid_field
from omniflow_core.graph.findings import InvalidGraphError, nearest
from omniflow_core.graph.inside import segment_graph
from omniflow_core.graph.plan import GraphPlan
from omniflow_roles.harness.inputs import StartActivation

_KEPT = 256
"""Segments of all graphs that a replica has a part in; a compiled one takes some tens of kilobytes."""

_Segment = role_execution_service_pb2.Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentGraph:
    """What is the same in every run of a segment."""

    plan: GraphPlan
    entry: str
    interfaces: Mapping[str, str]
    """By node."""
    exits: Mapping[str, frozenset[str]]
    """By node with exits: output fields that are sent to the control plane."""
    inside: Mapping[str, tuple[str, ...]]
    """By node: output fields that only have receivers inside."""


class SegmentGraphs:
    """Compiles segments, and keeps those that were used last by their ids."""

    def __init__(self, served: Collection[str]) -> None:
        """`served`: names of the interfaces of this replica."""
        self._served = served
        self._kept: OrderedDict[tuple[str, str, str], SegmentGraph] = OrderedDict()

    def of(self, start: StartActivation) -> SegmentGraph:
        """The graph of a start's segment. Raises INVALID_FIELD, UNKNOWN_INTERFACE or INVALID_GRAPH with the field."""
        if start.delivered_yields:
            raise invalid_field(
                "start.delivered_yields", "a segment begins anew; it does not go on where another ended"
            )
        ref, segment = start.activation, start.segment
        key = (segment.segment_id, ref.node, ref.interface)
        graph = self._kept.get(key)
        if graph is not None:
            self._kept.move_to_end(key)
            return graph
        graph = self._compile(start)
        if segment.segment_id:
            self._kept[key] = graph
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return graph

    def _compile(self, start: StartActivation) -> SegmentGraph:
        ref, segment = start.activation, start.segment
        interfaces = {node.name: node.interface for node in segment.nodes}
        if ref.node not in interfaces:
            raise invalid_field(
                "start.activation.node", f"no node {ref.node!r} in the segment. {nearest(ref.node, interfaces)}"
            )
        if ref.interface != interfaces[ref.node]:
            raise invalid_field("start.activation.interface", f"the segment says {interfaces[ref.node]!r}")
        for i, node in enumerate(segment.nodes):
            if node.interface not in self._served:
                raise self._unserved(f"start.segment.nodes[{i}].interface", node.interface)
        _check_kinds(segment, ref.node)
        spec = graph_spec_from_proto(graph_spec_pb2.GraphSpec(nodes=segment.nodes, edges=segment.edges))
        try:
            plan = segment_graph(spec.nodes, spec.edges, ref.node)
        except InvalidGraphError as error:
            raise _within_start(error) from None
        exits = dict(_exits(segment))
        taken: dict[str, set[str]] = defaultdict(set)
        for edge in segment.edges:
            taken[edge.source_node].add(edge.source_field)
        return SegmentGraph(
            plan=plan,
            entry=ref.node,
            interfaces=interfaces,
            exits=exits,
            inside={name: tuple(sorted(fields - exits.get(name, frozenset()))) for name, fields in taken.items()},
        )

    def _unserved(self, field: str, interface: str) -> OmniFlowError:
        served = ", ".join(self._served)
        return invalid_field(
            field, f"this replica does not serve {interface!r}; it serves {served}", reason=Reason.UNKNOWN_INTERFACE
        )


def _check_kinds(segment: _Segment, entry: str) -> None:
    """Raises UNIMPLEMENTED for what only the control plane gathers: here it would run with a part of its inputs."""
    for i, node in enumerate(segment.nodes):
        if node.activate_by_count and node.name != entry:
            raise invalid_field(
                f"start.segment.nodes[{i}].activate_by_count",
                "a count join can only be the entry of a segment",
                reason=Reason.UNIMPLEMENTED,
            )
    for i, edge in enumerate(segment.edges):
        if edge.HasField("chunks"):
            raise invalid_field(
                f"start.segment.edges[{i}].chunks",
                "no edge inside a segment has a chunk policy",
                reason=Reason.UNIMPLEMENTED,
            )


def _exits(segment: _Segment) -> Iterator[tuple[str, frozenset[str]]]:
    outputs = {node.name: {field.name for field in node.outputs} for node in segment.nodes}
    for i, leaving in enumerate(segment.exits):
        known = outputs.get(leaving.node)
        if known is None:
            path = f"start.segment.exits[{i}].node"
            raise invalid_field(path, f"no node {leaving.node!r} in the segment. {nearest(leaving.node, outputs)}")
        for k, field in enumerate(leaving.fields):
            if field not in known:
                path = f"start.segment.exits[{i}].fields[{k}]"
                raise invalid_field(path, f"node {leaving.node!r} has no output {field!r}. {nearest(field, known)}")
        if leaving.fields:
            yield leaving.node, frozenset(leaving.fields)


def _within_start(error: InvalidGraphError) -> OmniFlowError:
    """The planner's findings, with their places in the start."""
    violations = [
        Violation(field=f"start.segment.{violation.field}", description=violation.description)
        for violation in error.info.violations
    ]
    first = violations[0]
    return OmniFlowError(Reason.INVALID_GRAPH, f"{first.field}: {first.description}", violations=violations)
