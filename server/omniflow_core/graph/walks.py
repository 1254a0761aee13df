"""Walks over the nodes of a graph, whatever their groups and fields."""

from __future__ import annotations

from collections.abc import Mapping

from omniflow_core.graph.spec import SOURCE, GraphSpec


def successors_of(spec: GraphSpec) -> dict[str, set[str]]:
    """Nodes that each node, and the call, feeds."""
    successors: dict[str, set[str]] = {SOURCE: set(), **{n.name: set() for n in spec.nodes}}
    for edge in spec.edges:
        if edge.target_node:
            successors[edge.source_node].add(edge.target_node)
    return successors


def topological(spec: GraphSpec, successors: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
    """(nodes in topological order with the members of cycles at the end, those members)."""
    names = [n.name for n in spec.nodes]
    position = {name: i for i, name in enumerate(names)}
    incoming = dict.fromkeys(names, 0)
    for name in names:
        for successor in successors[name]:
            incoming[successor] += 1
    ready = [name for name in names if not incoming[name]]
    order: list[str] = []
    for name in ready:
        order.append(name)
        for successor in sorted(successors[name], key=position.__getitem__):
            incoming[successor] -= 1
            if not incoming[successor]:
                ready.append(successor)
    done = set(order)
    cyclic = [name for name in names if name not in done]
    return order + cyclic, cyclic
