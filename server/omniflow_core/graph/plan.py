"""Compiles a `GraphSpec` into a `GraphPlan`, or says why it cannot run.

Decides which yields start which input groups, which meet in which joins, and which outputs they reach, once, so that the
scheduler only follows tuples. Knows nothing of calls, replicas or values. Paper: section 3.1 and A.1.

    text ─▶ parser ─▶ llm.typed ─▶ tokens            deliveries of parser: llm.typed {text}, asr.main {audio}
    audio ┘    └────▶ asr ─▶ llm.spoken              deliveries of asr:    llm.spoken {transcript}

A group that draws on one source runs once per yield that carries its required fields. One that draws on several is a prefix
join below a yield of its anchor (`anchors`). All groups of a node with `activate_by_count` together are a count join.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from omniflow_core.graph.anchors import Origins
from omniflow_core.graph.findings import Finding, InvalidGraphError
from omniflow_core.graph.join_rules import unclear_counts, unclear_gates, unclear_joins
from omniflow_core.graph.pipelines import find_pipelines
from omniflow_core.graph.references import broken_edges, duplicate_names, with_groups
from omniflow_core.graph.routing import (
    CountFacetPlan,
    CountPlan,
    Delivery,
    Emission,
    FieldRoute,
    GraphPlan,
    GroupPlan,
    JoinKind,
    JoinPlan,
    NodePlan,
    PipelinePlan,
    RoutePlan,
    SegmentPlan,
)
from omniflow_core.graph.rules import (
    misplaced_nodes,
    unbounded_cycles,
    unfed_fields,
    unreachable_nodes,
    unusable_chunks,
    unusable_costs,
)
from omniflow_core.graph.segments import find_segments
from omniflow_core.graph.spec import SOURCE, EdgeSpec, GraphSpec, NodeSpec, OutputSpec
from omniflow_core.graph.walks import successors_of, topological

__all__ = [
    "CountFacetPlan",
    "CountPlan",
    "Delivery",
    "Emission",
    "FieldRoute",
    "Finding",
    "GraphPlan",
    "GroupPlan",
    "InvalidGraphError",
    "JoinKind",
    "JoinPlan",
    "NodePlan",
    "PipelinePlan",
    "RoutePlan",
    "SegmentPlan",
    "find_faults",
    "plan_graph",
]


def plan_graph(spec: GraphSpec) -> GraphPlan:
    """Compiles the graph. Raises InvalidGraphError with every finding."""
    findings = tuple(find_faults(spec))
    if findings:
        raise InvalidGraphError(spec.name, findings)
    return _Compiler(with_groups(spec)).plan()


def find_faults(spec: GraphSpec) -> Iterator[Finding]:
    """Every finding, those that make others meaningless first and alone."""
    names = list(duplicate_names(spec))
    if names:
        yield from names
        return
    edges = list(broken_edges(spec))
    if edges:
        yield from edges
        return
    spec = with_groups(spec)
    origins = Origins(spec)
    yield from misplaced_nodes(spec)
    yield from unusable_costs(spec)
    yield from unfed_fields(spec)
    yield from unusable_chunks(spec)
    yield from unclear_joins(spec, origins)
    yield from unclear_counts(spec, origins)
    yield from unclear_gates(spec, origins)
    yield from unreachable_nodes(spec, origins)
    yield from unbounded_cycles(spec)


class _Compiler:
    """One compilation; the graph has no faults and its edges name their groups."""

    def __init__(self, spec: GraphSpec) -> None:
        self._spec = spec
        self._origins = Origins(spec)
        self._source = NodePlan(name=SOURCE, spec=None, index=-1)
        self._nodes = {n.name: NodePlan(name=n.name, spec=n, index=i) for i, n in enumerate(spec.nodes)}
        self._plans = (self._source, *self._nodes.values())
        self._leaving: dict[str, list[tuple[int, EdgeSpec]]] = defaultdict(list)
        for i, edge in enumerate(spec.edges):
            self._leaving[edge.source_node].append((i, edge))
        self._fed = {(e.target_node, e.target_group, e.target_field) for e in spec.edges}
        self._group_of = {
            (n.name, g.name): (i, frozenset(f.name for f in g.fields if f.is_optional))
            for n in spec.nodes
            for i, g in enumerate(n.groups)
        }
        """Index and optional fields of each input group."""
        order, _ = topological(spec, successors_of(spec))
        self._order = tuple(order)
        self._ordered = tuple(o.field.name for o in spec.outputs if not o.is_unordered and self._can_overtake(o))
        self._order_of = {name: i for i, name in enumerate(self._ordered)}
        self._gates = tuple(n.name for n in spec.nodes if n.is_session_ordered and not n.activate_by_count)

    def _can_overtake(self, output: OutputSpec) -> bool:
        """Several activations give to it. What one gives is in order by itself."""
        feeding = {e.source_node for e in self._spec.edges if not e.target_node and e.target_field == output.field.name}
        return len(feeding) > 1 or any(name and not self._origins.runs_once(name) for name in feeding)

    def plan(self) -> GraphPlan:
        spec = self._spec
        joins = self._joins()
        for plan in self._plans:
            self._fill(plan, joins)
        for i, name in enumerate(self._gates):
            self._nodes[name].gate = len(self._ordered) + i
        self._fill_reaches()
        segments = tuple(find_segments(spec, self._origins.dominators))
        self._fill_segments(segments, joins)
        pipelines = tuple(find_pipelines(spec, self._origins, segments))
        for pipeline in pipelines:
            self._nodes[pipeline.entry].pipeline = pipeline
        return GraphPlan(
            spec=spec,
            source=self._source,
            nodes=self._nodes,
            groups=tuple(self._groups(joins)),
            joins=tuple(joins.values()),
            count_joins=tuple(self._nodes[name] for name in self._order if self._nodes[name].count is not None),
            ordered_outputs=self._ordered,
            gates=self._gates,
            static_inputs={p.field.name: p.field for p in spec.placeholders if not p.is_streaming},
            streaming_inputs={p.field.name: p.field for p in spec.placeholders if p.is_streaming},
            roles=frozenset(n.role for n in spec.nodes if n.role),
            order=self._order,
            segments=segments,
            pipelines=pipelines,
        )

    # --- joins ------------------------------------------------------------------------------------------------------

    def _joins(self) -> dict[tuple[str, str], JoinPlan]:
        """Prefix joins, with what is tracked for each written into the nodes."""
        joins: dict[tuple[str, str], JoinPlan] = {}
        tracks: dict[str, list[int]] = defaultdict(list)
        anchored: dict[str, list[JoinPlan]] = defaultdict(list)
        for name in self._order:
            node = self._nodes[name]
            assert node.spec is not None, "only the source has no spec"
            for group_index, group in enumerate(node.spec.groups):
                sources = self._origins.sources.get((name, group.name), [])
                if node.spec.activate_by_count or not self._is_join(sources):
                    continue
                anchor = self._origins.anchor(sources)
                join = JoinPlan(
                    index=len(joins),
                    node=node,
                    group=group.name,
                    group_index=group_index,
                    anchor=self._plan_of(self._origins.name_of(anchor)),
                    port=self._origins.port_name(anchor),
                    required=frozenset(f.name for f in group.fields if not f.is_optional),
                )
                joins[name, group.name] = join
                anchored[join.anchor.name].append(join)
                for vertex in self._origins.between(anchor, sources):
                    tracks[self._origins.name_of(vertex)].append(join.index)
        for plan in self._plans:
            plan.anchors = tuple(anchored[plan.name])
            plan.tracks = tuple(tracks[plan.name]) if plan.name else ()
        return joins

    def _is_join(self, sources: list[int]) -> bool:
        """Several sources that are not all placeholders: those come as yields of the call, one source."""
        return len(sources) > 1 and any(self._origins.name_of(s) for s in sources)

    def _plan_of(self, name: str) -> NodePlan:
        return self._nodes[name] if name else self._source

    # --- deliveries ---------------------------------------------------------------------------------------------------

    def _fill(self, plan: NodePlan, joins: Mapping[tuple[str, str], JoinPlan]) -> None:
        leaving = self._leaving[plan.name]
        plan.deliveries = tuple(self._deliveries(leaving, joins))
        plan.emissions = tuple(
            Emission(source_field=e.source_field, output=e.target_field, order=self._order_of.get(e.target_field, -1))
            for _, e in leaving
            if not e.target_node
        )
        if plan.spec is not None and plan.spec.activate_by_count:
            plan.count = self._count(plan.spec)

    def _deliveries(
        self, leaving: list[tuple[int, EdgeSpec]], joins: Mapping[tuple[str, str], JoinPlan]
    ) -> Iterator[Delivery]:
        grouped: dict[tuple[str, str], list[tuple[int, EdgeSpec]]] = defaultdict(list)
        targets: dict[str, int] = {}
        for i, edge in leaving:
            if edge.target_node:
                grouped[edge.target_node, edge.target_group].append((i, edge))
                targets.setdefault(edge.target_node, len(targets))
        made = [self._delivery(node, group, edges, joins) for (node, group), edges in grouped.items()]
        # facets of one count join side by side, in the order of its groups: one event is admitted to all of them at once
        yield from sorted(made, key=lambda d: (targets[d.node.name], d.group_index if d.kind is JoinKind.COUNT else 0))

    def _delivery(
        self,
        name: str,
        group: str,
        edges: list[tuple[int, EdgeSpec]],
        joins: Mapping[tuple[str, str], JoinPlan],
    ) -> Delivery:
        node = self._nodes[name]
        assert node.spec is not None, "only the source has no spec"
        index, optional = self._group_of[name, group]
        join = joins.get((name, group))
        kind = JoinKind.COUNT if node.spec.activate_by_count else JoinKind.PREFIX if join else JoinKind.SINGLE
        return Delivery(
            node=node,
            group=group,
            group_index=index,
            kind=kind,
            routes=tuple(FieldRoute(source=e.source_field, target=e.target_field, order=i) for i, e in edges),
            required=frozenset(e.target_field for _, e in edges if e.target_field not in optional)
            if kind is JoinKind.SINGLE
            else frozenset(),
            chunks=edges[0][1].chunks,
            join=join.index if join else -1,
        )

    def _count(self, spec: NodeSpec) -> CountPlan:
        triggers = {t.field for t in spec.activate_by_count}
        counts = frozenset(t.count_field for t in spec.activate_by_count if t.constant is None)
        facets: dict[int, CountFacetPlan] = {}
        for i, group in enumerate(spec.groups):
            fed = [f.name for f in group.fields if (spec.name, group.name, f.name) in self._fed]
            if fed:
                facets[i] = CountFacetPlan(
                    group=group.name,
                    triggers=tuple(f for f in fed if f in triggers),
                    companions=tuple(f for f in fed if f not in triggers and f not in counts),
                )
        return CountPlan(triggers=spec.activate_by_count, count_fields=counts, facets=facets)

    # --- reach --------------------------------------------------------------------------------------------------------

    def _fill_reaches(self) -> None:
        """Ordered outputs and gates, from where they are back to the call. Sets as bits: a pass is linear in edges."""
        reach: dict[str, int] = {}
        for plan in self._plans:
            own = 1 << plan.gate if plan.gate >= 0 else 0
            for emission in plan.emissions:
                if emission.order >= 0:
                    own |= 1 << emission.order
            reach[plan.name] = own
        successors = successors_of(self._spec)
        backwards = [*reversed(self._order), SOURCE]
        has_changed = True
        while has_changed:  # once without cycles, and once more to see that nothing changes
            has_changed = False
            for name in backwards:
                found = reach[name]
                for successor in successors[name]:
                    found |= reach[successor]
                if found != reach[name]:
                    reach[name] = found
                    has_changed = True
        for plan in self._plans:
            bits = reach[plan.name]
            plan.reaches = tuple(tree for tree in range(bits.bit_length()) if bits >> tree & 1)

    # --- segments -----------------------------------------------------------------------------------------------------

    def _fill_segments(self, segments: tuple[SegmentPlan, ...], joins: Mapping[tuple[str, str], JoinPlan]) -> None:
        for segment in segments:
            for spec in segment.nodes:
                node = self._nodes[spec.name]
                node.segment = segment
                node.has_exits = spec.name in segment.exits
            for edge in segment.edges:
                join = joins.get((edge.target_node, edge.target_group))
                if join is not None:
                    join.segment = segment

    # --- for people ---------------------------------------------------------------------------------------------------

    def _groups(self, joins: Mapping[tuple[str, str], JoinPlan]) -> Iterator[GroupPlan]:
        feeding: dict[tuple[str, str], list[EdgeSpec]] = defaultdict(list)
        for edge in self._spec.edges:
            feeding[edge.target_node, edge.target_group].append(edge)
        for name in self._order:
            spec = self._nodes[name].spec
            assert spec is not None, "only the source has no spec"
            for group in spec.groups:
                edges = feeding.get((name, group.name))
                if edges:
                    yield self._group(spec, group.name, edges, joins.get((name, group.name)))

    def _group(self, spec: NodeSpec, group: str, edges: list[EdgeSpec], join: JoinPlan | None) -> GroupPlan:
        sources = self._origins.sources[spec.name, group]
        anchor = self._origins.anchor(sources) if join else -1
        fields: dict[int, list[str]] = defaultdict(list)
        for edge in edges:
            fields[self._origins.source_of(edge)].append(edge.target_field)
        return GroupPlan(
            node=spec.name,
            group=group,
            kind=JoinKind.COUNT if spec.activate_by_count else JoinKind.PREFIX if join else JoinKind.SINGLE,
            anchor=join.anchor.name if join else "" if spec.activate_by_count else self._origins.name_of(sources[0]),
            routes=tuple(
                RoutePlan(
                    nodes=self._origins.shortest_route(anchor, source) if join else (self._origins.name_of(source),),
                    fields=tuple(fields[source]),
                )
                for source in sources
            ),
            chunks=edges[0].chunks,
            triggers=tuple(t.field for t in spec.activate_by_count),
        )
