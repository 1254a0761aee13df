"""Whether every name in a definition means exactly one thing, and the two ends of every edge fit each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from omniflow_core.graph.findings import Finding, nearest
from omniflow_core.graph.spec import EdgeSpec, FieldSpec, GraphSpec, GroupSpec, NodeSpec


def duplicate_names(spec: GraphSpec) -> Iterator[Finding]:
    """Names that are missing or used twice where they must tell things apart."""
    scopes: list[tuple[str, list[str]]] = [
        ("nodes", [n.name for n in spec.nodes]),
        ("placeholders", [p.field.name for p in spec.placeholders]),
        ("outputs", [o.field.name for o in spec.outputs]),
    ]
    for i, node in enumerate(spec.nodes):
        scopes.append((f"nodes[{i}].outputs", [f.name for f in node.outputs]))
        scopes.append((f"nodes[{i}].input_groups", [g.name for g in node.groups]))
        scopes.extend(
            (f"nodes[{i}].input_groups[{j}].fields", [f.name for f in g.fields]) for j, g in enumerate(node.groups)
        )
    for path, names in scopes:
        seen: set[str] = set()
        for k, name in enumerate(names):
            if not name or name in seen:
                yield Finding(
                    reason="DUPLICATE_NAME" if name else "MISSING_NAME",
                    field=f"{path}[{k}].name",
                    message=f"{name!r} is used twice in {path}." if name else f"{path}[{k}] has no name.",
                    fix="Give each its own name.",
                )
            seen.add(name)


def broken_edges(spec: GraphSpec) -> Iterator[Finding]:
    """Edges whose ends do not exist, are not clear, or differ in type."""
    nodes = {n.name: n for n in spec.nodes}
    placeholders = {p.field.name: p.field for p in spec.placeholders}
    outputs = {o.field.name: o.field for o in spec.outputs}
    for i, edge in enumerate(spec.edges):
        source = _lookup(edge.source_node, edge.source_field, nodes, placeholders, f"edges[{i}].source")
        target = _target_field(edge, nodes, outputs, f"edges[{i}].target")
        for end in (source, target):
            if isinstance(end, Finding):
                yield end
        if isinstance(source, FieldSpec) and isinstance(target, FieldSpec) and source.type != target.type:
            yield Finding(
                reason="TYPE_MISMATCH",
                field=f"edges[{i}]",
                message=f"{_end(edge.source_node, edge.source_field)} is {source.type}, but "
                f"{_end(edge.target_node, edge.target_field)} takes {target.type}.",
                fix="Connect fields of one type, or put a node between them that converts.",
                node=edge.target_node,
                group=edge.target_group,
            )


def _lookup(
    node: str, field: str, nodes: Mapping[str, NodeSpec], top: Mapping[str, FieldSpec], path: str
) -> FieldSpec | Finding:
    """The source field that an edge names, or what is wrong with the name."""
    if node and node not in nodes:
        return Finding(
            reason="UNKNOWN_NODE", field=f"{path}_node", message=f"There is no node {node!r}.", fix=nearest(node, nodes)
        )
    known = {f.name: f for f in nodes[node].outputs} if node else top
    if field not in known:
        owner = f"Node {node!r} has no output" if node else "The graph has no placeholder"
        return Finding(
            reason="UNKNOWN_FIELD",
            field=f"{path}_field",
            message=f"{owner} {field!r}.",
            fix=nearest(field, known),
            node=node,
        )
    return known[field]


def _target_field(
    edge: EdgeSpec, nodes: Mapping[str, NodeSpec], outputs: Mapping[str, FieldSpec], path: str
) -> FieldSpec | Finding:
    if not edge.target_node:
        if edge.target_field in outputs:
            return outputs[edge.target_field]
        return Finding(
            reason="UNKNOWN_FIELD",
            field=f"{path}_field",
            message=f"The graph has no output {edge.target_field!r}.",
            fix=nearest(edge.target_field, outputs),
        )
    if edge.target_node not in nodes:
        return Finding(
            reason="UNKNOWN_NODE",
            field=f"{path}_node",
            message=f"There is no node {edge.target_node!r}.",
            fix=nearest(edge.target_node, nodes),
        )
    node = nodes[edge.target_node]
    group = _group_of(edge, node)
    if group is None:
        having = [g.name for g in node.groups if any(f.name == edge.target_field for f in g.fields)]
        return Finding(
            reason="UNKNOWN_GROUP" if edge.target_group else "AMBIGUOUS_GROUP" if having else "UNKNOWN_FIELD",
            field=f"{path}_group" if edge.target_group or having else f"{path}_field",
            message=f"Node {node.name!r} has no input group {edge.target_group!r}."
            if edge.target_group
            else f"{len(having) or 'No'} input groups of {node.name!r} have a field {edge.target_field!r}.",
            fix=nearest(edge.target_group, [g.name for g in node.groups])
            if edge.target_group
            else f"Name one of the groups {', '.join(having)}."
            if having
            else nearest(edge.target_field, [f.name for g in node.groups for f in g.fields]),
            node=node.name,
            group=edge.target_group,
        )
    known = {f.name: f for f in group.fields}
    if edge.target_field not in known:
        return Finding(
            reason="UNKNOWN_FIELD",
            field=f"{path}_field",
            message=f"Group {group.name!r} of {node.name!r} has no field {edge.target_field!r}.",
            fix=nearest(edge.target_field, known),
            node=node.name,
            group=group.name,
        )
    return known[edge.target_field]


def _group_of(edge: EdgeSpec, node: NodeSpec) -> GroupSpec | None:
    """The group an edge means: the named one, or the only one that has the field."""
    if edge.target_group:
        return next((g for g in node.groups if g.name == edge.target_group), None)
    having = [g for g in node.groups if any(f.name == edge.target_field for f in g.fields)]
    return having[0] if len(having) == 1 else None


def with_groups(spec: GraphSpec) -> GraphSpec:
    """The graph with every edge's group written out; its edges must not be broken."""
    nodes = {n.name: n for n in spec.nodes}
    edges = []
    for edge in spec.edges:
        group = _group_of(edge, nodes[edge.target_node]) if edge.target_node else None
        edges.append(dataclasses.replace(edge, target_group=group.name if group else ""))
    return dataclasses.replace(spec, edges=tuple(edges))


def _end(node: str, field: str) -> str:
    return f"{node}.{field}" if node else field
