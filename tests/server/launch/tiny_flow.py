"""A flow of noop interfaces, as an operator would write it: text in, text out; and a long stream of tokens.

Read by `omniflow up` as a file, in processes of their own.
"""

from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow.values import ValueType
from omniflow_roles.noop import Burst, Echo

graph = Graph("tiny")
echo = graph.node("echo", Echo, role="echo")
burst = graph.node("burst", Burst, role="burst")
graph.input("text", ValueType.TEXT, optional=True) >> echo.inputs.field("text")
graph.input("parameters", ValueType.JSON, optional=True) >> burst.inputs.field("parameters")
echo.output("text") >> graph.output("text", ValueType.TEXT)
burst.output("tokens") >> graph.output("tokens", ValueType.TOKENS)

flow = Flow(
    name="tiny",
    graph=graph,
    roles=(
        RolePlan(name="echo", interfaces=("noop.echo",), replicas=2),
        RolePlan(name="burst", interfaces=("noop.burst",)),
    ),
)
hopeless = Flow(
    name="hopeless",
    graph=graph,
    roles=(
        RolePlan(name="echo", interfaces=("noop.echo", "noop.missing")),
        RolePlan(name="burst", interfaces=("noop.burst",)),
    ),
)
