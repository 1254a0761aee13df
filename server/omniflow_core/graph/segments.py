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
or it must wait. Everything else hangs below the one head that all ways to it pass. While they are looked for heads only
become more, and a node is looked at again only when something that feeds it has changed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping

from omniflow_core.graph.routing import SegmentPlan
from omniflow_core.graph.spec import EdgeSpec, GraphSpec, NodeSpec, Replay


def find_segments(spec: GraphSpec, order: Iterable[str]) -> Iterator[SegmentPlan]:
    """Disjoint segments, each as large as its entry allows. `order`: the nodes that the call reaches, dominators first."""
    leads = _Leads(spec, tuple(order))
    members: dict[str, set[str]] = defaultdict(set)
    for name, head in leads.settled().items():
        members[head].add(name)
    for entry, names in members.items():
        if len(names) > 1 or leads.feeds(entry, entry):
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


class _Leads:
    """The head that each node hangs below; nodes that can be in no segment have none."""

    def __init__(self, spec: GraphSpec, order: tuple[str, ...]) -> None:
        self._order = order
        self._nodes = {n.name: n for n in spec.nodes}
        self._sources: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in self._nodes}
        """Direct sources of each input group, by node."""
        self._successors: dict[str, set[str]] = defaultdict(set)
        self._chunked: set[tuple[str, str]] = set()
        for edge in spec.edges:
            if edge.target_node:
                self._add(edge)
        self._lead: dict[str, str] = {}
        self._excluded = {name for name, node in self._nodes.items() if not _can_belong(node)}

    def _add(self, edge: EdgeSpec) -> None:
        self._sources[edge.target_node][edge.target_group].add(edge.source_node)
        self._successors[edge.source_node].add(edge.target_node)
        if edge.chunks is not None:
            self._chunked.add((edge.target_node, edge.target_group))

    def feeds(self, source: str, target: str) -> bool:
        """There is an edge."""
        return target in self._successors[source]

    def settled(self) -> Mapping[str, str]:
        """The head of each node, itself for a head."""
        for name in self._order:
            if name not in self._excluded and self._must_lead(self._nodes[name]):
                self._lead[name] = name
        self._look_at(self._order)
        position = {name: i for i, name in enumerate(self._order)}
        heads = list(dict.fromkeys(self._lead.values()))
        while heads:
            head = heads.pop()
            barred = min(self._barred(head), key=position.__getitem__, default=None)
            if barred is None:
                continue
            # The first of them alone: others may hang below it from now on.
            self._make_head(barred)
            self._look_at(self._successors[barred])
            heads = list(dict.fromkeys(self._lead.values()))
        return self._lead

    def _make_head(self, name: str) -> None:
        """Of a node that feeds its own head as only the control plane can follow; a head that does is in no segment."""
        if self._lead[name] == name:
            self._excluded.add(name)
            del self._lead[name]
        else:
            self._lead[name] = name

    def _look_at(self, names: Iterable[str]) -> None:
        """Lets nodes hang below the head of what feeds them, and those behind them."""
        pending = deque(names)
        while pending:
            name = pending.popleft()
            if name in self._excluded or self._lead.get(name) == name:
                continue
            above = {
                self._lead.get(s, s) for sources in self._sources[name].values() for s in sources if self._counts(s)
            }
            found = above.pop() if len(above) == 1 else name if above else None
            if found is not None and found not in self._lead:
                found = name  # what feeds it is in no segment
            if found is not None and self._lead.get(name) != found:
                self._lead[name] = found
                pending.extend(self._successors[name])

    def _counts(self, source: str) -> bool:
        """Its head is known, or it never has one."""
        return source in self._lead or source in self._excluded

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

    def _barred(self, head: str) -> Iterator[str]:
        """Nodes of its own that feed a head beside others, or although it must wait."""
        for group, sources in self._sources[head].items():
            own = {source for source in sources if self._lead.get(source) == head}
            if own and (own != sources or _must_wait(self._nodes[head]) or (head, group) in self._chunked):
                yield from own


def _can_belong(node: NodeSpec) -> bool:
    """A replica can run the node without asking: nothing times it or starts it again elsewhere."""
    return bool(node.role) and node.timeout_s is None and node.replay is Replay.NONE and not node.global_parameters


def _must_wait(node: NodeSpec) -> bool:
    """Activations wait for others of the session, or of the call."""
    return node.is_session_ordered or bool(node.activate_by_count)
