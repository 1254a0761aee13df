"""Compiles a `GraphSpec` into a `GraphPlan`, or says why it cannot run.

Decides which yields start which input groups and which outputs they reach, once, so that the scheduler only follows
tuples. Knows nothing of calls, replicas or values. Paper: section 3.1 and A.1.

    text ─▶ parser ─▶ llm.typed ─▶ tokens            deliveries of parser: llm.typed {text}, asr.main {audio}
    audio ┘    └────▶ asr ─▶ llm.spoken              deliveries of asr:    llm.spoken {transcript}

A group that draws on one source is *single-source*: it runs once per yield that carries its required fields. Groups that
draw on several sources need a prefix join, which this planner does not compile yet and refuses by name.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omniflow_core.graph.findings import Finding, InvalidGraphError, nearest
from omniflow_core.graph.spec import SOURCE, EdgeSpec, FieldSpec, GraphSpec, GroupSpec, NodeSpec, Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What one yield of a source hands to one input group."""

    node: NodePlan
    group: str
    fields: tuple[tuple[str, str], ...]
    """(source field, target field) pairs; one source field may feed several."""
    required: frozenset[str]
    """Source fields without which the group cannot run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """What one yield of a source hands to one graph output."""

    source_field: str
    output: str
    order: int
    """Index among the ordered outputs, or -1 for an unordered one."""


@dataclass(slots=True, kw_only=True, eq=False)
class NodePlan:
    """A node or the call's source, with all that follows from one yield of it. Not changed once planned."""

    name: str
    spec: NodeSpec | None
    deliveries: tuple[Delivery, ...] = ()
    emissions: tuple[Emission, ...] = ()
    reaches: tuple[int, ...] = ()
    """Ordered outputs that work started by this node can still reach."""

    @property
    def loop_bound(self) -> int:
        return self.spec.loop_bound if self.spec else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPlan:
    """A graph that can run."""

    spec: GraphSpec
    source: NodePlan
    nodes: Mapping[str, NodePlan]
    ordered_outputs: tuple[str, ...]
    static_inputs: Mapping[str, FieldSpec]
    streaming_inputs: Mapping[str, FieldSpec]
    roles: frozenset[str]
    """Roles that must have a ready replica."""
    order: tuple[str, ...]
    """Nodes in topological order, loops aside."""


def plan_graph(spec: GraphSpec) -> GraphPlan:
    """Compiles the graph. Raises InvalidGraphError with every finding; linear in the number of edges."""
    findings = tuple(find_faults(spec))
    if findings:
        raise InvalidGraphError(spec.name, findings)
    return _compile(_with_groups(spec))


def find_faults(spec: GraphSpec) -> Iterator[Finding]:
    """Every finding, those that make others meaningless first and alone."""
    names = list(_duplicate_names(spec))
    if names:
        yield from names
        return
    edges = list(_broken_edges(spec))
    if edges:
        yield from edges
        return
    spec = _with_groups(spec)
    yield from _unsupported(spec)
    yield from _unfed_fields(spec)
    yield from _mixed_sources(spec)
    yield from _unreachable(spec)
    yield from _unbounded_cycles(spec)


# --- names and edges ------------------------------------------------------------------------------------------------


def _duplicate_names(spec: GraphSpec) -> Iterator[Finding]:
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


def _broken_edges(spec: GraphSpec) -> Iterator[Finding]:
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


def _with_groups(spec: GraphSpec) -> GraphSpec:
    """The graph with every edge's group written out; its edges must not be broken."""
    nodes = {n.name: n for n in spec.nodes}
    edges = []
    for edge in spec.edges:
        group = _group_of(edge, nodes[edge.target_node]) if edge.target_node else None
        edges.append(dataclasses.replace(edge, target_group=group.name if group else ""))
    return dataclasses.replace(spec, edges=tuple(edges))


def _end(node: str, field: str) -> str:
    return f"{node}.{field}" if node else field


# --- what cannot run ------------------------------------------------------------------------------------------------


