"""Any supported text model as a flow.

request ─▶ generate ─▶ text (tokens)          manage ─▶ models ─▶ answer

OMNIFLOW_MODEL_ROOT=/models OMNIFLOW_MODELS=smollm2 omniflow up text
"""

from __future__ import annotations

from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow.values import ValueType
from omniflow_roles.models.text.interfaces import Generate, Models

ENVIRONMENT = "assistant"
"""Python environment of the role: the extra `torch`."""


def _graph() -> Graph:
    graph = Graph("text", description="Generates text with any model of the role; loads and unloads models.")
    generate = graph.node("generate", Generate, role="text")
    models = graph.node("models", Models, role="text")
    graph.input("request", ValueType.JSON, optional=True) >> generate.inputs.field("request")
    graph.input("manage", ValueType.JSON, optional=True) >> models.inputs.field("request")
    generate.output("tokens") >> graph.output("text", ValueType.TOKENS)
    models.output("answer") >> graph.output("answer", ValueType.JSON)
    return graph


flow = Flow(
    name="text",
    graph=_graph(),
    roles=(RolePlan(name="text", interfaces=(Generate.name, Models.name), environment=ENVIRONMENT),),
)
"""What `omniflow up text` starts."""
