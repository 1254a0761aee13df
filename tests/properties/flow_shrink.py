"""Makes the graph of a difference smaller while some interleaving of it still shows one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

from omniflow_core.graph.findings import InvalidGraphError
from omniflow_core.graph.spec import EdgeSpec, GraphSpec, NodeSpec, OnFailure, OnImpossible, Replay
from tests.properties.flow_case import Difference, run_interleaving
from tests.properties.flow_driver import FlowDriver
from tests.properties.flow_evaluator import TooLargeError, UnnamedError
from tests.properties.flow_graphs import Shape
from tests.properties.flow_routes import ROOT, Routes

TRIES = 60
"""Interleavings of a smaller graph before it counts as free of differences."""


def shrink(difference: Difference) -> Difference:
    """The smallest difference of the same kind that was found by leaving parts of the graph out, one after another."""
    best = _shortest(difference)
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for shape in _smaller_shapes(best.driver.shape):
            found = _search(best, shape)
            if found is not None:
                best, is_smaller = found, True
                break
    return _shortest(best)


def _kind(difference: Difference) -> str:
    """What must stay alike: the first words of the message."""
    return " ".join(difference.message.split()[:3])


def _search(best: Difference, shape: Shape) -> Difference | None:
    plan = best.driver.plan
    for turn in range(TRIES):
        try:
            run_interleaving(FlowDriver(shape, random.Random(turn), plan), best.seed, turn)
        except Difference as found:
            if _kind(found) == _kind(best):
                return found
        except (TooLargeError, UnnamedError, InvalidGraphError):
            return None
    return None


def _shortest(difference: Difference) -> Difference:
    """Without repeats if they do not matter, and by the shortest of many interleavings."""
    best = difference
    for plan in (dataclasses.replace(best.driver.plan, repeats=0.0), best.driver.plan):
        for turn in range(4 * TRIES):
            try:
                run_interleaving(FlowDriver(best.driver.shape, random.Random(turn), plan), best.seed, turn)
            except Difference as found:
                if _kind(found) == _kind(best) and len(found.driver.record.history) < len(best.driver.record.history):
                    best = found
        if best is not difference:
            break
    return best


def _smaller_shapes(shape: Shape) -> Iterator[Shape]:
    for index in range(len(shape.given) - 1, -1, -1):
        if len(shape.given) > 1:
            given = (*shape.given[:index], *shape.given[index + 1 :])
            yield from _shape(shape, shape.spec, given=given)
    for spec in _smaller_specs(shape.spec):
        yield from _shape(shape, spec)
    if shape.most_yields > 1:
        yield from _shape(shape, shape.spec, most_yields=shape.most_yields - 1)
    if shape.failures:
        yield from _shape(shape, shape.spec, failures=0.0)
    if shape.fullness < 1:
        yield from _shape(shape, shape.spec, fullness=1.0)


def _shape(shape: Shape, spec: GraphSpec, **changes: object) -> Iterator[Shape]:
    """The changed shape, if it can be planned and evaluated."""
    known = {p.field.name for p in spec.placeholders}
    settings = {
        name: getattr(shape, name) for name in ("seed", "most_yields", "fullness", "failures", "given")
    } | changes
    settings["given"] = tuple(names for given in settings["given"] if (names := tuple(n for n in given if n in known)))
    routes = Routes(spec)
    if not all(routes.reaches(ROOT, node.name) for node in spec.nodes):
        return
    try:
        smaller = Shape(spec, **settings)
        smaller.outcome()
    except (InvalidGraphError, TooLargeError, UnnamedError):
        return
    yield smaller


def _smaller_specs(spec: GraphSpec) -> Iterator[GraphSpec]:
    for node in reversed(spec.nodes):
        yield _without_node(spec, node)
    for node in reversed(spec.nodes):
        for group in node.groups:
            if len(node.groups) > 1:
                rest = tuple(g for g in node.groups if g is not group)
                yield _tidy(_replace_node(spec, node, dataclasses.replace(node, groups=rest)))
    for i in range(len(spec.edges)):
        yield _tidy(dataclasses.replace(spec, edges=(*spec.edges[:i], *spec.edges[i + 1 :])))
    for node in spec.nodes:
        for simpler in _simpler_nodes(node):
            yield _tidy(_replace_node(spec, node, simpler))
    for i, edge in enumerate(spec.edges):
        if edge.chunks is not None:
            plain = dataclasses.replace(edge, chunks=None)
            yield dataclasses.replace(spec, edges=(*spec.edges[:i], plain, *spec.edges[i + 1 :]))


def _simpler_nodes(node: NodeSpec) -> Iterator[NodeSpec]:
    defaults: dict[str, object] = {
        "is_session_ordered": False,
        "is_spread": False,
        "timeout_s": None,
        "yield_window": 8,
        "is_streaming": False,
        "is_deterministic": False,
        "replay": Replay.NONE,
        "on_impossible": OnImpossible.SKIP,
        "on_failure": OnFailure.SKIP,
        "activate_by_count": (),
    }
    for name, value in defaults.items():
        if getattr(node, name) != value:
            yield dataclasses.replace(node, **{name: value})  # type: ignore[arg-type]
    if node.role:
        yield dataclasses.replace(node, role="", is_inline=True)
    for i in range(len(node.activate_by_count)):
        rest = (*node.activate_by_count[:i], *node.activate_by_count[i + 1 :])
        yield dataclasses.replace(node, activate_by_count=rest)


def _replace_node(spec: GraphSpec, old: NodeSpec, new: NodeSpec) -> GraphSpec:
    return dataclasses.replace(spec, nodes=tuple(new if n is old else n for n in spec.nodes))


def _without_node(spec: GraphSpec, node: NodeSpec) -> GraphSpec:
    """Leaves a node out; what it fed is fed by what fed it, where the fields allow it."""
    into = [e for e in spec.edges if e.target_node == node.name and e.source_node != node.name]
    edges = []
    for edge in spec.edges:
        if edge.target_node == node.name:
            continue
        if edge.source_node == node.name:
            if not into:
                continue
            edge = dataclasses.replace(edge, source_node=into[0].source_node, source_field=into[0].source_field)
        if edge not in edges:
            edges.append(edge)
    return _tidy(dataclasses.replace(spec, nodes=tuple(n for n in spec.nodes if n is not node), edges=tuple(edges)))


def _tidy(spec: GraphSpec) -> GraphSpec:
    """Without fields, outputs and placeholders that no edge uses."""
    fed = {(e.target_node, e.target_group, e.target_field) for e in spec.edges}
    used = {(e.source_node, e.source_field) for e in spec.edges}
    nodes = []
    for node in spec.nodes:
        groups = [
            dataclasses.replace(g, fields=tuple(f for f in g.fields if (node.name, g.name, f.name) in fed))
            for g in node.groups
        ]
        outputs = tuple(f for f in node.outputs if (node.name, f.name) in used) or node.outputs[:1]
        if any(g.fields for g in groups):
            nodes.append(dataclasses.replace(node, groups=tuple(g for g in groups if g.fields), outputs=outputs))
    names = {n.name for n in nodes}
    tidy = dataclasses.replace(
        spec,
        nodes=tuple(nodes),
        edges=tuple(e for e in spec.edges if {e.source_node, e.target_node} <= names | {""} and _has_target(e, nodes)),
        placeholders=tuple(p for p in spec.placeholders if ("", p.field.name) in used),
        outputs=tuple(o for o in spec.outputs if ("", "", o.field.name) in fed),
    )
    return tidy if tidy == spec else _tidy(tidy)


def _has_target(edge: EdgeSpec, nodes: list[NodeSpec]) -> bool:
    groups = [(n.name, g.name) for n in nodes for g in n.groups]
    return not edge.target_node or (edge.target_node, edge.target_group) in groups