def _unsupported(spec: GraphSpec) -> Iterator[Finding]:
    """Parts of the contract that this version does not run; refused rather than run wrongly."""
    for i, node in enumerate(spec.nodes):
        wanted = {
            "is_session_ordered": node.is_session_ordered,
            "activate_by_count": bool(node.activate_by_count),
            "replay": node.replay is not Replay.NONE,
            "global_parameters": bool(node.global_parameters),
        }
        for field, is_wanted in wanted.items():
            if is_wanted:
                yield Finding(
                    reason="UNSUPPORTED",
                    field=f"nodes[{i}].{field}",
                    message=f"Node {node.name!r} sets {field}, which this version does not run.",
                    fix=f"Leave {field} out.",
                    node=node.name,
                )
        if node.is_inline == bool(node.role):
            yield Finding(
                reason="ROLE_MISSING",
                field=f"nodes[{i}].role",
                message=f"Node {node.name!r} must have either a role or is_inline.",
                fix="Name the role that serves it, or set is_inline.",
                node=node.name,
            )
    for i, edge in enumerate(spec.edges):
        if edge.chunks is not None:
            yield Finding(
                reason="UNSUPPORTED",
                field=f"edges[{i}].chunks",
                message="Chunk policies are not run by this version.",
                fix="Leave chunks out.",
                node=edge.target_node,
            )


def _unfed_fields(spec: GraphSpec) -> Iterator[Finding]:
    fed = {(edge.target_node, edge.target_group, edge.target_field) for edge in spec.edges}
    fed_groups = {(node, group) for node, group, _ in fed}
    for i, node in enumerate(spec.nodes):
        has_alternative = any((node.name, group.name) in fed_groups for group in node.groups)
        for j, group in enumerate(node.groups):
            if has_alternative and (node.name, group.name) not in fed_groups:
                continue  # one complete group is enough; this graph does not use the other
            for field in group.fields:
                if not field.is_optional and (node.name, group.name, field.name) not in fed:
                    yield Finding(
                        reason="UNFED_FIELD",
                        field=f"nodes[{i}].input_groups[{j}]",
                        message=f"No edge provides the required field {node.name}.{group.name}.{field.name}.",
                        fix="Connect it, or make it optional.",
                        node=node.name,
                        group=group.name,
                    )
    for k, output in enumerate(spec.outputs):
        if not output.field.is_optional and ("", "", output.field.name) not in fed:
            yield Finding(
                reason="UNFED_FIELD",
                field=f"outputs[{k}]",
                message=f"No edge provides the graph output {output.field.name!r}.",
                fix="Connect it, or remove it.",
            )


def _mixed_sources(spec: GraphSpec) -> Iterator[Finding]:
    streaming = {p.field.name for p in spec.placeholders if p.is_streaming}
    sources: dict[tuple[str, str], set[str]] = defaultdict(set)
    kinds: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for edge in spec.edges:
        if edge.target_node:
            key = (edge.target_node, edge.target_group)
            sources[key].add(edge.source_node)
            if edge.source_node == SOURCE:
                kinds[key].add(edge.source_field in streaming)
    for (node, group), names in sources.items():
        if len(names) > 1:
            yield Finding(
                reason="UNSUPPORTED_JOIN",
                field=f"{node}.{group}",
                message=f"Group {group!r} of {node!r} draws on several sources "
                f"({', '.join(sorted(n or 'the call' for n in names))}); this version does not run joins.",
                fix="Give each source an input group of its own, or let one node carry all fields.",
                node=node,
                group=group,
            )
        if len(kinds[node, group]) > 1:
            yield Finding(
                reason="MIXED_PLACEHOLDERS",
                field=f"{node}.{group}",
                message=f"Group {group!r} of {node!r} mixes streaming and single placeholders, so no yield of the call "
                "carries all its fields.",
                fix="Make all of them streaming, or put them in separate groups.",
                node=node,
                group=group,
            )


def _unreachable(spec: GraphSpec) -> Iterator[Finding]:
    reached = _reachable_from(SOURCE, _successors(spec))
    for i, node in enumerate(spec.nodes):
        if node.name not in reached:
            yield Finding(
                reason="UNREACHABLE_NODE",
                field=f"nodes[{i}]",
                message=f"No placeholder leads to node {node.name!r}.",
                fix="Connect it, or remove it.",
                node=node.name,
            )


