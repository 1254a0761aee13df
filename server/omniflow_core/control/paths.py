"""Token paths: what an output descends from.

Every yield makes one `Path`: a token (node, activation, ordinal) on top of the path that its activation inherited. The
object itself is the token's event id, so two paths hold the same token exactly when they share the object, and comparing
tokens is comparing identities. A path points to what is above it only: what has ended is freed with the last path below it.

    a0 ─ c0 ─┬─ d0 ─ h0        common_prefix(h0, k0) is c0; h0.below(c0) is ((d, 0, 0), (h, 0, 0))
             └─ k0
"""

from __future__ import annotations

from collections.abc import Iterable

Level = tuple[int, int, int]
"""Node, input group, yield ordinal: what orders two tokens below the same path."""


class Path:
    """One yield and all that it descends from, up to the call."""

    __slots__ = ("activation_id", "depth", "group", "node", "ordinal", "parent")

    def __init__(self, parent: Path | None, node: int, group: int, activation_id: int, ordinal: int) -> None:
        self.parent = parent
        self.node = node
        """Index of the node in its graph, -1 for the call's source."""
        self.group = group
        self.activation_id = activation_id
        self.ordinal = ordinal
        self.depth: int = parent.depth + 1 if parent is not None else 1

    def ordinals(self) -> tuple[int, ...]:
        """Yield ordinals, outermost first."""
        found = []
        path: Path | None = self
        while path is not None:
            found.append(path.ordinal)
            path = path.parent
        found.reverse()
        return tuple(found)

    def shape(self) -> tuple[int, ...]:
        """Nodes, outermost first."""
        found = []
        path: Path | None = self
        while path is not None:
            found.append(path.node)
            path = path.parent
        found.reverse()
        return tuple(found)

    def below(self, ancestor: Path) -> tuple[Level, ...]:
        """The tokens below an ancestor, outermost first."""
        found: list[Level] = []
        path: Path | None = self
        while path is not None and path is not ancestor:
            found.append((path.node, path.group, path.ordinal))
            path = path.parent
        found.reverse()
        return tuple(found)


def common_prefix(paths: Iterable[Path]) -> Path | None:
    """The longest path that all of them begin with; None when they share nothing, or there are none."""
    common: Path | None = None
    is_first = True
    for path in paths:
        if is_first:
            common, is_first = path, False
        elif common is None:
            return None
        else:
            common = _common(common, path)
    return common


def _common(a: Path | None, b: Path | None) -> Path | None:
    while a is not b:
        if a is None or b is None:
            return None
        above_a, above_b = a.parent, b.parent
        if a.depth >= b.depth:
            b = above_b if a.depth == b.depth else b
            a = above_a
        else:
            b = above_b
    return a
