"""Two nodes, of which the second writes down that it has run: on which call, in which session."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import ClassVar

from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.values import ValueType

RECORD = "CHAOS_RECORD"
"""Variable with the path of the file that runs are written to."""


class Wait(Interface):
    """Gives its text after as many seconds as that says."""

    name = "chaos.wait"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs: ClassVar = {"text": Field(ValueType.TEXT)}
    max_concurrency = 8

    def run(self, inputs: Inputs, context: Context) -> Outputs:
        text = str(inputs["text"])
        time.sleep(float(text))
        return {"text": text}


class Record(Wait):
    """Writes a line, and gives its text."""

    name = "chaos.record"

    def run(self, inputs: Inputs, context: Context) -> Outputs:
        with Path(os.environ[RECORD]).open("a") as file:
            file.write(f"{context.call_id}\n")
        return {"text": str(inputs["text"])}


def _graph() -> Graph:
    graph = Graph("chaos")
    wait = graph.node("wait", Wait, role="worker")
    record = graph.node("record", Record, role="recorder")
    graph.input("text", ValueType.TEXT) >> wait.inputs.field("text")
    wait.text >> record.inputs.field("text")
    record.text >> graph.output("text", ValueType.TEXT)
    return graph


flow = Flow(
    name="fencing",
    graph=_graph(),
    roles=(
        RolePlan(name="worker", interfaces=("chaos.wait",)),
        RolePlan(name="recorder", interfaces=("chaos.record",)),
    ),
)
