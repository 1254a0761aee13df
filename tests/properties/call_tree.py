"""A slow, obviously correct evaluator of a call: unfolds the whole tree of its activations from the graph's definition.

Written apart from the planner and the scheduler, on purpose: it walks the edges of the `GraphSpec` for every yield and knows
nothing of windows, ids, interleavings or commands.

    call ── yield 0 ── a.main ── yield 0 ── b.main
                          └── yield 1 ── b.main      each yield: what it emits, then the activations that it starts
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from omniflow_core.graph.spec import SOURCE, EdgeSpec, GraphSpec, GroupSpec, NodeSpec, OnImpossible

Key = tuple[tuple[str, str, int], ...]
"""A yield, by its whole ancestry: (node, group, ordinal) from the call's own yield down."""

Value = tuple[Key, str]
"""The fake value of a yield's field: it names where it comes from, so that a mix-up cannot go unseen."""

Script = Callable[[Key, str, str], tuple[frozenset[str], ...]]
"""The yields of the activation that a yield starts in (node, group): the fields of each, the rest being skipped."""


@dataclass(frozen=True, slots=True)
class Yield:
    """One yield with all that follows from it."""

    key: Key
    emissions: dict[str, list[Value]]
    """By graph output, in the order of the graph's edges."""
    children: list[Activation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Activation:
    """One execution."""

    cause: Key
    node: str
    group: str
    inputs: dict[str, Value]
    yields: list[Yield] = field(default_factory=list)


@dataclass(slots=True)
class CallTree:
    """The whole call; `errors` are the ways in which it must fail, as (reason, node)."""

    yields: list[Yield]
    errors: set[tuple[str, str]]

    def activations(self) -> Iterator[Activation]:
        """Every activation, parents first."""
        frontier = list(self.yields)
        while frontier:
            for child in frontier.pop().children:
                yield child
                frontier.extend(child.yields)

    def every_yield(self) -> Iterator[Yield]:
        """Every yield, the call's own first."""
        yield from self.yields
        for activation in self.activations():
            yield from activation.yields


class TooLargeError(Exception):
    """The call would start more activations than a test wants to follow."""


def unfold(spec: GraphSpec, source_yields: list[frozenset[str]], script: Script, *, limit: int = 150) -> CallTree:
    """The tree of a call whose source yields the given placeholders, one set after another."""
    tree = CallTree([], set())
    counts: dict[str, int] = {}
    frontier: list[tuple[str, Yield, frozenset[str]]] = []

    def grow(node: str, key: Key, fields: frozenset[str]) -> Yield:
        found = Yield(key, _emissions(spec, node, key, fields))
        frontier.append((node, found, fields))
        return found

    for ordinal, fields in enumerate(source_yields):
        tree.yields.append(grow(SOURCE, ((SOURCE, "", ordinal),), fields))
    while frontier:
        node, found, fields = frontier.pop()
        for child_node, group in _groups_fed_by(spec, node):
            inputs = _inputs(spec, node, child_node, group, found.key, fields)
            if not inputs:
                continue  # a skipped delivery
            if any(not f.is_optional and f.name not in inputs for f in group.fields):
                if child_node.on_impossible is OnImpossible.FAIL:
                    tree.errors.add(("IMPOSSIBLE_INPUT", child_node.name))
                continue
            counts[child_node.name] = counts.get(child_node.name, 0) + 1
            if sum(counts.values()) > limit:
                raise TooLargeError
            child = Activation(found.key, child_node.name, group.name, inputs)
            found.children.append(child)
            for ordinal, given in enumerate(script(found.key, child_node.name, group.name)):
                key = (*found.key, (child_node.name, group.name, ordinal))
                child.yields.append(grow(child_node.name, key, given))
    tree.errors |= {
        ("LOOP_BOUND_EXCEEDED", n.name) for n in spec.nodes if n.loop_bound and counts.get(n.name, 0) > n.loop_bound
    }
    return tree


def _emissions(spec: GraphSpec, node: str, key: Key, fields: frozenset[str]) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for edge in spec.edges:
        if edge.source_node == node and not edge.target_node and edge.source_field in fields:
            found.setdefault(edge.target_field, []).append((key, edge.source_field))
    return found


def _groups_fed_by(spec: GraphSpec, node: str) -> Iterator[tuple[NodeSpec, GroupSpec]]:
    for target in spec.nodes:
        for group in target.groups:
            if any(_feeds(edge, node, target, group) for edge in spec.edges):
                yield target, group


def _inputs(
    spec: GraphSpec, node: str, target: NodeSpec, group: GroupSpec, key: Key, fields: frozenset[str]
) -> dict[str, Value]:
    return {
        edge.target_field: (key, edge.source_field)
        for edge in spec.edges
        if _feeds(edge, node, target, group) and edge.source_field in fields
    }


def _feeds(edge: EdgeSpec, node: str, target: NodeSpec, group: GroupSpec) -> bool:
    return edge.source_node == node and edge.target_node == target.name and edge.target_group == group.name


def check_return_order(tree: CallTree, output: str, emitted: list[Value]) -> None:
    """The events of an ordered output: everything once; an earlier sibling's whole subtree before a later one's; what a
    yield emits itself before what follows from it. Activations that one yield starts have no order between them.
    """
    assert len(set(emitted)) == len(emitted), "an event came twice"
    assert set(emitted) == {v for y in tree.every_yield() for v in y.emissions.get(output, [])}
    _check_siblings(tree.yields, output, emitted)


def check_activation_order(tree: CallTree, output: str, emitted: list[Value]) -> None:
    """The events of an unordered output: everything once, and in order within each activation."""
    assert len(set(emitted)) == len(emitted), "an event came twice"
    assert set(emitted) == {v for y in tree.every_yield() for v in y.emissions.get(output, [])}
    for yields in (tree.yields, *(a.yields for a in tree.activations())):
        own = [v for y in yields for v in y.emissions.get(output, [])]
        assert [v for v in emitted if v in own] == own


def _check_siblings(yields: list[Yield], output: str, emitted: list[Value]) -> None:
    rest = emitted
    for found in yields:
        inside = [v for v in rest if v[0][: len(found.key)] == found.key]
        assert rest[: len(inside)] == inside, "a later sibling came before an earlier one had ended"
        rest = rest[len(inside) :]
        own = found.emissions.get(output, [])
        assert inside[: len(own)] == own, "what follows from a yield came before the yield itself"
        for child in found.children:
            prefix = len(found.key)
            below = [v for v in inside if v[0][prefix : prefix + 1] and v[0][prefix][:2] == (child.node, child.group)]
            _check_siblings(child.yields, output, below)
    assert not rest, "an event belongs to no yield"
