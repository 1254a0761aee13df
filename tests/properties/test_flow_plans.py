"""The planner beside naive rules: what it refuses, how groups come about, and where their anchors are."""

from __future__ import annotations

import dataclasses
import random

from hypothesis import given
from hypothesis import strategies as st

from omniflow_core.graph.inside import START, segment_graph
from omniflow_core.graph.plan import find_faults, plan_graph
from tests.properties.flow_graphs import random_shape, random_spec
from tests.properties.flow_pipelines import pipelines_of
from tests.properties.flow_routes import ROOT, Kind, Routes
from tests.properties.flow_segments import segments_of
from tests.properties.flow_verdicts import JUDGED, has_unbounded_cycle, verdicts

GRAPHS = 2
"""By example."""


@given(st.integers(0, 2**32))
def test_planner_refuses_unclear_origins_and_nothing_else(case: int) -> None:
    chance = random.Random(case)
    for _ in range(GRAPHS):
        spec = random_spec(chance)
        routes = Routes(spec)
        findings = list(find_faults(spec))
        assert {(f.reason, f.node, f.group) for f in findings if f.reason in JUDGED} == verdicts(routes)
        assert any(f.reason == "UNBOUNDED_CYCLE" for f in findings) == has_unbounded_cycle(routes)


@given(st.integers(0, 2**32))
def test_plan_names_the_anchor_that_all_routes_pass(case: int) -> None:
    chance = random.Random(case)
    for _ in range(GRAPHS):
        spec = random_spec(chance)
        if not list(find_faults(spec)):
            routes = Routes(spec)
            for group in plan_graph(spec).groups:
                kind = routes.kinds[group.node, group.group]
                assert group.kind.value == ("single" if kind is Kind.CHUNKS else kind.value)
                if kind is Kind.PREFIX:
                    anchor = routes.anchors[group.node, group.group]
                    assert group.anchor == ("" if anchor.startswith(ROOT) else anchor)


@given(st.integers(0, 2**32))
def test_segments_are_disjoint_and_each_as_large_as_it_can_be(case: int) -> None:
    chance = random.Random(case)
    for _ in range(GRAPHS):
        spec = random_spec(chance)
        if not list(find_faults(spec)):
            routes = Routes(spec)
            segments = plan_graph(spec).segments
            members = {segment.entry: frozenset(node.name for node in segment.nodes) for segment in segments}
            assert sum(map(len, members.values())) == len(frozenset().union(*members.values()))
            free = frozenset(routes.nodes).difference(*members.values())
            for entry, own in members.items():
                assert max(segments_of(routes, entry, _alike(routes, entry, free | own)), key=len) == own
            assert [entry for entry in free if any(segments_of(routes, entry, _alike(routes, entry, free)))] == []


@given(st.integers(0, 2**32))
def test_segments_do_not_depend_on_the_order_of_definition(case: int) -> None:
    chance = random.Random(case)
    for _ in range(GRAPHS):
        spec = random_shape(chance).spec
        shuffled = dataclasses.replace(spec, nodes=tuple(chance.sample(spec.nodes, len(spec.nodes))))
        cuts = [
            {segment.entry: {node.name for node in segment.nodes} for segment in plan_graph(each).segments}
            for each in (spec, shuffled)
        ]
        assert cuts[0] == cuts[1]


@given(st.integers(0, 2**32))
def test_pipelines_are_all_the_chains_that_can_be_and_whole(case: int) -> None:
    chance = random.Random(case)
    for _ in range(GRAPHS):
        spec = random_spec(chance)
        if not list(find_faults(spec)):
            plan, routes = plan_graph(spec), Routes(spec)
            in_segments = {node.name for segment in plan.segments for node in segment.nodes}
            found = {tuple(node.name for node in pipeline.nodes) for pipeline in plan.pipelines}
            assert found == set(pipelines_of(routes, in_segments))
            named = {name for name, node in plan.nodes.items() if node.pipeline is not None}
            assert named == {names[0] for names in found}


@given(st.integers(0, 2**32))
def test_segment_is_planned_inside_as_it_is_outside(case: int) -> None:
    """Its edges and exits are all that its nodes give, and its joins have the anchors that they have in the whole graph."""
    chance = random.Random(case)
    for _ in range(GRAPHS):
        spec = random_shape(chance).spec
        plan = plan_graph(spec)
        anchors = {(group.node, group.group): (group.kind, group.anchor) for group in plan.groups}
        for segment in plan.segments:
            names = {node.name for node in segment.nodes}
            given_inside = {(e.source_node, e.source_field) for e in segment.edges}
            given_outside = {(name, field) for name, fields in segment.exits.items() for field in fields}
            leaving = {(e.source_node, e.source_field) for e in plan.spec.edges if e.source_node in names}
            assert given_inside | given_outside == leaving
            inside = segment_graph(segment.nodes, segment.edges, segment.entry)
            for group in inside.groups:
                if group.group != START:
                    assert (group.kind, group.anchor) == anchors[group.node, group.group]


def _alike(routes: Routes, entry: str, names: frozenset[str]) -> frozenset[str]:
    """Those that the entry's role serves too: the others need not be tried."""
    return frozenset(name for name in names if routes.nodes[name].role == routes.nodes[entry].role != "")