def _unbounded_cycles(spec: GraphSpec) -> Iterator[Finding]:
    """Every cycle must pass a node with a loop bound: without one its iterations never end and cannot be told apart."""
    bounded = {n.name for n in spec.nodes if n.loop_bound > 0}
    successors = {name: {s for s in following if s not in bounded} for name, following in _successors(spec).items()}
    _, cyclic = _topological(spec, successors)
    index = {n.name: i for i, n in enumerate(spec.nodes)}
    for name in cyclic:
        yield Finding(
            reason="UNBOUNDED_CYCLE",
            field=f"nodes[{index[name]}].loop_bound",
            message=f"Node {name!r} lies on a cycle without a bound.",
            fix="Set loop_bound on the node that the cycle returns to.",
            node=name,
        )


# --- compilation ----------------------------------------------------------------------------------------------------


def _compile(spec: GraphSpec) -> GraphPlan:
    source = NodePlan(name=SOURCE, spec=None)
    nodes = {n.name: NodePlan(name=n.name, spec=n) for n in spec.nodes}
    ordered = tuple(o.field.name for o in spec.outputs if not o.is_unordered)
    order_of = {name: i for i, name in enumerate(ordered)}
    leaving: dict[str, list[EdgeSpec]] = defaultdict(list)
    for edge in spec.edges:
        leaving[edge.source_node].append(edge)
    for plan in (source, *nodes.values()):
        plan.deliveries = tuple(_deliveries(leaving[plan.name], nodes))
        plan.emissions = tuple(
            Emission(source_field=e.source_field, output=e.target_field, order=order_of.get(e.target_field, -1))
            for e in leaving[plan.name]
            if not e.target_node
        )
    _compute_reach(source, nodes, spec)
    order, _ = _topological(spec, _successors(spec))
    return GraphPlan(
        spec=spec,
        source=source,
        nodes=nodes,
        ordered_outputs=ordered,
        static_inputs={p.field.name: p.field for p in spec.placeholders if not p.is_streaming},
        streaming_inputs={p.field.name: p.field for p in spec.placeholders if p.is_streaming},
        roles=frozenset(n.role for n in spec.nodes if n.role),
        order=tuple(order),
    )


def _deliveries(edges: list[EdgeSpec], nodes: Mapping[str, NodePlan]) -> Iterator[Delivery]:
    grouped: dict[tuple[str, str], list[EdgeSpec]] = defaultdict(list)
    for edge in edges:
        if edge.target_node:
            grouped[edge.target_node, edge.target_group].append(edge)
    for (node, group), group_edges in grouped.items():
        node_spec = nodes[node].spec
        assert node_spec is not None, "only the source has no spec"
        optional = {f.name for g in node_spec.groups if g.name == group for f in g.fields if f.is_optional}
        yield Delivery(
            node=nodes[node],
            group=group,
            fields=tuple((e.source_field, e.target_field) for e in group_edges),
            required=frozenset(e.source_field for e in group_edges if e.target_field not in optional),
        )


def _compute_reach(source: NodePlan, nodes: Mapping[str, NodePlan], spec: GraphSpec) -> None:
    """Fills `reaches` by walking back from each ordered output."""
    predecessors: dict[str, set[str]] = defaultdict(set)
    for name, following in _successors(spec).items():
        for successor in following:
            predecessors[successor].add(name)
    reach: dict[str, set[int]] = defaultdict(set)
    for plan in (source, *nodes.values()):
        for emission in plan.emissions:
            if emission.order >= 0 and emission.order not in reach[plan.name]:
                for name in _reachable_from(plan.name, predecessors):
                    reach[name].add(emission.order)
    for plan in (source, *nodes.values()):
        plan.reaches = tuple(sorted(reach[plan.name]))


def _successors(spec: GraphSpec) -> dict[str, set[str]]:
    successors: dict[str, set[str]] = {SOURCE: set(), **{n.name: set() for n in spec.nodes}}
    for edge in spec.edges:
        if edge.target_node:
            successors[edge.source_node].add(edge.target_node)
    return successors


def _reachable_from(start: str, successors: Mapping[str, set[str]]) -> set[str]:
    reached = {start}
    frontier = [start]
    while frontier:
        for name in successors.get(frontier.pop(), ()):
            if name not in reached:
                reached.add(name)
                frontier.append(name)
    return reached


def _topological(spec: GraphSpec, successors: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
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
