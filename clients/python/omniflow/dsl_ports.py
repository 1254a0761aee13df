"""The ends of edges, and `>>` between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Never

from omniflow.dsl_draft import Draft, End
from omniflow.graph_errors import GraphError
from omniflow.workflow.v1 import graph_spec_pb2

Drain = Literal["end", "continue"]

_UINT32 = 2**32


class Port:
    """A name that edges start at, end at, or both: `a.x >> b.y`, or `a.x >> [b.y, c.z]` for several targets.

    Which of the two is decided by the side of `>>` it stands on: a node may have an output and an input of one name.
    """

    __slots__ = ("_chunks", "_draft", "_name", "_source", "_target")

    def __init__(
        self,
        draft: Draft,
        name: str,
        *,
        source: End | str,
        target: End | str,
        chunks: graph_spec_pb2.ChunkPolicy | None = None,
    ) -> None:
        """`source` and `target` are its ends; a text says why it has none."""
        self._draft = draft
        self._name = name
        self._source = source
        self._target = target
        self._chunks = chunks

    def __rshift__(self, targets: Port | Iterable[Port]) -> None:
        """Adds an edge to each target. Raises GraphError for ends that do not fit, and then adds none of them."""
        if isinstance(self._source, str):
            raise GraphError(self._source)
        ends = [self._fitting(self._source, target) for target in _ports(targets)]
        self._draft.add_edges(self._source, ends, self._chunks)

    def __rrshift__(self, source: Never) -> Never:
        """Explains what is on the left when it is no port."""
        if source is None:
            raise GraphError(
                "`a >> b >> c` is no edge; write `a.x >> b.y` and `b.z >> c.w` for a chain, "
                "`a.x >> [b.y, c.z]` for several targets"
            )
        raise GraphError(f"{_described(source)} is no source of an edge; the target is {self._name}")

    def chunks(
        self,
        size: int,
        *,
        first: int | None = None,
        stride: int | None = None,
        left_context: int = 0,
        flush: bool = True,
        drain: Drain = "end",
    ) -> Port:
        """The source in chunks: its target runs once for `size` yields instead of once for each.

        first: yields in the first chunk, when it differs. stride: yields between the starts of two chunks, when it is
        not `size`; smaller makes them overlap. left_context: earlier yields repeated in front of each chunk;
        `Inputs.context_count` says how many are there. flush: give the rest when the producer has ended, though it is
        smaller. drain: "continue" runs the target once more then, with the field absent, so that its loop can go on.

        Raises GraphError for numbers that make no chunks.
        """
        if isinstance(self._source, str):
            raise GraphError(self._source)
        _check_count("size", size, 1)
        _check_count("left_context", left_context, 0)
        for what, count in (("first", first), ("stride", stride)):
            if count is not None:
                _check_count(what, count, 1)
        if drain not in ("end", "continue"):
            raise GraphError(f'drain is {drain!r}; write "end" or "continue"')
        policy = graph_spec_pb2.ChunkPolicy(
            first=first, size=size, stride=stride, left_context=left_context, continues=drain == "continue"
        )
        if not flush:
            policy.flush = False
        name = f"{self._name}.chunks({size})"
        return Port(self._draft, name, source=self._source, target=f"{name} is a source, no target", chunks=policy)

    def _fitting(self, source: End, target: Port) -> End:
        end = target._target
        if target._draft is not self._draft:
            raise GraphError(f"{self._name} and {target._name} belong to different graphs")
        if isinstance(end, str):
            raise GraphError(end)
        if end.type is not source.type:
            raise GraphError(f"{self._name} is {source.type.name}, but {target._name} takes {end.type.name}")
        if self._chunks is not None and not end.node:
            raise GraphError(f"{target._name} takes single values; chunks are for the input of a node")
        return end

    def __repr__(self) -> str:
        return f"<{self._name} of graph {self._draft.name!r}>"


def _ports(targets: object) -> list[Port]:
    given = list(targets) if isinstance(targets, Iterable) and not isinstance(targets, str) else [targets]
    if not given:
        raise GraphError("an empty list of targets makes no edge")
    ports: list[Port] = []
    for target in given:
        if not isinstance(target, Port):
            raise GraphError(f"{_described(target)} is no target of an edge")
        ports.append(target)
    return ports


def _described(thing: object) -> str:
    if isinstance(thing, str):
        return f"the text {thing!r} (a field that has the name of a node's attribute is written node['name'])"
    return repr(thing)


def _check_count(what: str, count: object, least: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not least <= count < _UINT32:
        raise GraphError(f"{what} is {count!r}; chunks are counted in yields, {least} or more")
