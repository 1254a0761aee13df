"""Routes and anchors by naive means: a node dominates another when nothing reaches the other without it.

Written apart from the planner, on purpose; the graph's definition is all it reads. Above all nodes stands the call; below
it one port per streaming placeholder, and one port for all single placeholders. The outputs of a count join descend from
yields of all parts of the call, so its path keeps no token for sure but those of which a call has only one: for all other
nodes a count join begins anew, as if the call itself fed it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from omniflow_core.graph.spec import EdgeSpec, GraphSpec, NodeSpec

ROOT = "@"
STATIC = "@static"


class Kind(enum.Enum):
    """How a group's activations come about."""

    SINGLE = "single"
    CHUNKS = "chunks"
    PREFIX = "prefix"
    COUNT = "count"


def port_of(spec: GraphSpec, placeholder: str) -> str:
    """The port that a placeholder's values come through."""
    is_streaming = any(p.is_streaming for p in spec.placeholders if p.field.name == placeholder)
    return f"@{placeholder}" if is_streaming else STATIC


@dataclass(slots=True)
class Routes:
    """What a graph's definition says about who feeds whom."""

    spec: GraphSpec
    nodes: dict[str, NodeSpec] = field(init=False)
    edges_into: dict[tuple[str, str], list[tuple[int, EdgeSpec]]] = field(init=False)
    """By node and group, each with its place among the graph's edges."""
    successors: dict[str, list[str]] = field(init=False)
    order: list[str] = field(init=False)
    """Nodes so that those on no cycle come after all that feeds them."""
    kinds: dict[tuple[str, str], Kind] = field(init=False)
    once: set[str] = field(init=False)
    """Ports and nodes that yield at most once in a call."""
    anchors: dict[tuple[str, str], str] = field(init=False)
    """Of prefix joins: the node or port whose last token tells buckets apart."""

    def __post_init__(self) -> None:
        spec = self.spec
        self.nodes = {n.name: n for n in spec.nodes}
        self.edges_into = {}
        self.successors = {name: [] for name in (ROOT, *self.nodes)}
        for i, edge in enumerate(spec.edges):
            source = edge.source_node or port_of(spec, edge.source_field)
            if source not in self.successors:
                self.successors[source] = []
            if not edge.source_node and source not in self.successors[ROOT]:
                self.successors[ROOT].append(source)
            if edge.target_node:
                self.edges_into.setdefault((edge.target_node, self._group(edge)), []).append((i, edge))
                if edge.target_node not in self.successors[source]:
                    self.successors[source].append(edge.target_node)
        self.order = self._order()
        self.kinds = {key: self._kind(*key) for key in self.edges_into}
        self.once = self._once()
        self.anchors = {key: self.anchor(self.direct(*key)) for key, k in self.kinds.items() if k is Kind.PREFIX}

    def _group(self, edge: EdgeSpec) -> str:
        fields = {g.name: [f.name for f in g.fields] for g in self.nodes[edge.target_node].groups}
        return edge.target_group or next(g for g, names in fields.items() if edge.target_field in names)

    def direct(self, node: str, group: str) -> list[str]:
        """Nodes and ports that a group's edges come from, in order of the edges."""
        edges = self.edges_into[node, group]
        return list(dict.fromkeys(e.source_node or port_of(self.spec, e.source_field) for _, e in edges))

    def _kind(self, node: str, group: str) -> Kind:
        if self.nodes[node].activate_by_count:
            return Kind.COUNT
        edges = [edge for _, edge in self.edges_into[node, group]]
        if len({edge.source_node for edge in edges}) > 1:
            return Kind.PREFIX
        return Kind.CHUNKS if edges[0].chunks is not None else Kind.SINGLE

    def _reached_without(self, removed: str, starts: Iterable[str] = ()) -> set[str]:
        frontier = [ROOT, *(s for s in starts if s != removed)]
        reached = set(frontier)
        while frontier:
            for name in self.successors[frontier.pop()]:
                if name != removed and name not in reached:
                    reached.add(name)
                    frontier.append(name)
        return reached

    def anchor(self, sources: Iterable[str]) -> str:
        """The nearest node or port whose token is in the path of all that comes from any of the sources; else ROOT."""
        wanted = list(sources)
        joins = [n.name for n in self.spec.nodes if n.activate_by_count]
        kept = [x for x in self.successors if x != ROOT and self.is_passed(x, wanted, () if x in self.once else joins)]
        return self._nearest(kept)

    def nearest_passed(self, sources: Iterable[str]) -> str:
        """The nearest node or port that all ways to the sources pass, whatever becomes of its token on the way."""
        wanted = list(sources)
        return self._nearest([x for x in self.successors if x != ROOT and self.is_passed(x, wanted)])

    def _nearest(self, names: Sequence[str]) -> str:
        """The one that all others are passed on the way to; ROOT of none."""
        return next((x for x in names if all(self.is_passed(other, [x]) for other in names)), ROOT)

    def is_passed(self, name: str, wanted: Sequence[str], starts: Sequence[str] = ()) -> bool:
        """Whether each of `wanted` is the node itself or cannot be reached without it."""
        reached = self._reached_without(name, starts)
        return all(w == name or w not in reached for w in wanted)

    def _once(self) -> set[str]:
        found = {STATIC}
        for name in self.order:
            if not self.nodes[name].is_streaming and self._is_one(name, found):
                found.add(name)
        return found

    def runs_once(self, name: str) -> bool:
        """Whether the node has at most one activation in a call, which may yield again and again."""
        return self._is_one(name, self.once)

    def _is_one(self, name: str, once: set[str]) -> bool:
        groups = [key for key in self.kinds if key[0] == name]
        if self.reaches(name, name) or any(self.kinds[g] is Kind.CHUNKS for g in groups):
            return False
        if any(e.chunks is not None and e.chunks.continues for e in self.spec.edges if e.source_node == name):
            return False  # its end stands for one more yield
        descends_from_one = len(groups) == 1 and self.nearest_passed(self.direct(*groups[0])) in once
        return bool(self.nodes[name].activate_by_count) or descends_from_one

    def feeders(self, node: str, group: str) -> set[str]:
        """Nodes whose work can still contribute to a group without passing its anchor again, its direct sources included."""
        anchor = self.anchors[node, group]
        found = set(self.direct(node, group)) - {anchor}
        frontier = list(found)
        while frontier:
            target = frontier.pop()
            for name, following in self.successors.items():
                if target in following and name not in found | {anchor, ROOT}:
                    found.add(name)
                    frontier.append(name)
        return found

    def waits_for_count_joins(self, node: str, group: str) -> bool:
        """Whether a prefix join's bucket may be open until the call gives count joins up."""
        return any(self.nodes[n].activate_by_count for n in self.feeders(node, group) if n in self.nodes)

    def chunked_by(self, source: str, nodes: set[str]) -> bool:
        """Whether some of the nodes take what the source gives in chunks."""
        keys = [key for key, kind in self.kinds.items() if kind is Kind.CHUNKS and key[0] in nodes]
        return any(source in self.direct(*key) for key in keys)

    def reaches(self, start: str, target: str) -> bool:
        """Whether a way of at least one edge leads from `start` to `target`."""
        seen: set[str] = set()
        frontier = [start]
        while frontier:
            for name in self.successors[frontier.pop()]:
                if name == target:
                    return True
                if name not in seen:
                    seen.add(name)
                    frontier.append(name)
        return False

    def _order(self) -> list[str]:
        """Reversed order of leaving in a depth-first walk."""
        seen = {ROOT}
        left: list[str] = []
        stack = [(ROOT, iter(self.successors[ROOT]))]
        while stack:
            name, rest = stack[-1]
            following = next((n for n in rest if n not in seen), None)
            if following is None:
                left.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(self.successors[following])))
        return [name for name in reversed(left) if not name.startswith(ROOT)]
