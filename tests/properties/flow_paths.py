"""Whole token paths, and what is done with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.properties.flow_values import Activation, Value, Yielded


class Token(NamedTuple):
    """One step of a path. `node` is a node or a port of the call."""

    node: str
    activation: Activation
    ordinal: int


Path = tuple[Token, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A yield with its path, whose last token is its own."""

    path: Path
    fields: Mapping[str, Value]

    @property
    def key(self) -> Yielded:
        return (self.path[-1].activation, self.path[-1].ordinal)


def common_prefix(paths: Sequence[Path]) -> Path:
    """The longest path that all begin with; empty for no paths."""
    if not paths:
        return ()
    shared = paths[0]
    for path in paths[1:]:
        length = 0
        while length < min(len(shared), len(path)) and shared[length] == path[length]:
            length += 1
        shared = shared[:length]
    return shared


def is_prefix(path: Path, other: Path) -> bool:
    return other[: len(path)] == path


def last_token_of(node: str, path: Path) -> Token | None:
    """The innermost token of a node, if the path has one."""
    return next((token for token in reversed(path) if token.node == node), None)


def ordinals(path: Path) -> tuple[int, ...]:
    return tuple(token.ordinal for token in path)


def node_sequence(path: Path) -> tuple[str, ...]:
    """Nodes, outermost first; the ports of the call are one node, as its yields are counted together."""
    return tuple("@" if token.node.startswith("@") else token.node for token in path)


def stable_order(events: Iterable[Event]) -> list[Event]:
    """Topological order of events that come in order of admission.

    Only paths through the same nodes compare, by their ordinals; of what nothing holds back, the earliest goes first.
    """
    left = list(events)
    done: list[Event] = []
    while left:
        free = next(e for e in left if not any(_is_before(other, e) for other in left))
        left.remove(free)
        done.append(free)
    return done


def _is_before(one: Event, other: Event) -> bool:
    return node_sequence(one.path) == node_sequence(other.path) and ordinals(one.path) < ordinals(other.path)
