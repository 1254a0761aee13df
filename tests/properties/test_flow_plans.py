"""The planner beside naive rules: what it refuses, how groups come about, and where their anchors are."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from omniflow_core.graph.plan import find_faults, plan_graph
from tests.properties.flow_graphs import random_spec
from tests.properties.flow_routes import ROOT, Kind, Routes
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
