"""A plan as text, for people."""

from __future__ import annotations

from collections.abc import Iterator

from omniflow_core.graph.plan import GraphPlan, NodePlan


def explain(plan: GraphPlan) -> str:
    """Nodes in topological order with what starts them and where their yields go."""
    return "\n".join(_lines(plan))


def _lines(plan: GraphPlan) -> Iterator[str]:
    spec = plan.spec
    yield f"{spec.name}: {len(spec.nodes)} nodes, {len(spec.edges)} edges"
    for placeholder in spec.placeholders:
        marks = [placeholder.field.type]
        marks += ["optional"] if placeholder.field.is_optional else []
        marks += ["streaming"] if placeholder.is_streaming else []
        yield f"  input  {placeholder.field.name}: {', '.join(marks)}"
    yield from _yields_of(plan.source, "  call")
    for name in plan.order:
        node = plan.nodes[name]
        assert node.spec is not None, "only the source has no spec"
        where = "inline" if node.spec.is_inline else f"role {node.spec.role}"
        stream = ", streaming" if node.spec.is_streaming else ""
        loop = f", at most {node.loop_bound} iterations" if node.loop_bound else ""
        yield f"  node   {name}: {node.spec.interface} ({where}{stream}{loop})"
        yield from _yields_of(node, "    each yield")
    for output in spec.outputs:
        yield f"  output {output.field.name}: {output.field.type}, {'un' if output.is_unordered else ''}ordered"


def _yields_of(node: NodePlan, label: str) -> Iterator[str]:
    for delivery in node.deliveries:
        pairs = ", ".join(f"{source}->{target}" for source, target in delivery.fields)
        yield f"{label} starts {delivery.node.name}.{delivery.group} [single source] with {pairs}"
    for emission in node.emissions:
        yield f"{label} gives output {emission.output} from {emission.source_field}"
