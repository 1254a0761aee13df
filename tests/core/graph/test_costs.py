"""Cost fields of nodes: what the planner refuses, and how a plan shows them."""

from __future__ import annotations

from typing import Any

import pytest

from omniflow_core.graph.explain import describe_node
from omniflow_core.graph.plan import find_faults, plan_graph
from omniflow_core.graph.spec import Balance, GraphSpec, NodeSpec
from tests.support.graphs import graph, node


def served(inputs: str = "prompt steps#?", **options: Any) -> NodeSpec:
    return node("a", inputs, is_inline=False, role="r", **{"balance": Balance.COST_AWARE, **options})


def with_node(a: NodeSpec) -> GraphSpec:
    target = "a.one.prompt" if len(a.groups) > 1 else "a.prompt"
    return graph((a,), f"x>{target} a.y>out")


@pytest.mark.parametrize("inputs", ["prompt steps#?", "one: prompt; two: steps#"])
@pytest.mark.parametrize("field", ["", "prompt", "steps"])
def test_cost_field_is_a_field_of_any_input_group(inputs: str, field: str) -> None:
    plan = plan_graph(with_node(served(inputs, cost_field=field)))
    spec = plan.nodes["a"].spec
    assert spec is not None
    assert spec.cost_field == field


def test_cost_field_that_no_group_has_is_refused_with_the_nearest() -> None:
    (finding,) = find_faults(with_node(served(cost_field="step")))
    assert (finding.reason, finding.field, finding.node, finding.group) == (
        "UNKNOWN_FIELD",
        "nodes[0].cost_field",
        "a",
        "",
    )
    assert finding.message == "No input group of 'a' has the field 'step' that tells its cost."
    assert finding.fix == "Did you mean 'steps'?"


@pytest.mark.parametrize("balance", [policy for policy in Balance if policy is not Balance.COST_AWARE])
def test_cost_field_of_a_policy_that_ignores_it_is_refused(balance: Balance) -> None:
    (finding,) = find_faults(with_node(served(cost_field="steps", balance=balance)))
    assert (finding.reason, finding.field, finding.node) == ("UNUSED_COST_FIELD", "nodes[0].cost_field", "a")
    assert finding.message == f"Node 'a' is balanced by {balance.value}, which does not look at costs."
    assert finding.fix == "Balance it by cost_aware, or name no cost field."


def test_every_fault_of_a_cost_field_is_found_at_once() -> None:
    findings = find_faults(with_node(served(cost_field="y", balance=Balance.RANDOM)))
    assert [finding.reason for finding in findings] == ["UNKNOWN_FIELD", "UNUSED_COST_FIELD"]


def test_plan_shows_policy_and_cost_field() -> None:
    assert describe_node(served(cost_field="steps")) == ["role r", "streaming", "balance cost_aware", "cost steps"]
    assert describe_node(served()) == ["role r", "streaming", "balance cost_aware"]
    assert describe_node(served(balance=Balance.LEAST_LOADED)) == ["role r", "streaming"]
    assert describe_node(served(balance=Balance.KV_AWARE, is_spread=True))[2:] == ["spread", "balance kv_aware"]
