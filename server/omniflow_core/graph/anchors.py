"""Where the inputs of a group come from: the node that tells its executions apart, found before anything runs.

Decides, for every input group, whether it is a single source or a join, the join's *anchor* (the nearest node that every
route into the group passes), and which nodes can still contribute below one yield of the anchor. Knows nothing of fields'
types or of running calls. Paper: sections 3.1, 3.2 and A.1.

             ┌─▶ d ─▶ h ─┐                  dominators:  c of d, h, k and j
    a ─▶ c ──┤           ├─▶ j             anchor of j: c, the nearest common one of h and k
             └─▶ k ──────┘                  tracked:     d, h, k (a yield of c starts nothing else that reaches j)

A token path holds the nodes that an output descends from. Through a join it keeps only what all contributions share, which
is exactly what dominates the join, so the nodes that are surely in a path are the *dominators* of its last node. The tree's
root is the call; below it the single placeholders are one port, because they come as one yield, and each streaming
placeholder is a port of its own. A count join gathers from the whole call: what is left of its inputs' paths are nodes that
run *once* in a call.

The dominator tree is computed by iteration in reverse postorder (Cooper, Harvey, Kennedy 2001, "A Simple, Fast Dominance
Algorithm").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from omniflow_core.graph.spec import SOURCE, EdgeSpec, GraphSpec, NodeSpec
from omniflow_core.graph.walks import cycles

Vertex = int
GroupKey = tuple[str, str]
"""Node and input group."""

ROOT: Vertex = 0
STATIC_PORT: Vertex = 1


class Origins:
    """The dominator tree of a graph whose edges name their groups. Only nodes that the call reaches are in it."""

    def __init__(self, spec: GraphSpec) -> None:
        streaming = [p.field.name for p in spec.placeholders if p.is_streaming]
        self._port_of = {name: 2 + i for i, name in enumerate(streaming)}
        first_node = 2 + len(streaming)
        self._vertex_of = {n.name: first_node + i for i, n in enumerate(spec.nodes)}
        self._names = [SOURCE] * first_node + [n.name for n in spec.nodes]
        self._specs: list[NodeSpec | None] = [None] * first_node + list(spec.nodes)
        chunked = [e for e in spec.edges if e.chunks is not None]
        goes_on = {e.source_node for e in chunked if e.chunks is not None and e.chunks.continues}
        self._chunked = {e.target_node for e in chunked} | goes_on
        """Nodes whose activations a chunk policy multiplies, and those whose end starts one more."""
        self.predecessors: list[set[Vertex]] = [set() for _ in self._names]
        self._successors: list[set[Vertex]] = [set() for _ in self._names]
        for port in range(1, first_node):
            self._connect(ROOT, port)
        direct: dict[GroupKey, dict[Vertex, None]] = defaultdict(dict)
        for edge in spec.edges:
            if edge.target_node:
                source = self.source_of(edge)
                self._connect(source, self._vertex_of[edge.target_node])
                direct[edge.target_node, edge.target_group][source] = None
        self.sources: dict[GroupKey, list[Vertex]] = {key: list(vertices) for key, vertices in direct.items()}
        """Direct sources of each connected group, in edge order."""
        self._order = self._reverse_postorder()
        self._position = {vertex: i for i, vertex in enumerate(self._order)}
        self.cyclic = {v for cycle in cycles(self._order, dict(enumerate(self._successors))) for v in cycle}
        self._plain = self._dominators({})
        self._single = frozenset({STATIC_PORT})
        """What runs at most once in a call."""
        once = self._once()
        joins = [v for v in self._order if (s := self._specs[v]) is not None and s.activate_by_count]
        self._kept = self._dominators(dict.fromkeys(joins, once)) if joins else self._plain

    # --- building -------------------------------------------------------------------------------------------------

    def _connect(self, source: Vertex, target: Vertex) -> None:
        self.predecessors[target].add(source)
        self._successors[source].add(target)

    def _reverse_postorder(self) -> list[Vertex]:
        order: list[Vertex] = []
        seen = {ROOT}
        stack = [(ROOT, iter(sorted(self._successors[ROOT])))]
        while stack:
            vertex, rest = stack[-1]
            for successor in rest:
                if successor not in seen:
                    seen.add(successor)
                    stack.append((successor, iter(sorted(self._successors[successor]))))
                    break
            else:
                order.append(vertex)
                stack.pop()
        order.reverse()
        return order

    def _dominators(self, keeps: Mapping[Vertex, frozenset[Vertex]]) -> list[Vertex]:
        """Immediate dominator of each vertex, by position; those in `keeps` hang below the nearest of the given ones."""
        tree = [-1] * len(self._names)
        tree[ROOT] = ROOT
        has_changed = True
        while has_changed:
            has_changed = False
            for vertex in self._order[1:]:
                above = [p for p in self.predecessors[vertex] if tree[p] >= 0]
                found = above[0]
                for other in above[1:]:
                    found = self._intersect(tree, found, other)
                if vertex in keeps:
                    while found != ROOT and found not in keeps[vertex]:
                        found = tree[found]
                if tree[vertex] != found:
                    tree[vertex] = found
                    has_changed = True
        return tree

    def _intersect(self, tree: Sequence[Vertex], a: Vertex, b: Vertex) -> Vertex:
        position = self._position
        while a != b:
            while position[a] > position[b]:
                a = tree[a]
            while position[b] > position[a]:
                b = tree[b]
        return a

    def _once(self) -> frozenset[Vertex]:
        """What gives at most one yield in a call: everything descends from one and the same token of it."""
        connected: dict[str, int] = defaultdict(int)
        for node, _ in self.sources:
            connected[node] += 1
        sources = {node: vertices for (node, _), vertices in self.sources.items()}
        once, single = {STATIC_PORT}, {STATIC_PORT}
        for vertex in self._order:
            spec = self._specs[vertex]
            if spec is None or vertex in self.cyclic or spec.name in self._chunked:
                continue
            if spec.activate_by_count or (connected[spec.name] == 1 and self._is_one(sources[spec.name], once)):
                single.add(vertex)
                if not spec.is_streaming:
                    once.add(vertex)
        self._single = frozenset(single)
        return frozenset(once)

    def _is_one(self, sources: Iterable[Vertex], once: set[Vertex]) -> bool:
        """Everything that comes from the sources descends from one token; of those that are not reached nothing comes."""
        reached = [source for source in sources if source in self._position]
        return bool(reached) and self._nearest(self._plain, reached) in once

    # --- questions --------------------------------------------------------------------------------------------------

    def source_of(self, edge: EdgeSpec) -> Vertex:
        """The vertex that an edge leaves: a node, or the port of a placeholder."""
        if edge.source_node:
            return self._vertex_of[edge.source_node]
        return self._port_of.get(edge.source_field, STATIC_PORT)

    @property
    def dominators(self) -> dict[str, str]:
        """The immediate dominator of each node that the call reaches, empty for the call; dominators come first."""
        return {name: self._names[self._plain[v]] for v in self._order if (name := self._names[v])}

    def runs_once(self, node: str) -> bool:
        """All that the node gives in a call comes from one activation."""
        return self._vertex_of[node] in self._single

    def vertex_of(self, node: str) -> Vertex:
        return self._vertex_of[node]

    def name_of(self, vertex: Vertex) -> str:
        """Name of the node, empty for the call and its ports."""
        return self._names[vertex]

    def is_reached(self, node: str) -> bool:
        """Some placeholder leads to the node."""
        return self._vertex_of[node] in self._position

    def are_reached(self, vertices: Iterable[Vertex]) -> bool:
        """Some placeholder leads to each of them."""
        return all(vertex in self._position for vertex in vertices)

    def is_cyclic(self, node: str) -> bool:
        """The node can reach itself."""
        return self._vertex_of[node] in self.cyclic

    def port_name(self, vertex: Vertex) -> str | None:
        """Of a port: its streaming placeholder, or empty for the single ones. None for a node."""
        if self._specs[vertex] is not None or vertex == ROOT:
            return None
        return next((name for name, port in self._port_of.items() if port == vertex), "")

    def anchor(self, sources: Iterable[Vertex]) -> Vertex:
        """The nearest vertex that is surely in the path of whatever comes from any of the sources; ROOT for none."""
        return self._nearest(self._kept, list(sources))

    def is_lost(self, sources: Iterable[Vertex]) -> bool:
        """The nearest vertex that every route passes is not in every path: a count join on the way drops it."""
        return self._nearest(self._plain, list(sources)) != self.anchor(sources)

    def _nearest(self, tree: Sequence[Vertex], sources: Sequence[Vertex]) -> Vertex:
        found = sources[0]
        for other in sources[1:]:
            found = self._intersect(tree, found, other)
        return found

    def dominates(self, node: Vertex, other: Vertex) -> bool:
        """Every route to `other` passes `node`; a vertex dominates itself."""
        while other not in (node, ROOT):
            other = self._plain[other]
        return other == node

    def between(self, anchor: Vertex, sources: Iterable[Vertex]) -> set[Vertex]:
        """Every vertex on a route from the anchor to the sources, these included, that does not pass the anchor again."""
        found = {s for s in sources if s != anchor}
        frontier = list(found)
        while frontier:
            for vertex in self.predecessors[frontier.pop()]:
                if vertex not in found and vertex not in (anchor, ROOT):
                    found.add(vertex)
                    frontier.append(vertex)
        return found

    def shortest_route(self, anchor: Vertex, source: Vertex) -> tuple[str, ...]:
        """Names from the anchor to the source, both included; the call's name is empty."""
        following: dict[Vertex, Vertex] = {}
        frontier = [source]
        for vertex in frontier:  # grows while it is walked: breadth first
            if vertex == anchor:
                break
            for previous in sorted(self.predecessors[vertex]):
                if previous not in following and previous != source:
                    following[previous] = vertex
                    frontier.append(previous)
        names = [self._names[anchor]]
        vertex = anchor
        while vertex != source:
            vertex = following[vertex]
            names.append(self._names[vertex])
        return tuple(names)
