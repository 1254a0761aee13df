"""What may be a segment, rule by rule, on routes found by removing nodes; and the largest one by trying all sets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from omniflow_core.graph.spec import NodeSpec, Replay
from tests.properties.flow_routes import Kind, Routes


def is_segment(routes: Routes, entry: str, members: frozenset[str]) -> bool:
    """Whether a replica that runs an activation of the entry can run what follows in the members too."""
    head = routes.nodes[entry]
    inner = members - {entry}
    return (
        all(_can_run_unwatched(routes.nodes[name]) for name in members)
        and all(_is_alike(routes.nodes[name], head) for name in members)
        and not any(_waits_for_others(routes.nodes[name]) for name in inner)
        and all(_is_fed_inside(routes, key, members) for key in routes.kinds if key[0] in inner)
        and all(_can_feed_entry(routes, key, members) for key in routes.kinds if key[0] == entry)
        and (bool(inner) or entry in routes.successors[entry])
    )


def segments_of(routes: Routes, entry: str, candidates: frozenset[str]) -> Iterator[frozenset[str]]:
    """Every segment of the entry among the candidates."""
    rest = sorted(candidates - {entry})
    for count in range(len(rest) + 1):
        for chosen in combinations(rest, count):
            members = frozenset((entry, *chosen))
            if is_segment(routes, entry, members):
                yield members


def _can_run_unwatched(node: NodeSpec) -> bool:
    return bool(node.role) and node.timeout_s is None and node.replay is Replay.NONE and not node.global_parameters


def _is_alike(node: NodeSpec, head: NodeSpec) -> bool:
    return (node.role, node.is_spread) == (head.role, head.is_spread)


def _waits_for_others(node: NodeSpec) -> bool:
    """Only the control plane sees the session, or the whole call."""
    return node.is_session_ordered or bool(node.activate_by_count)


def _is_fed_inside(routes: Routes, key: tuple[str, str], members: frozenset[str]) -> bool:
    """All of it, by members and below a yield of a member; chunks are cut in the control plane."""
    if routes.kinds[key] is Kind.CHUNKS or not members.issuperset(routes.direct(*key)):
        return False
    return routes.kinds[key] is not Kind.PREFIX or members >= {routes.anchors[key], *routes.feeders(*key)}


def _can_feed_entry(routes: Routes, key: tuple[str, str], members: frozenset[str]) -> bool:
    """A group of the entry takes from outside alone or from inside alone."""
    if members.isdisjoint(routes.direct(*key)):
        return True
    return not _waits_for_others(routes.nodes[key[0]]) and _is_fed_inside(routes, key, members)
