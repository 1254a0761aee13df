"""Cuts a graph into segments: sets of nodes that one role process can iterate by itself, without a hop in between.

                   ┌───────────── role dit ─────────────┐
    llm ──▶ start ─┼▶ step ──▶ cond, uncond ──▶ combine ┼──▶ vae          entry: step; exits: combine.image
                   │   ▲                          │     │
                   │   └──────────────────────────┘     │
                   └────────────────────────────────────┘

A segment has one *entry*, the only node that anything outside gives to, so what its nodes are fed and where their joins are
anchored can be decided inside. An activation of the entry takes the rest along: what its yields start inside runs on its
replica (`omniflow_core.control.segments`). What leaves the segment is all that the rest of the graph sees of it.

Nodes whose activations need the control plane are not inside: those that wait for others in a gate, a count join or a chunk
can only be the entry, and what must be timed or started again elsewhere is in no segment at all.

A *head* is a node that cannot be inside of anything: it is fed from outside, or by nodes that hang below different heads,
or it must wait. Everything else hangs below the nearest head that all ways to it pass, which the dominator tree tells. Heads
only become more while they are looked for; a pass over the graph is linear.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from omniflow_core.graph.routing import SegmentPlan
from omniflow_core.graph.spec import EdgeSpec, GraphSpec, NodeSpec, Replay


def find_segments(spec: GraphSpec, dominators: Mapping[str, str]) -> Iterator[SegmentPlan]:
    """Disjoint segments, each as large as its entry allows.

    dominators: by node that the call reaches, its immediate dominator, empty for the call; dominators come first.
    """
    heads = _Heads(spec, dominators)
    members: dict[str, set[str]] = defaultdict(set)
    for name, head in heads.settled().items():
        members[head].add(name)
    for entry, names in members.items():
        if len(names) > 1 or heads.feeds(entry, entry):
            yield _segment(spec, entry, names)


def _segment(spec: GraphSpec, entry: str, members: set[str]) -> SegmentPlan:
    exits: dict[str, dict[str, None]] = defaultdict(dict)
    for edge in spec.edges:
        if edge.source_node in members and edge.target_node not in members:
            exits[edge.source_node][edge.source_field] = None
    return SegmentPlan(
        role=next(n.role for n in spec.nodes if n.name == entry),
        entry=entry,
        nodes=tuple(n for n in spec.nodes if n.name in members),
        edges=tuple(e for e in spec.edges if e.source_node in members and e.target_node in members),
        exits={name: tuple(fields) for name, fields in exits.items()},
    )


class _Heads:
    """Looks for the heads; nodes that can be in no segment are excluded."""

    def __init__(self, spec: GraphSpec, dominators: Mapping[str, str]) -> None:
        self._dominators = dominators
        self._position = {name: i for i, name in enumerate(dominators)}
        self._nodes = {n.name: n for n in spec.nodes}
        self._sources: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in self._nodes}
        """Direct sources of each input group, by node."""
        self._edges: set[tuple[str, str]] = set()
        self._chunked: set[tuple[str, str]] = set()
        for edge in spec.edges:
            if edge.target_node:
                self._add(edge)
        self._excluded = {name for name, node in self._nodes.items() if not can_run_unattended(node)}
        self._heads: set[str] = set()

    def _add(self, edge: EdgeSpec) -> None:
        self._sources[edge.target_node][edge.target_group].add(edge.source_node)
        self._edges.add((edge.source_node, edge.target_node))
        if edge.chunks is not None:
            self._chunked.add((edge.target_node, edge.target_group))

    def feeds(self, source: str, target: str) -> bool:
        """There is an edge."""
        return (source, target) in self._edges

    def settled(self) -> Mapping[str, str]:
        """The head of each node, itself for a head; without those that are excluded."""
        self._heads = {name for name in self._dominators if self._must_lead(self._nodes[name])}
        while True:
            leads = self._leads()
            more = {target for source, target in self._edges if leads.get(source) != leads.get(target)} & leads.keys()
            if more <= self._heads:
                barred = self._first_barred(leads)
                if barred is None:
                    return leads
                more = {barred}
                if leads[barred] == barred:  # a head that feeds itself as only the control plane can follow
                    self._excluded.add(barred)
                    more = {target for source, target in self._edges if source == barred}
            self._heads |= more

    def _leads(self) -> dict[str, str]:
        """The nearest head that all ways to each node pass; empty where there is none."""
        leads: dict[str, str] = {}
        for name, dominator in self._dominators.items():
            if name not in self._excluded:
                leads[name] = name if name in self._heads else leads.get(dominator, "")
        return leads

    def _first_barred(self, leads: Mapping[str, str]) -> str | None:
        """The first node that feeds its own head beside others, or although that must wait. One at a time: what follows may
        hang below it from then on."""
        barred: list[str] = []
        for head in {lead for lead in leads.values() if lead}:
            for group, sources in self._sources[head].items():
                own = {source for source in sources if leads.get(source) == head}
                if own and (own != sources or _must_wait(self._nodes[head]) or (head, group) in self._chunked):
                    barred.extend(own)
        return min(barred, key=self._position.__getitem__, default=None)

    def _must_lead(self, node: NodeSpec) -> bool:
        """It waits for others, or is given something by the call, another role, or a node of other replicas."""
        if _must_wait(node):
            return True
        for group, sources in self._sources[node.name].items():
            if (node.name, group) in self._chunked or not all(self._is_alike(source, node) for source in sources):
                return True
        return False

    def _is_alike(self, source: str, node: NodeSpec) -> bool:
        other = self._nodes.get(source)
        return (
            other is not None
            and source not in self._excluded
            and other.role == node.role
            and other.is_spread is node.is_spread
        )


def can_run_unattended(node: NodeSpec) -> bool:
    """A replica can run the node without asking: nothing times it or starts it again elsewhere."""
    return bool(node.role) and node.timeout_s is None and node.replay is Replay.NONE and not node.global_parameters


def _must_wait(node: NodeSpec) -> bool:
    """Activations wait for others of the session, or of the call."""
    return node.is_session_ordered or bool(node.activate_by_count)
