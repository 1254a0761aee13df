"""The flow that is disturbed: an echo, and tokens at a pace, on three replicas of one role."""

from __future__ import annotations

from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow.values import ValueType
from omniflow_roles.noop.streaming import Pace
from omniflow_roles.noop.text import Echo


def _graph() -> Graph:
    graph = Graph("chaos")
    echo = graph.node("echo", Echo, role="worker", spread=True)
    pace = graph.node("pace", Pace, role="worker", spread=True)
    graph.input("text", ValueType.TEXT, optional=True) >> echo.inputs.field("text")
    echo.text >> graph.output("text", ValueType.TEXT)
    graph.input("parameters", ValueType.JSON, optional=True) >> pace.inputs.field("parameters")
    pace.text >> graph.output("paced", ValueType.TEXT)
    return graph


flow = Flow(
    name="chaos",
    graph=_graph(),
    roles=(RolePlan(name="worker", interfaces=("noop.echo", "noop.pace"), replicas=3),),
)
