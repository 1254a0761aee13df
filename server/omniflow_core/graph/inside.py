"""The graph inside a segment, as the replica that iterates it sees it.

Its entry is fed by one placeholder in the place of all that feeds it outside; what leaves the segment goes nowhere. Since
everything that reaches a node of the segment passes the entry, dominators inside are those of the whole graph, and so joins
have the same anchors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from omniflow_core.graph.findings import Finding, InvalidGraphError
from omniflow_core.graph.plan import GraphPlan, plan_graph
from omniflow_core.graph.spec import EdgeSpec, FieldSpec, GraphSpec, GroupSpec, NodeSpec, PlaceholderSpec

START = "-start-"
"""Placeholder, group and field that stand for what the entry is given from outside. No name of a user is like this."""
_FIELD = FieldSpec(name=START, type="SIGNAL")


def segment_graph(nodes: Sequence[NodeSpec], edges: Sequence[EdgeSpec], entry: str) -> GraphPlan:
    """Plans it. Raises InvalidGraphError for nodes and edges that are no segment of `entry`."""
    if all(node.name != entry for node in nodes):
        finding = Finding(
            reason="UNKNOWN_NODE",
            field="segment.nodes",
            message=f"The segment does not have the node {entry!r} that is started.",
            fix="Start the entry of the segment.",
            node=entry,
        )
        raise InvalidGraphError("segment", (finding,))
    looping = {edge.target_group for edge in edges if edge.target_node == entry}
    return plan_graph(
        GraphSpec(
            name="segment",
            nodes=tuple(_as_entry(node, looping) if node.name == entry else node for node in nodes),
            edges=(
                *edges,
                EdgeSpec(source_node="", source_field=START, target_node=entry, target_group=START, target_field=START),
            ),
            placeholders=(PlaceholderSpec(field=_FIELD),),
            outputs=(),
        )
    )


def _as_entry(node: NodeSpec, looping: set[str]) -> NodeSpec:
    """The entry with the groups that are fed inside, and one for its start: gates and counts are the control plane's."""
    groups = tuple(group for group in node.groups if group.name in looping)
    return dataclasses.replace(
        node,
        groups=(GroupSpec(name=START, fields=(_FIELD,)), *groups),
        activate_by_count=(),
        is_session_ordered=False,
    )
