"""What the planner must refuse a graph for: each rule as it is written, on routes found by removing nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omniflow_core.graph.spec import GroupSpec, NodeSpec
from tests.properties.flow_routes import ROOT, Kind, Routes, port_of

Verdict = tuple[str, str, str]
"""(reason, node, group); the group is empty where the whole node is meant."""

JUDGED = {
    "ANCHOR_LOST",
    "INDISTINGUISHABLE_ITERATIONS",
    "JOIN_NEVER_CLOSES",
    "MIXED_PLACEHOLDERS",
    "NO_COMMON_ORIGIN",
    "NO_UNIQUE_ANCHOR",
}


def verdicts(routes: Routes) -> set[Verdict]:
    """All refusals for unclear origins. Every node must be reachable."""
    found: set[Verdict] = set()
    for node in routes.spec.nodes:
        if node.activate_by_count:
            if routes.reaches(node.name, node.name):
                never = any(_comes_from_itself(routes, node, t.field, None) for t in node.activate_by_count)
                found.add(("JOIN_NEVER_CLOSES" if never else "INDISTINGUISHABLE_ITERATIONS", node.name, ""))
            continue
        groups = [g for g in node.groups if (node.name, g.name) in routes.edges_into]
        found.update((reason, node.name, g.name) for g in groups for reason in _of_group(routes, node, g))
        if node.is_session_ordered:
            sources = [s for g in groups for s in routes.direct(node.name, g.name)]
            if routes.anchor(sources) == ROOT or routes.anchor(sources) != routes.nearest_passed(sources):
                found.add(("NO_COMMON_ORIGIN", node.name, ""))
    return found


def has_unbounded_cycle(routes: Routes) -> bool:
    """Whether some cycle passes no node with a loop bound."""
    free = {n.name for n in routes.spec.nodes if not n.loop_bound}
    return any(_reaches_within(routes, name, name, free) for name in free)


def _of_group(routes: Routes, node: NodeSpec, group: GroupSpec) -> Iterator[str]:
    sources = routes.direct(node.name, group.name)
    if all(s.startswith(ROOT) for s in sources):
        if len(sources) > 1 and not _is_one_value_enough(routes, node, group):
            yield "MIXED_PLACEHOLDERS"
        return
    if routes.kinds[node.name, group.name] is not Kind.PREFIX:
        return
    if routes.anchor(sources) != routes.nearest_passed(sources):
        yield "ANCHOR_LOST"
    elif routes.anchor(sources) == ROOT:
        yield "NO_UNIQUE_ANCHOR"
    elif node.name in routes.feeders(node.name, group.name):
        required = [f.name for f in group.fields if not f.is_optional]
        never = any(_comes_from_itself(routes, node, name, group.name) for name in required)
        yield "JOIN_NEVER_CLOSES" if never else "INDISTINGUISHABLE_ITERATIONS"


def _is_one_value_enough(routes: Routes, node: NodeSpec, group: GroupSpec) -> bool:
    """Whether one value of a streaming placeholder can carry all that the group requires."""
    optional = {f.name for f in group.fields if f.is_optional}
    edges = [edge for _, edge in routes.edges_into[node.name, group.name]]
    ports = [port_of(routes.spec, e.source_field) for e in edges]
    required = {p for p, e in zip(ports, edges, strict=True) if e.target_field not in optional}
    return len(required) <= 1 and not any(port == "@static" for port in ports)


def _comes_from_itself(routes: Routes, node: NodeSpec, field: str, group: str | None) -> bool:
    """Whether everything that feeds the field can only be reached through the node."""
    sources = [
        edge.source_node or port_of(routes.spec, edge.source_field)
        for (name, fed), edges in routes.edges_into.items()
        for _, edge in edges
        if name == node.name and fed == (group or fed) and edge.target_field == field
    ]
    return bool(sources) and routes.is_passed(node.name, sources)


def _reaches_within(routes: Routes, start: str, target: str, allowed: Iterable[str]) -> bool:
    seen: set[str] = set()
    frontier = [start]
    while frontier:
        for name in routes.successors[frontier.pop()]:
            if name == target:
                return True
            if name in allowed and name not in seen:
                seen.add(name)
                frontier.append(name)
    return False
