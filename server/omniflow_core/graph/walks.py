"""Walks over the nodes of a graph, whatever their groups and fields."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from omniflow_core.graph.spec import SOURCE, GraphSpec

Vertex = TypeVar("Vertex", bound=Hashable)


def successors_of(spec: GraphSpec) -> dict[str, set[str]]:
    """Nodes that each node, and the call, feeds."""
    successors: dict[str, set[str]] = {SOURCE: set(), **{n.name: set() for n in spec.nodes}}
    for edge in spec.edges:
        if edge.target_node:
            successors[edge.source_node].add(edge.target_node)
    return successors


def topological(spec: GraphSpec, successors: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
    """(nodes in topological order with the members of cycles at the end, those members)."""
    names = [n.name for n in spec.nodes]
    position = {name: i for i, name in enumerate(names)}
    incoming = dict.fromkeys(names, 0)
    for name in names:
        for successor in successors[name]:
            incoming[successor] += 1
    ready = [name for name in names if not incoming[name]]
    order: list[str] = []
    for name in ready:
        order.append(name)
        for successor in sorted(successors[name], key=position.__getitem__):
            incoming[successor] -= 1
            if not incoming[successor]:
                ready.append(successor)
    done = set(order)
    cyclic = [name for name in names if name not in done]
    return order + cyclic, cyclic


def cycles(vertices: Iterable[Vertex], successors: Mapping[Vertex, Collection[Vertex]]) -> Iterator[list[Vertex]]:
    """Sets of vertices that can all reach one another, with those that reach themselves."""
    walk = _CycleWalk(successors)
    for vertex in vertices:
        yield from walk.from_vertex(vertex)


class _CycleWalk(Generic[Vertex]):
    """Strongly connected components by Tarjan (1972), without recursion: graphs can be deep."""

    def __init__(self, successors: Mapping[Vertex, Collection[Vertex]]) -> None:
        self._successors = successors
        self._index: dict[Vertex, int] = {}
        self._low: dict[Vertex, int] = {}
        self._open: dict[Vertex, None] = {}
        """Vertices whose component is not known yet, in order of discovery."""
        self._path: list[tuple[Vertex, Iterator[Vertex]]] = []

    def from_vertex(self, start: Vertex) -> Iterator[list[Vertex]]:
        """Components that are found from a vertex on, if it has not been seen."""
        if start in self._index:
            return
        self._enter(start)
        while self._path:
            vertex, rest = self._path[-1]
            for successor in rest:
                if successor not in self._index:
                    self._enter(successor)
                    break
                if successor in self._open:
                    self._low[vertex] = min(self._low[vertex], self._index[successor])
            else:
                self._path.pop()
                if self._path:
                    above = self._path[-1][0]
                    self._low[above] = min(self._low[above], self._low[vertex])
                if self._low[vertex] == self._index[vertex]:
                    found = self._close(vertex)
                    if len(found) > 1 or vertex in self._successors[vertex]:
                        yield found

    def _enter(self, vertex: Vertex) -> None:
        self._index[vertex] = self._low[vertex] = len(self._index)
        self._open[vertex] = None
        self._path.append((vertex, iter(self._successors[vertex])))

    def _close(self, root: Vertex) -> list[Vertex]:
        found = [self._open.popitem()[0]]
        while found[-1] != root:
            found.append(self._open.popitem()[0])
        return found
