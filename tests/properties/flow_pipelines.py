"""What may be a pipeline, rule by rule, and all of them by trying every chain."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

from omniflow_core.graph.spec import EdgeSpec, NodeSpec, OnFailure, Replay
from tests.properties.flow_routes import Kind, Routes


def pipelines_of(routes: Routes, in_segments: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Every chain that is a pipeline and cannot be made longer."""
    chains = [chain for name in routes.nodes for chain in _chains(routes, (name,))]
    found = [chain for chain in chains if _is_pipeline(routes, chain, in_segments)]
    for chain in found:
        if not any(chain != other and set(chain) < set(other) for other in found):
            yield chain


def _chains(routes: Routes, start: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Ways from node to node that begin so, of nodes with one successor each."""
    yield start
    following = set(routes.successors[start[-1]])
    if len(following) == 1 and not following & set(start):
        yield from _chains(routes, (*start, *following))


def _is_pipeline(routes: Routes, chain: tuple[str, ...], in_segments: Collection[str]) -> bool:
    nodes = [routes.nodes[name] for name in chain]
    return (
        len(chain) > 1
        and all(_needs_no_control(node) for node in nodes)
        and not any(name in in_segments or routes.reaches(name, name) for name in chain)
        and nodes[0].is_streaming
        and routes.runs_once(chain[0])
        and all(_leads_only_to(routes, a, b) for a, b in pairwise(chain))
        and _gives_alone(routes, chain[-1])
        and len({(node.role, node.interface) for node in nodes}) == len(nodes)
    )


def _needs_no_control(node: NodeSpec) -> bool:
    waits = node.is_session_ordered or bool(node.activate_by_count)
    is_watched = node.timeout_s is not None or node.replay is not Replay.NONE or bool(node.loop_bound)
    is_elsewhere = not node.role or node.is_spread or bool(node.global_parameters)
    return not (waits or is_watched or is_elsewhere) and node.on_failure is OnFailure.FAIL_CALL


def _leads_only_to(routes: Routes, source: str, target: str) -> bool:
    """All that the source gives goes to one group of the target, which is given nothing else."""
    leaving = _leaving(routes, source)
    keys = [key for key in routes.edges_into if key[0] == target]
    return (
        all(edge.target_node == target for edge in leaving)
        and len(keys) == 1
        and routes.direct(*keys[0]) == [source]
        and routes.kinds[keys[0]] is Kind.SINGLE
    )


def _gives_alone(routes: Routes, last: str) -> bool:
    """All that it gives goes to outputs of the call that nothing else gives to."""
    leaving = _leaving(routes, last)
    outputs = {edge.target_field for edge in leaving}
    others = [e for e in routes.spec.edges if not e.target_node and e.target_field in outputs]
    return bool(leaving) and not any(edge.target_node for edge in leaving) and others == leaving


def _leaving(routes: Routes, name: str) -> list[EdgeSpec]:
    return [edge for edge in routes.spec.edges if edge.source_node == name]
