"""What joins, gates and cycles must not ask for: routes that meet without a common origin, or that wait for themselves.

A prefix join groups its contributions by a yield of its anchor and waits until nothing below that yield can contribute any
more. So the anchor must exist, must be in the path of every contribution, and the join must not be among what it waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from omniflow_core.graph.anchors import ROOT, Origins, Vertex
from omniflow_core.graph.findings import Finding, nearest
from omniflow_core.graph.spec import EdgeSpec, GraphSpec, GroupSpec, NodeSpec


def unclear_joins(spec: GraphSpec, origins: Origins) -> Iterator[Finding]:
    """Groups whose contributions could not be told apart or would be waited for for ever."""
    for i, node in enumerate(spec.nodes):
        if node.activate_by_count or not origins.is_reached(node.name):
            continue
        for j, group in enumerate(node.groups):
            sources = origins.sources.get((node.name, group.name), [])
            if len(sources) > 1 and origins.are_reached(sources):
                path = f"nodes[{i}].input_groups[{j}]"
                if all(origins.name_of(s) == "" for s in sources):
                    yield from _mixed_placeholders(spec, node, group, path)
                else:
                    yield from _unclear_join(spec, origins, node, group, path)


def _mixed_placeholders(spec: GraphSpec, node: NodeSpec, group: GroupSpec, path: str) -> Iterator[Finding]:
    """A group that draws on placeholders alone runs once per yield of the call; one value of a streaming input is one."""
    streaming = {p.field.name for p in spec.placeholders if p.is_streaming}
    optional = {f.name for f in group.fields if f.is_optional}
    edges = [e for e in spec.edges if (e.target_node, e.target_group) == (node.name, group.name)]
    required = {e.source_field if e.source_field in streaming else "" for e in edges if e.target_field not in optional}
    has_single = any(e.source_field not in streaming for e in edges)
    if len(required) > 1 or has_single:
        yield Finding(
            reason="MIXED_PLACEHOLDERS",
            field=path,
            message=f"Group {group.name!r} of {node.name!r} draws on {_listed(e.source_field for e in edges)}, whose values "
            "come one by one, so no yield of the call carries all its fields.",
            fix="Make all of them single placeholders, or put each streaming one in a group of its own.",
            node=node.name,
            group=group.name,
        )


def _unclear_join(spec: GraphSpec, origins: Origins, node: NodeSpec, group: GroupSpec, path: str) -> Iterator[Finding]:
    sources = origins.sources[node.name, group.name]
    anchor = origins.anchor(sources)
    drawn = _listed(origins.name_of(s) or "the call" for s in sources)
    is_lost = origins.is_lost(sources)
    if anchor == ROOT or is_lost:
        yield Finding(
            reason="ANCHOR_LOST" if is_lost else "NO_UNIQUE_ANCHOR",
            field=path,
            message=f"Group {group.name!r} of {node.name!r} joins {drawn}, "
            + (
                "but a count join on the way gathers from the whole call, so what it gives can no longer be told apart "
                "by the origin that they share."
                if is_lost
                else "which share no origin: nothing says which of their yields belong together."
            ),
            fix="Join before the count join, or make this node a count join (activate_by_count)."
            if is_lost
            else "Feed both through one node that yields their inputs together, give each source an input group of its "
            "own, or declare counts (activate_by_count).",
            node=node.name,
            group=group.name,
        )
        return
    vertex = origins.vertex_of(node.name)
    if vertex in origins.between(anchor, sources):
        yield _own_input(spec, origins, node, group, path, origins.name_of(anchor) or "the call")


def _own_input(spec: GraphSpec, origins: Origins, node: NodeSpec, group: GroupSpec, path: str, anchor: str) -> Finding:
    """The join lies on a route to itself, below one and the same yield of its anchor."""
    never = _fed_only_by_itself(spec, origins, node, {f.name for f in group.fields if not f.is_optional}, group.name)
    if never:
        return Finding(
            reason="JOIN_NEVER_CLOSES",
            field=path,
            message=f"Group {group.name!r} of {node.name!r} needs {_listed(never)}, which comes only after it has run.",
            fix="Give the input that comes back a group of its own, so that the first run does not wait for it.",
            node=node.name,
            group=group.name,
        )
    return Finding(
        reason="INDISTINGUISHABLE_ITERATIONS",
        field=path,
        message=f"What {node.name!r} gives comes back into its group {group.name!r} below the same yield of {anchor}, so "
        "the iterations of the cycle cannot be told apart.",
        fix=f"Let the cycle return to {anchor}, or give the input that comes back a group of its own.",
        node=node.name,
        group=group.name,
    )


def _fed_only_by_itself(
    spec: GraphSpec, origins: Origins, node: NodeSpec, fields: set[str], group: str | None
) -> list[str]:
    """Those of the fields that only sources provide which the node itself dominates."""
    vertex = origins.vertex_of(node.name)
    feeding: dict[str, list[Vertex]] = {}
    for edge in spec.edges:
        if edge.target_node == node.name and edge.target_field in fields and group in (None, edge.target_group):
            feeding.setdefault(edge.target_field, []).append(origins.source_of(edge))
    return sorted(f for f, sources in feeding.items() if all(origins.dominates(vertex, s) for s in sources))


def unclear_gates(spec: GraphSpec, origins: Origins) -> Iterator[Finding]:
    """Session-ordered nodes whose activations have no order."""
    for i, node in enumerate(spec.nodes):
        if not node.is_session_ordered or node.activate_by_count or not origins.is_reached(node.name):
            continue
        sources = [s for (name, _), vertices in origins.sources.items() if name == node.name for s in vertices]
        if origins.are_reached(sources) and (origins.anchor(sources) == ROOT or origins.is_lost(sources)):
            yield Finding(
                reason="NO_COMMON_ORIGIN",
                field=f"nodes[{i}].is_session_ordered",
                message=f"Node {node.name!r} is session-ordered, but its inputs ({_listed(_source_names(spec, node.name))}) "
                "share no origin whose yields would order them.",
                fix="Feed them through one node, or do without session order.",
                node=node.name,
            )


def unclear_counts(spec: GraphSpec, origins: Origins) -> Iterator[Finding]:
    """Count joins whose counts, triggers or companions could never come, or only by chance."""
    feeding: dict[str, list[EdgeSpec]] = defaultdict(list)
    for edge in spec.edges:
        feeding[edge.target_node].append(edge)
    for i, node in enumerate(spec.nodes):
        if node.activate_by_count:
            yield from _unclear_count(spec, origins, node, i, feeding[node.name])


def _unclear_count(
    spec: GraphSpec, origins: Origins, node: NodeSpec, index: int, edges: list[EdgeSpec]
) -> Iterator[Finding]:
    connected = {e.target_field for e in edges}
    types = {f.name: f.type for g in node.groups for f in g.fields}
    path = f"nodes[{index}].activate_by_count"
    has_missing = False
    for k, trigger in enumerate(node.activate_by_count):
        wanted = [("field", trigger.field)]
        if trigger.constant is None:
            wanted.append(("count_field", trigger.count_field))
        for what, name in wanted:
            if name in types and name in connected:
                continue
            has_missing = True
            yield Finding(
                reason="MISSING_COUNT_SOURCE",
                field=f"{path}[{k}].{what}",
                message=f"No edge provides {name!r}, which is "
                + (
                    "a trigger."
                    if what == "field"
                    else f"to give the count of {trigger.field!r}."
                    if name
                    else f"empty, so {trigger.field!r} has no count."
                )
                if name in types or not name
                else f"Node {node.name!r} has no input field {name!r}.",
                fix="Connect it, or give a constant count." if name in types or not name else nearest(name, types),
                node=node.name,
            )
        if trigger.constant is None and types.get(trigger.count_field, "JSON") != "JSON":
            yield Finding(
                reason="TYPE_MISMATCH",
                field=f"{path}[{k}].count_field",
                message=f"The count of {trigger.field!r} comes from {trigger.count_field!r}, which is "
                f"{types[trigger.count_field]}, not JSON.",
                fix="Give the count as a JSON integer.",
                node=node.name,
            )
    if not has_missing:
        yield from _unclear_companions(node, index, edges)
        if origins.is_reached(node.name) and origins.is_cyclic(node.name):
            yield _count_on_cycle(spec, origins, node, path)


def _unclear_companions(node: NodeSpec, index: int, edges: list[EdgeSpec]) -> Iterator[Finding]:
    triggers = {t.field for t in node.activate_by_count}
    counts = {t.count_field for t in node.activate_by_count if t.constant is None}
    for j, group in enumerate(node.groups):
        fed = {e.target_field for e in edges if e.target_group == group.name}
        companions = [f for f in group.fields if f.name in fed and f.name not in triggers and f.name not in counts]
        for field in companions:
            if field.is_optional:
                yield Finding(
                    reason="OPTIONAL_COMPANION",
                    field=f"nodes[{index}].input_groups[{j}]",
                    message=f"{node.name}.{group.name}.{field.name} is optional and has no count, so whether it had come "
                    "when the join fires would be chance.",
                    fix="Make the field required, give it a count, or do not connect it.",
                    node=node.name,
                    group=group.name,
                )
            elif not fed & triggers:
                yield Finding(
                    reason="COMPANION_WITHOUT_TRIGGER",
                    field=f"nodes[{index}].input_groups[{j}]",
                    message=f"{node.name}.{group.name}.{field.name} accompanies the triggers of its group, of which none is "
                    "connected, so the group would select nothing.",
                    fix=f"Connect a trigger of the group ({_listed(triggers)}), or give {field.name!r} a count.",
                    node=node.name,
                    group=group.name,
                )


def _count_on_cycle(spec: GraphSpec, origins: Origins, node: NodeSpec, path: str) -> Finding:
    never = _fed_only_by_itself(spec, origins, node, {t.field for t in node.activate_by_count}, None)
    return Finding(
        reason="JOIN_NEVER_CLOSES" if never else "INDISTINGUISHABLE_ITERATIONS",
        field=path,
        message=f"Count join {node.name!r} needs {_listed(never)}, which comes only after it has fired."
        if never
        else f"Count join {node.name!r} lies on a cycle, but it gathers from the whole call and fires once, so a second "
        "iteration could not be told apart.",
        fix="Take the count join out of the cycle.",
        node=node.name,
    )


def _source_names(spec: GraphSpec, node: str) -> Iterator[str]:
    return (e.source_node or e.source_field for e in spec.edges if e.target_node == node)


def _listed(names: object) -> str:
    return ", ".join(dict.fromkeys(map(str, names)))  # type: ignore[call-overload]
