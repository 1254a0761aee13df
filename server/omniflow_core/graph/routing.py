"""What a compiled graph is made of: for each node, where its yields go and what they are tracked for.

The scheduler only follows these tuples; nothing in them changes once planned.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from omniflow_core.graph.spec import ChunkSpec, CountTriggerSpec, EdgeSpec, FieldSpec, GraphSpec, NodeSpec


class JoinKind(enum.Enum):
    """How a node takes the inputs of a group."""

    SINGLE = "single"
    PREFIX = "prefix"
    COUNT = "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRoute:
    """One edge of a delivery. `order` is its index among the graph's edges."""

    source: str
    target: str
    order: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Delivery:
    """What one yield of a source hands to one input group."""

    node: NodePlan
    group: str
    group_index: int
    kind: JoinKind
    routes: tuple[FieldRoute, ...]
    """One per edge; one source field may feed several."""
    required: frozenset[str]
    """For a single source: target fields without which the group cannot run."""
    chunks: ChunkSpec | None = None
    join: int = -1
    """Index of the prefix join that the group is, or -1."""

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """(source field, target field) pairs."""
        return tuple((route.source, route.target) for route in self.routes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """What one yield of a source hands to one graph output."""

    source_field: str
    output: str
    order: int
    """Index among the ordered outputs, or -1 for an unordered one."""


@dataclass(slots=True, kw_only=True, eq=False)
class JoinPlan:
    """A group that draws on several sources: contributions below one yield of the anchor meet in one bucket."""

    index: int
    node: NodePlan
    group: str
    group_index: int
    anchor: NodePlan
    port: str | None
    """When the anchor is the call: the streaming placeholder whose values open buckets, empty for the single ones."""
    required: frozenset[str]
    """Fields of the group without which it cannot run."""
    segment: SegmentPlan | None = None
    """The segment that it is fed inside of."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class SegmentPlan:
    """Nodes of one role that one of its replicas can iterate by itself; see `segments`."""

    role: str
    entry: str
    """The only node that is fed from outside."""
    nodes: tuple[NodeSpec, ...]
    """In the order of the graph."""
    edges: tuple[EdgeSpec, ...]
    """Those with both ends inside, in the order of the graph."""
    exits: Mapping[str, tuple[str, ...]]
    """By node: output fields that are given to the rest of the graph."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class PipelinePlan:
    """A chain of nodes through which yields can go from replica to replica by themselves; see `pipelines`."""

    nodes: tuple[NodeSpec, ...]
    """First to last, at least two."""
    exits: tuple[tuple[str, str], ...]
    """(output field of the last node, output of the call) of each edge between them, in the order of the graph."""
    outputs: tuple[str, ...]
    """Output fields among the exits, without repeats."""

    @property
    def entry(self) -> str:
        """The first node, the only one that the control plane starts."""
        return self.nodes[0].name


@dataclass(frozen=True, slots=True, kw_only=True)
class CountFacetPlan:
    """One input group of a count join; `companions` are its connected fields that are neither trigger nor count."""

    group: str
    triggers: tuple[str, ...]
    companions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPlan:
    """A count join: its triggers, and its facets by index of their group; groups without an edge have none."""

    triggers: tuple[CountTriggerSpec, ...]
    count_fields: frozenset[str]
    """Fields that give a count."""
    facets: Mapping[int, CountFacetPlan]


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class NodePlan:
    """A node or the call's source, with all that follows from one yield of it. Not changed once planned."""

    name: str
    spec: NodeSpec | None
    index: int
    """Index among the graph's nodes, -1 for the source."""
    deliveries: tuple[Delivery, ...] = ()
    emissions: tuple[Emission, ...] = ()
    reaches: tuple[int, ...] = ()
    """Order trees (ordered outputs, then gates) that work started by this node can still reach."""
    gate: int = -1
    """Order tree of a session-ordered node, or -1."""
    anchors: tuple[JoinPlan, ...] = ()
    """Prefix joins whose anchor this node is: each yield of it opens a bucket of each."""
    tracks: tuple[int, ...] = ()
    """Prefix joins for which an activation of this node is tracked, as it may still contribute."""
    count: CountPlan | None = None
    segment: SegmentPlan | None = None
    """The segment that the node belongs to."""
    has_exits: bool = False
    """Something of what it yields leaves its segment."""
    pipeline: PipelinePlan | None = None
    """The pipeline that the node is the first of; the first delivery of each but its last leads to the next."""

    @property
    def loop_bound(self) -> int:
        return self.spec.loop_bound if self.spec else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePlan:
    """The shortest way from a group's anchor (included; empty for the call) to one direct source of the group."""

    nodes: tuple[str, ...]
    fields: tuple[str, ...]
    """Fields of the group that the source provides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """How one input group is fed, for people and tools."""

    node: str
    group: str
    kind: JoinKind
    anchor: str
    """Source of a single one, anchor of a prefix join; empty for the call."""
    routes: tuple[RoutePlan, ...]
    chunks: ChunkSpec | None = None
    triggers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPlan:
    """A graph that can run."""

    spec: GraphSpec
    source: NodePlan
    nodes: Mapping[str, NodePlan]
    groups: tuple[GroupPlan, ...]
    """Connected groups, nodes in topological order."""
    joins: tuple[JoinPlan, ...]
    count_joins: tuple[NodePlan, ...]
    """In topological order."""
    ordered_outputs: tuple[str, ...]
    """Those that need an order tree: several activations give to them."""
    gates: tuple[str, ...]
    """Session-ordered nodes; their order trees follow those of the ordered outputs."""
    static_inputs: Mapping[str, FieldSpec]
    streaming_inputs: Mapping[str, FieldSpec]
    roles: frozenset[str]
    """Roles that must have a ready replica."""
    order: tuple[str, ...]
    """Nodes in topological order, loops aside."""
    segments: tuple[SegmentPlan, ...] = ()
    pipelines: tuple[PipelinePlan, ...] = ()

    @property
    def dependency_edges(self) -> tuple[tuple[str, str, str], ...]:
        """(source node, target node, target group): what the scheduler follows; empty names for the call."""
        return tuple((p.name, d.node.name, d.group) for p in (self.source, *self.nodes.values()) for d in p.deliveries)
