"""Finds pipelines: chains of nodes whose yields can go from replica to replica, without the control plane in between.

                       ┌ role talker ┐   ┌ role codec ┐   ┌ role mixer ┐
    prompt ──▶ llm ──▶ │    talk     │──▶│    voice   │──▶│     mix    │──▶ audio      nodes: talk, voice, mix
               runs    └─────────────┘   └────────────┘   └────────────┘               outputs: of mix, that go to audio
               once      streaming

The first node runs once in a call, and each node is fed by the one before and by nothing else. So what the nodes are given
in the order in which it was yielded comes out in the order of the call's tree, and there is nothing inside that the control
plane would have to decide: no join, gate, chunk or count, no iteration, no deadline of a node, and no failure that passes.
Nor does a role have the same interface twice in one.

Nodes of one role side by side are a segment already (`segments`), and nodes of segments are in no pipeline. The first nodes
of two pipelines are different and lead to different nodes, so a pass over the graph is linear.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from omniflow_core.graph.anchors import Origins
from omniflow_core.graph.routing import PipelinePlan, SegmentPlan
from omniflow_core.graph.segments import can_run_unattended
from omniflow_core.graph.spec import EdgeSpec, GraphSpec, NodeSpec, OnFailure


def find_pipelines(spec: GraphSpec, origins: Origins, segments: Iterable[SegmentPlan]) -> Iterator[PipelinePlan]:
    """Disjoint pipelines, each from a streaming node that runs once to the outputs of the call.

    spec: its edges name their groups. origins: its dominator tree. segments: those that have been found in it.
    """
    chains = _Chains(spec, segments)
    for node in spec.nodes:
        if node.is_streaming and origins.runs_once(node.name):
            nodes = chains.below(node)
            if len(nodes) > 1 and _have_places_of_their_own(nodes):
                exits = tuple((e.source_field, e.target_field) for e in chains.leaving(nodes[-1]))
                outputs = tuple(dict.fromkeys(field for field, _ in exits))
                yield PipelinePlan(nodes=nodes, exits=exits, outputs=outputs)


class _Chains:
    """The graph as it can be followed from node to node."""

    def __init__(self, spec: GraphSpec, segments: Iterable[SegmentPlan]) -> None:
        self._nodes = {node.name: node for node in spec.nodes}
        in_segments = {node.name for segment in segments for node in segment.nodes}
        self._members = {n.name for n in spec.nodes if n.name not in in_segments and _can_be_inside(n)}
        self._leaving: dict[str, list[EdgeSpec]] = defaultdict(list)
        self._receivers: dict[str, set[tuple[str, str]]] = defaultdict(set)
        """Node and input group of all that a node feeds; the outputs of the call are one."""
        self._feeding: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        """Source and input group of all that feeds a node; an output of the call is a receiver of its own."""
        for edge in spec.edges:
            self._leaving[edge.source_node].append(edge)
            self._receivers[edge.source_node].add((edge.target_node, edge.target_group))
            self._feeding[_receiver_of(edge)].add((edge.source_node, edge.target_group))
            if edge.chunks is not None:
                self._members.discard(edge.source_node)

    def leaving(self, node: NodeSpec) -> Sequence[EdgeSpec]:
        """Edges from the node, in the order of the graph."""
        return self._leaving[node.name]

    def below(self, entry: NodeSpec) -> tuple[NodeSpec, ...]:
        """From the node to one that gives to outputs of the call alone; empty when there is no such chain."""
        nodes = [entry]
        while nodes[-1].name in self._members:
            node = nodes[-1]
            if not all(self._is_fed_alone(node, edge) for edge in self._leaving[node.name]):
                break
            if len(self._receivers[node.name]) != 1:
                break
            ((following, _),) = self._receivers[node.name]
            if not following:
                return tuple(nodes)
            nodes.append(self._nodes[following])
        return ()

    def _is_fed_alone(self, node: NodeSpec, edge: EdgeSpec) -> bool:
        """What the edge leads to gets nothing from anywhere else."""
        return self._feeding[_receiver_of(edge)] == {(node.name, edge.target_group)}


def _have_places_of_their_own(nodes: Sequence[NodeSpec]) -> bool:
    """No activation waits for a place on a replica that one above it holds while it waits for its yields to be taken."""
    return len({(node.role, node.interface) for node in nodes}) == len(nodes)


def _receiver_of(edge: EdgeSpec) -> tuple[str, str]:
    """A node, or an output of the call."""
    return edge.target_node, "" if edge.target_node else edge.target_field


def _can_be_inside(node: NodeSpec) -> bool:
    """Its activations need nobody but their replica, are all on the same one, and end the call when they fail."""
    return (
        can_run_unattended(node)
        and not node.is_session_ordered
        and not node.activate_by_count
        and not node.loop_bound
        and not node.is_spread
        and node.on_failure is OnFailure.FAIL_CALL
    )
