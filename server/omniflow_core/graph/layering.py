"""Where boxes of a directed graph go on a page: columns by longest path, few crossings, edges that go round boxes.

    layer 0    1      2      3
      call ─▶ a ─▶ b ─────▶ j          c lies in layer 2; the edge a ─▶ j passes it through a *bend*,
              ├──▶ c ──┐    ▲          a place kept free for it in layer 2
              └──∙─────┴────┘

An edge that would close a cycle is a *back edge* and does not count for the layers; who draws leads it round. Edges of one
source share their bends, so that they look like one line that branches. Knows nothing of graphs of calls, or of drawing.
(Sugiyama, Tagawa, Toda 1981: longest-path layers, dummy vertices, barycentre sweeps.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

COLUMN_GAP = 84.0
ROW_GAP = 22.0
BEND_HEIGHT = 6.0
_SWEEPS = 12
_ALIGNMENTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of a box, in pixels."""

    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a box is: its left and upper edge."""

    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The page. `bends` of an edge are (left, right, y) of the free places that it passes, from source to target."""

    places: tuple[Place, ...]
    back_edges: frozenset[tuple[int, int]]
    bends: dict[tuple[int, int], tuple[tuple[float, float, float], ...]]
    width: float
    height: float


def arrange(sizes: Sequence[Size], edges: Sequence[tuple[int, int]]) -> Layout:
    """Places boxes (by index); edges that are given first stay above others where nothing else decides."""
    return _Arrangement(sizes, list(dict.fromkeys(edges))).layout()


@dataclass(slots=True)
class _Vertex:
    """A box or a bend."""

    layer: int
    size: Size
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    y: float = 0.0
    """Of its middle."""


