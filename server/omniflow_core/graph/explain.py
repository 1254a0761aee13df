"""A plan as text, for people.

graphs/twice: 4 nodes, 6 edges, 5 dependency edges
  input  x: TEXT
  call starts a.main [single source] with x->x
  node   a: test.a (inline, streaming)
    takes main [single source: the call] x
    each yield starts b.main [single source] with y->x
    each yield starts c.main [single source] with y->x
  node   j: test.j (inline)
    takes main [prefix join below each yield of a]
      route a > b gives p
      route a > c gives q
    each yield gives output out from y
  …
  output out: TEXT, ordered
  pipeline (with control.pipelines): d > e
  dependencies (5)
    call -> a.main
    …
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from omniflow_core.graph.plan import Delivery, GraphPlan, GroupPlan, JoinKind, NodePlan
from omniflow_core.graph.spec import Balance, ChunkSpec, CountTriggerSpec, NodeSpec, OnFailure, OnImpossible, Replay


def explain(plan: GraphPlan) -> str:
    """Nodes in topological order with what starts them and where their yields go; joins with anchors and routes."""
    return "\n".join(_lines(plan))


def describe_node(spec: NodeSpec) -> list[str]:
    """What is special about a node, in the words of this page."""
    marks = ["inline" if spec.is_inline else f"role {spec.role}"]
    marks += ["streaming"] if spec.is_streaming else []
    marks += ["session-ordered"] if spec.is_session_ordered else []
    marks += [f"at most {spec.loop_bound} iterations"] if spec.loop_bound else []
    marks += ["deterministic"] if spec.is_deterministic else []
    marks += ["spread"] if spec.is_spread else []
    marks += [f"balance {spec.balance.value}"] if spec.balance is not Balance.LEAST_LOADED else []
    marks += [f"cost {spec.cost_field}"] if spec.cost_field else []
    marks += [f"replay {spec.replay.value}"] if spec.replay is not Replay.NONE else []
    marks += ["skipped when incomplete"] if spec.on_impossible is OnImpossible.SKIP else []
    marks += ["skipped when it fails"] if spec.on_failure is OnFailure.SKIP else []
    marks += [f"at most {spec.timeout_s:g} s"] if spec.timeout_s is not None else []
    return marks


def describe_chunks(chunks: ChunkSpec) -> str:
    """A chunk policy, in the words of this page."""
    parts = [f"chunks of {chunks.size}"]
    parts += [f"the first of {chunks.first}"] if chunks.first not in (0, chunks.size) else []
    parts += [f"every {chunks.stride}"] if chunks.stride not in (0, chunks.size) else []
    parts += [f"after {chunks.left_context} repeated"] if chunks.left_context else []
    parts += [] if chunks.flush else ["without the rest"]
    parts += ["then on without"] if chunks.continues else []
    return ", ".join(parts)


def describe_trigger(trigger: CountTriggerSpec) -> str:
    """A trigger of a count join: how many events of which field."""
    count = trigger.constant if trigger.constant is not None else f"as many as {trigger.count_field} says"
    return f"{trigger.field}: {count}"


def _lines(plan: GraphPlan) -> Iterator[str]:
    spec = plan.spec
    edges = plan.dependency_edges
    yield f"{spec.name}: {len(spec.nodes)} nodes, {len(spec.edges)} edges, {len(edges)} dependency edges"
    for placeholder in spec.placeholders:
        marks = [placeholder.field.type]
        marks += ["optional"] if placeholder.field.is_optional else []
        marks += ["streaming"] if placeholder.is_streaming else []
        yield f"  input  {placeholder.field.name}: {', '.join(marks)}"
    yield from _yields_of(plan.source, plan, "  call")
    groups: dict[str, list[GroupPlan]] = defaultdict(list)
    for group in plan.groups:
        groups[group.node].append(group)
    for name in plan.order:
        node = plan.nodes[name]
        assert node.spec is not None, "only the source has no spec"
        yield f"  node   {name}: {node.spec.interface} ({', '.join(describe_node(node.spec))})"
        for group in groups[name]:
            yield from _inputs_of(group, node.spec)
        yield from _yields_of(node, plan, "    each yield")
    for output in spec.outputs:
        yield f"  output {output.field.name}: {output.field.type}, {'un' if output.is_unordered else ''}ordered"
    for name in plan.gates:
        yield f"  gate   {name}: one activation of a session at a time"
    for segment in plan.segments:
        names = [name for name in plan.order if plan.nodes[name].segment is segment]
        yield f"  segment on role {segment.role}: {' > '.join(names)}"
    for pipeline in plan.pipelines:
        yield f"  pipeline (with control.pipelines): {' > '.join(node.name for node in pipeline.nodes)}"
    yield f"  dependencies ({len(edges)})"
    for source, node_name, group_name in edges:
        yield f"    {source or 'call'} -> {node_name}.{group_name}"


def _inputs_of(group: GroupPlan, spec: NodeSpec) -> Iterator[str]:
    start = f"    takes {group.group}"
    if group.kind is JoinKind.SINGLE:
        chunks = f", {describe_chunks(group.chunks)}" if group.chunks else ""
        fields = ", ".join(field for route in group.routes for field in route.fields)
        yield f"{start} [single source: {group.anchor or 'the call'}{chunks}] {fields}"
        return
    if group.kind is JoinKind.PREFIX:
        yield f"{start} [prefix join below each yield of {group.anchor or 'the call'}]"
    else:
        counts = ", ".join(map(describe_trigger, spec.activate_by_count))
        yield f"{start} [count join over the whole call; {counts}]"
    for route in group.routes:
        yield f"      route {' > '.join(name or 'call' for name in route.nodes)} gives {', '.join(route.fields)}"


def _yields_of(node: NodePlan, plan: GraphPlan, label: str) -> Iterator[str]:
    for delivery in node.deliveries:
        pairs = ", ".join(f"{source}->{target}" for source, target in delivery.fields)
        yield f"{label} {_effect(delivery, plan)} with {pairs}"
    for emission in node.emissions:
        yield f"{label} gives output {emission.output} from {emission.source_field}"


def _effect(delivery: Delivery, plan: GraphPlan) -> str:
    receiver = f"{delivery.node.name}.{delivery.group}"
    match delivery.kind:
        case JoinKind.SINGLE:
            return f"starts {receiver} [single source]"
        case JoinKind.PREFIX:
            return f"joins into {receiver} [prefix join of {plan.joins[delivery.join].anchor.name or 'the call'}]"
        case JoinKind.COUNT:
            return f"counts for {receiver} [count join]"
