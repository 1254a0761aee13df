"""Jobs of different cost on three replicas that do one at a time, under each balancing policy that is compared."""

from __future__ import annotations

import time
from typing import ClassVar

from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import Json, ValueType

UNIT_S = 0.03
"""What a job of cost 1 takes."""
POLICIES = ("round_robin", "least_loaded", "cost_aware")


class Job(Interface):
    """Sleeps for as long as its cost says. One place."""

    name = "chaos.job"
    inputs = groups(cost=Field(ValueType.JSON))
    outputs: ClassVar = {"text": Field(ValueType.TEXT)}
    max_concurrency = 1

    def run(self, inputs: Inputs, context: Context) -> Outputs:
        cost = inputs["cost"]
        assert isinstance(cost, Json)
        assert isinstance(cost.value, int | float)
        time.sleep(UNIT_S * cost.value)
        return {"text": "done"}


def graph(policy: str) -> Graph:
    """A graph of one node, whose name is the policy's."""
    made = Graph(f"job_{policy}")
    cost = "cost" if policy == "cost_aware" else ""
    job = made.node("job", Job, role="worker", spread=True, balance=policy, cost=cost)  # type: ignore[arg-type]
    made.input("cost", ValueType.JSON) >> job.inputs.field("cost")
    job.text >> made.output("text", ValueType.TEXT)
    return made


flow = Flow(
    name="work",
    graph=graph("round_robin"),
    roles=(RolePlan(name="worker", interfaces=("chaos.job",), replicas=3),),
)
