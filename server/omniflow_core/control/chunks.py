"""Chunks of a stream: which yields of one producer's activation a consumer is given together.

Yields are counted from 0 as they come; `first`, `size`, `stride` and `left_context` are numbers of yields. Chunk 0 is
[0, first); the starts of the following ones lie `stride` apart, each has `size` new yields, and up to `left_context` earlier
ones are repeated in front. `flush` gives the rest when the producer has ended.

    first=2 size=3 left_context=1          y0 y1 | y2 y3 y4 | y5 y6 (producer ends)
    chunk 0                                y0 y1
    chunk 1                                  (y1)  y2 y3 y4
    flushed                                           (y4)    y5 y6

With stride < size windows overlap (by the same amount also after a shorter first one), with stride > size yields are left
out. The chunks of two activations of the producer never mix, as each has a buffer of its own. *(ours; the shape follows the
chunk policies that streamed codecs need: sliding windows and left context.)*
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from omniflow_core.control.commands import Facet
from omniflow_core.control.events import Value
from omniflow_core.control.paths import Path
from omniflow_core.graph.routing import FieldRoute
from omniflow_core.graph.spec import ChunkSpec


@dataclass(frozen=True, slots=True)
class ChunkYield:
    """One yield in a buffer."""

    path: Path
    ordinals: tuple[int, ...]
    fields: Mapping[str, Value]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Yields for one run of the consumer; the first `context` of them are repeats."""

    yields: tuple[ChunkYield, ...]
    context: int

    def facet(self, group: str, routes: tuple[FieldRoute, ...]) -> Facet:
        """The inputs: for each field the values of the yields that carry it, in order."""
        fields: dict[str, tuple[Value, ...]] = {}
        paths: dict[str, tuple[tuple[int, ...], ...]] = {}
        context: dict[str, int] = {}
        for route in routes:
            carried = [(i, y) for i, y in enumerate(self.yields) if route.source in y.fields]
            if carried:
                fields[route.target] = (*fields.get(route.target, ()), *(y.fields[route.source] for _, y in carried))
                paths[route.target] = (*paths.get(route.target, ()), *(y.ordinals for _, y in carried))
                repeats = sum(1 for i, _ in carried if i < self.context)
                if repeats:
                    context[route.target] = context.get(route.target, 0) + repeats
        return Facet(group, fields, paths, context)


class ChunkBuffer:
    """Yields of one activation on their way into chunks."""

    __slots__ = ("_base", "_count", "_end", "_given", "_left", "_policy", "_start", "_yields", "size_bytes")

    def __init__(self, policy: ChunkSpec) -> None:
        self._policy = policy
        self._yields: deque[ChunkYield] = deque()
        self._base = 0
        """Number of the first yield that is kept."""
        self._count = 0
        self._start = 0
        self._end = policy.first or policy.size
        self._given = 0
        """Yields below this were in a chunk, or left out between two."""
        self._left = policy.left_context
        self.size_bytes = 0

    @property
    def count(self) -> int:
        """Yields that have come."""
        return self._count

    def add(self, item: ChunkYield) -> Chunk | None:
        """Takes a yield in; returns the chunk that it completes."""
        self._count += 1
        self._yields.append(item)
        self.size_bytes += item.size_bytes
        if self._count < self._end:
            self._drop_below(self._start - self._left)
            return None
        chunk = self._chunk(self._end)
        stride = self._policy.stride or self._policy.size
        self._given = self._end
        self._start = max(0, self._end + stride - self._policy.size)
        self._end = self._start + self._policy.size
        self._drop_below(self._start - self._left)
        return chunk

    def close(self) -> Chunk | None:
        """The producer has ended; returns the rest when the policy flushes it and no chunk has held all of it. Once."""
        has_rest = self._policy.flush and self._yields and self._count > max(self._given, self._start)
        chunk = self._chunk(self._count) if has_rest else None
        self._yields.clear()
        self.size_bytes = 0
        return chunk

    def _chunk(self, end: int) -> Chunk:
        first = max(self._base, self._start - self._left)
        kept = [self._yields[i - self._base] for i in range(first, end)]
        return Chunk(tuple(kept), self._start - first)

    def _drop_below(self, number: int) -> None:
        while self._base < number and self._yields:
            self.size_bytes -= self._yields.popleft().size_bytes
            self._base += 1