class _Arrangement:
    def __init__(self, sizes: Sequence[Size], edges: list[tuple[int, int]]) -> None:
        self._sizes = sizes
        self._edges = edges
        self._back = _back_edges(len(sizes), edges)
        forward = [edge for edge in edges if edge not in self._back]
        self._vertices = [_Vertex(layer, size) for layer, size in zip(_layers(len(sizes), forward), sizes, strict=True)]
        self._chains: dict[tuple[int, int], list[int]] = {}
        bends: dict[tuple[int, int], int] = {}
        for source, target in forward:
            self._chains[source, target] = self._connect(source, target, bends)
        self._columns: list[list[int]] = [[] for _ in range(max((v.layer for v in self._vertices), default=0) + 1)]
        for index, vertex in enumerate(self._vertices):
            self._columns[vertex.layer].append(index)

    def _connect(self, source: int, target: int, bends: dict[tuple[int, int], int]) -> list[int]:
        """Links an edge through a bend in each layer that it passes; returns the bends."""
        chain: list[int] = []
        last = source
        for layer in range(self._vertices[source].layer + 1, self._vertices[target].layer):
            bend = bends.get((source, layer))
            if bend is None:
                bend = bends[source, layer] = len(self._vertices)
                self._vertices.append(_Vertex(layer, Size(width=0.0, height=BEND_HEIGHT)))
                self._link(last, bend)
            chain.append(bend)
            last = bend
        self._link(last, target)
        return chain

    def _link(self, source: int, target: int) -> None:
        self._vertices[source].after.append(target)
        self._vertices[target].before.append(source)

    def layout(self) -> Layout:
        self._order_columns()
        self._align()
        lefts: list[float] = []
        widths = [max((self._vertices[i].size.width for i in column), default=0.0) for column in self._columns]
        x = 0.0
        for width in widths:
            lefts.append(x)
            x += width + COLUMN_GAP
        top = min((v.y - v.size.height / 2 for v in self._vertices), default=0.0)
        bottom = max((v.y + v.size.height / 2 for v in self._vertices), default=0.0)
        for vertex in self._vertices:
            vertex.y -= top
        boxes = self._vertices[: len(self._sizes)]
        return Layout(
            places=tuple(
                Place(x=lefts[v.layer] + (widths[v.layer] - v.size.width) / 2, y=v.y - v.size.height / 2) for v in boxes
            ),
            back_edges=self._back,
            bends={
                edge: tuple(
                    (lefts[v.layer], lefts[v.layer] + widths[v.layer], v.y)
                    for v in (self._vertices[bend] for bend in chain)
                )
                for edge, chain in self._chains.items()
            },
            width=max(0.0, x - COLUMN_GAP),
            height=bottom - top,
        )

    def _order_columns(self) -> None:
        """Sorts each column by the mean position of its neighbours, to and fro, which leaves few crossings."""
        position = {index: float(row) for column in self._columns for row, index in enumerate(column)}
        for sweep in range(_SWEEPS):
            is_forth = sweep % 2 == 0
            for column in self._columns if is_forth else reversed(self._columns):
                column.sort(key=lambda i: _mean(self._neighbours(i, is_forth), position, position[i]))
                position.update((index, float(row)) for row, index in enumerate(column))

    def _neighbours(self, index: int, is_forth: bool) -> list[int]:
        vertex = self._vertices[index]
        return vertex.before if is_forth else vertex.after

    def _align(self) -> None:
        """Moves each vertex towards the middle of its neighbours, as far as the order of its column lets it."""
        for column in self._columns:
            self._put(column, [0.0] * len(column))
        heights = {index: vertex.y for index, vertex in enumerate(self._vertices)}
        for round_ in range(_ALIGNMENTS):
            is_forth = round_ % 2 == 0
            for column in self._columns if is_forth else reversed(self._columns):
                wished = [_mean(self._neighbours(i, is_forth), heights, heights[i]) for i in column]
                self._put(column, wished)
                heights.update((index, self._vertices[index].y) for index in column)

    def _put(self, column: list[int], wished: list[float]) -> None:
        """Near the wished heights without overlaps: half-way between pushing everything down and pushing it up."""
        down, up = list(wished), list(wished)
        for row in range(1, len(column)):
            down[row] = max(down[row], down[row - 1] + self._distance(column, row))
        for row in range(len(column) - 2, -1, -1):
            up[row] = min(up[row], up[row + 1] - self._distance(column, row + 1))
        for row, index in enumerate(column):
            self._vertices[index].y = (down[row] + up[row]) / 2

    def _distance(self, column: list[int], row: int) -> float:
        """Between the middles of a row and the one above."""
        upper, lower = self._vertices[column[row - 1]], self._vertices[column[row]]
        return (upper.size.height + lower.size.height) / 2 + ROW_GAP


def _mean(neighbours: list[int], position: dict[int, float], own: float) -> float:
    return sum(position[i] for i in neighbours) / len(neighbours) if neighbours else own


def _back_edges(count: int, edges: Sequence[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Edges that lead back to a vertex on the way from the first one, depth first in the order of the edges."""
    after: dict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        after[source].append(target)
    found: set[tuple[int, int]] = set()
    state = [0] * count  # 0 new, 1 on the way, 2 done
    for start in range(count):
        if state[start]:
            continue
        state[start] = 1
        way = [(start, iter(after[start]))]
        while way:
            vertex, rest = way[-1]
            for target in rest:
                if state[target] == 1:
                    found.add((vertex, target))
                elif state[target] == 0:
                    state[target] = 1
                    way.append((target, iter(after[target])))
                    break
            else:
                state[vertex] = 2
                way.pop()
    return frozenset(found)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Length of the longest way to each vertex; the edges have no cycle."""
    after: dict[int, list[int]] = defaultdict(list)
    incoming = [0] * count
    for source, target in edges:
        after[source].append(target)
        incoming[target] += 1
    layers = [0] * count
    ready = [vertex for vertex in range(count) if not incoming[vertex]]
    for vertex in ready:
        for target in after[vertex]:
            layers[target] = max(layers[target], layers[vertex] + 1)
            incoming[target] -= 1
            if not incoming[target]:
                ready.append(target)
    return layers
