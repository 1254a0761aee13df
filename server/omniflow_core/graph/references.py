"""Whether every name in a definition means exactly one thing, and the two ends of every edge fit each other."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator

from omniflow_core.graph.findings import Finding, nearest
from omniflow_core.graph.spec import EdgeSpec, FieldSpec, GraphSpec


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


class _Names:
    """What can be named in a graph, looked up once."""

    def __init__(self, spec: GraphSpec) -> None:
        self.nodes = {n.name: n for n in spec.nodes}
        self.placeholders = {p.field.name: p.field for p in spec.placeholders}
        self.results = {o.field.name: o.field for o in spec.outputs}
        self.outputs = {n.name: {f.name: f for f in n.outputs} for n in spec.nodes}
        self.groups = {n.name: {g.name: {f.name: f for f in g.fields} for g in n.groups} for n in spec.nodes}
        self.having: dict[tuple[str, str], list[str]] = defaultdict(list)
        """Input groups of a node that have a field."""
        for node in spec.nodes:
            for group in node.groups:
                for field in group.fields:
                    self.having[node.name, field.name].append(group.name)

    def group_of(self, edge: EdgeSpec) -> str | None:
        """The group an edge means: the named one, or the only one that has the field."""
        if edge.target_group:
            return edge.target_group if edge.target_group in self.groups[edge.target_node] else None
        having = self.having.get((edge.target_node, edge.target_field), [])
        return having[0] if len(having) == 1 else None


def broken_edges(spec: GraphSpec) -> Iterator[Finding]:
    """Edges whose ends do not exist, are not clear, or differ in type."""
    names = _Names(spec)
    for i, edge in enumerate(spec.edges):
        source = _source_field(edge, names, f"edges[{i}].source")
        target = _target_field(edge, names, f"edges[{i}].target")
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


def _source_field(edge: EdgeSpec, names: _Names, path: str) -> FieldSpec | Finding:
    """The source field that an edge names, or what is wrong with the name."""
    node, field = edge.source_node, edge.source_field
    if node and node not in names.nodes:
        return _unknown_node(node, names, path)
    known = names.outputs[node] if node else names.placeholders
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


def _target_field(edge: EdgeSpec, names: _Names, path: str) -> FieldSpec | Finding:
    """The target field that an edge names, or what is wrong with the name."""
    node, field = edge.target_node, edge.target_field
    if not node:
        if field in names.results:
            return names.results[field]
        return Finding(
            reason="UNKNOWN_FIELD",
            field=f"{path}_field",
            message=f"The graph has no output {field!r}.",
            fix=nearest(field, names.results),
        )
    if node not in names.nodes:
        return _unknown_node(node, names, path)
    group = names.group_of(edge)
    if group is None:
        return _unclear_group(edge, names, path)
    known = names.groups[node][group]
    if field not in known:
        return Finding(
            reason="UNKNOWN_FIELD",
            field=f"{path}_field",
            message=f"Group {group!r} of {node!r} has no field {field!r}.",
            fix=nearest(field, known),
            node=node,
            group=group,
        )
    return known[field]


def _unknown_node(node: str, names: _Names, path: str) -> Finding:
    return Finding(
        reason="UNKNOWN_NODE",
        field=f"{path}_node",
        message=f"There is no node {node!r}.",
        fix=nearest(node, names.nodes),
    )


def _unclear_group(edge: EdgeSpec, names: _Names, path: str) -> Finding:
    node, field = edge.target_node, edge.target_field
    groups = names.groups[node]
    if edge.target_group:
        return Finding(
            reason="UNKNOWN_GROUP",
            field=f"{path}_group",
            message=f"Node {node!r} has no input group {edge.target_group!r}.",
            fix=nearest(edge.target_group, groups),
            node=node,
            group=edge.target_group,
        )
    having = names.having.get((node, field), [])
    return Finding(
        reason="AMBIGUOUS_GROUP" if having else "UNKNOWN_FIELD",
        field=f"{path}_group" if having else f"{path}_field",
        message=f"{len(having) or 'No'} input groups of {node!r} have a field {field!r}.",
        fix=f"Name one of the groups {', '.join(having)}."
        if having
        else nearest(field, [name for fields in groups.values() for name in fields]),
        node=node,
    )


def with_groups(spec: GraphSpec) -> GraphSpec:
    """The graph with every edge's group written out; its edges must not be broken."""
    names = _Names(spec)
    edges = []
    for edge in spec.edges:
        group = names.group_of(edge) if edge.target_node else None
        edges.append(
            edge if edge.target_group == (group or "") else dataclasses.replace(edge, target_group=group or "")
        )
    return dataclasses.replace(spec, edges=tuple(edges))


def _end(node: str, field: str) -> str:
    return f"{node}.{field}" if node else field
