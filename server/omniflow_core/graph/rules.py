"""What a graph must not ask for: everything that could never run, found before any call is accepted.

Each rule yields findings that name interface, group and field and say what would fix them. They may take for granted that
every name resolves (`references`). Rules on single nodes and edges are here; those on how routes meet are in `join_rules`.
"""

from __future__ import annotations

from collections.abc import Iterator

from omniflow_core.graph.anchors import Origins
from omniflow_core.graph.findings import Finding, nearest
from omniflow_core.graph.spec import Balance, ChunkSpec, GraphSpec
from omniflow_core.graph.walks import cycles, successors_of


def misplaced_nodes(spec: GraphSpec) -> Iterator[Finding]:
    """Nodes that nobody would serve, and global parameters that the graph does not declare."""
    for i, node in enumerate(spec.nodes):
        if node.is_inline == bool(node.role):
            yield Finding(
                reason="ROLE_MISSING",
                field=f"nodes[{i}].role",
                message=f"Node {node.name!r} must have either a role or is_inline.",
                fix="Name the role that serves it, or set is_inline.",
                node=node.name,
            )
        for k, name in enumerate(node.global_parameters):
            if name not in spec.global_parameters:
                yield Finding(
                    reason="UNKNOWN_GLOBAL_PARAMETER",
                    field=f"nodes[{i}].global_parameters[{k}]",
                    message=f"The graph has no global parameter {name!r}.",
                    fix=nearest(name, spec.global_parameters),
                    node=node.name,
                )


def unusable_costs(spec: GraphSpec) -> Iterator[Finding]:
    """Cost fields that no input group has, or that no policy would look at."""
    for i, node in enumerate(spec.nodes):
        if not node.cost_field:
            continue
        known = {field.name for group in node.groups for field in group.fields}
        if node.cost_field not in known:
            yield Finding(
                reason="UNKNOWN_FIELD",
                field=f"nodes[{i}].cost_field",
                message=f"No input group of {node.name!r} has the field {node.cost_field!r} that tells its cost.",
                fix=nearest(node.cost_field, known),
                node=node.name,
            )
        if node.balance is not Balance.COST_AWARE:
            yield Finding(
                reason="UNUSED_COST_FIELD",
                field=f"nodes[{i}].cost_field",
                message=f"Node {node.name!r} is balanced by {node.balance.value}, which does not look at costs.",
                fix="Balance it by cost_aware, or name no cost field.",
                node=node.name,
            )


def unfed_fields(spec: GraphSpec) -> Iterator[Finding]:
    """Required fields and outputs that no edge provides."""
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


def unreachable_nodes(spec: GraphSpec, origins: Origins) -> Iterator[Finding]:
    """Nodes that no input of the call leads to: the first ones, as those behind them are mended with them."""
    lost = {n.name for n in spec.nodes if not origins.is_reached(n.name)}
    fed_by_lost = {e.target_node for e in spec.edges if e.source_node in lost and e.source_node != e.target_node}
    first = lost - fed_by_lost or lost
    for i, node in enumerate(spec.nodes):
        if node.name in first:
            yield Finding(
                reason="UNREACHABLE_NODE",
                field=f"nodes[{i}]",
                message=f"No input of the call leads to node {node.name!r}.",
                fix="Connect it, or remove it.",
                node=node.name,
            )


def unbounded_cycles(spec: GraphSpec) -> Iterator[Finding]:
    """Every cycle must pass a node with a loop bound: without one its iterations never end."""
    bounded = {n.name for n in spec.nodes if n.loop_bound > 0}
    successors = {name: {s for s in following if s not in bounded} for name, following in successors_of(spec).items()}
    index = {n.name: i for i, n in enumerate(spec.nodes)}
    for members in cycles(index, successors):
        inside = set(members)
        entered = [e.target_node for e in spec.edges if e.target_node in inside and e.source_node not in inside]
        head = min(entered or members, key=index.__getitem__)
        yield Finding(
            reason="UNBOUNDED_CYCLE",
            field=f"nodes[{index[head]}].loop_bound",
            message=f"The cycle of {', '.join(sorted(members, key=index.__getitem__))} has no bound, so it need never end.",
            fix=f"Set loop_bound on {head!r} to the most iterations that a call may run, at least 1.",
            node=head,
        )


def unusable_chunks(spec: GraphSpec) -> Iterator[Finding]:
    """Chunk policies that give no chunks, or that a group cannot follow."""
    nodes = {n.name: n for n in spec.nodes}
    streaming = {p.field.name for p in spec.placeholders if p.is_streaming}
    policies: dict[tuple[str, str], ChunkSpec | None] = {}
    sources: dict[tuple[str, str], set[str]] = {}
    for edge in spec.edges:
        sources.setdefault((edge.target_node, edge.target_group), set()).add(edge.source_node)
    for i, edge in enumerate(spec.edges):
        key = (edge.target_node, edge.target_group)
        known = policies.setdefault(key, edge.chunks)
        where = f"{edge.target_node}.{edge.target_group}" if edge.target_node else f"output {edge.target_field!r}"
        if edge.target_node and known != edge.chunks:
            yield Finding(
                reason="MIXED_CHUNKS",
                field=f"edges[{i}].chunks",
                message=f"The edges into {where} have different chunk policies, so no chunk has all its fields.",
                fix="Give every edge of the group the same policy, or the fields groups of their own.",
                node=edge.target_node,
                group=edge.target_group,
            )
        if edge.chunks is None:
            continue
        if not edge.target_node or len(sources[key]) > 1 or nodes[edge.target_node].activate_by_count:
            yield Finding(
                reason="CHUNKS_IN_JOIN",
                field=f"edges[{i}].chunks",
                message=f"{where} is no input group with a single source, and only such a group takes chunks.",
                fix="Give the chunks a group, or a node, of their own.",
                node=edge.target_node,
                group=edge.target_group,
            )
            continue
        problem = _problem_of(edge.chunks)
        if not edge.source_node and edge.source_field not in streaming:
            problem = f"the input {edge.source_field!r} has one value; make it streaming"
        group = next(g for g in nodes[edge.target_node].groups if g.name == edge.target_group)
        if not problem and edge.chunks.continues:
            if any(not f.is_optional for f in group.fields):
                problem = "continue needs a group whose fields are optional, since it goes on without them"
            elif not nodes[edge.target_node].loop_bound:
                problem = f"continue needs a loop_bound on {edge.target_node!r}, which says when it must stop"
        if problem:
            yield Finding(
                reason="INVALID_CHUNKS",
                field=f"edges[{i}].chunks",
                message=f"The chunk policy into {where} cannot be followed: {problem}.",
                fix="Change the policy; the guide to graphs draws what each number means.",
                node=edge.target_node,
                group=edge.target_group,
            )


def _problem_of(chunks: ChunkSpec) -> str:
    if chunks.size <= 0:
        return "size must be at least 1"
    if min(chunks.first, chunks.stride, chunks.left_context) < 0:
        return "first, stride and left_context must not be negative"
    return ""
