"""Chunks of one producer's yields, from the list of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from omniflow_core.graph.spec import ChunkSpec


class Chunk(NamedTuple):
    """Yields [start, end) with those from `context_start` on repeated in front of them."""

    context_start: int
    start: int
    end: int
    is_rest: bool
    """Given at the producer's end."""


def chunks_of(policy: ChunkSpec, count: int) -> Iterator[Chunk]:
    """The chunks of a producer that has yielded `count` times and ended."""
    first = policy.first or policy.size
    stride = policy.stride or policy.size
    spans = [(0, first)]
    while spans[-1][1] <= count:
        start = spans[-1][0] + stride if len(spans) > 1 else max(0, first + stride - policy.size)
        spans.append((start, start + policy.size))
    *full, (rest, _) = spans
    held = {i for start, end in full for i in range(start, end)}
    for start, end in full:
        yield Chunk(max(0, start - policy.left_context), start, end, is_rest=False)
    if policy.flush and any(i not in held for i in range(rest, count)):
        yield Chunk(max(0, rest - policy.left_context), rest, count, is_rest=True)
