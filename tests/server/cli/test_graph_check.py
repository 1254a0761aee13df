"""Where `omniflow graph check` says that a mistake is."""

from __future__ import annotations

import pytest
from google.protobuf import json_format

from omniflow import flow_loading as flows
from tests.server.cli.command import CommandLine

FLOW = """\
from omniflow import Field, Flow, Graph, Interface, RolePlan, ValueType, groups

class Echo(Interface):
    name = "test.echo"
    inputs = groups(text=Field(ValueType.TEXT), mood=Field(ValueType.TEXT))
    outputs = {"text": Field(ValueType.TEXT)}

graph = Graph("echo")
node = graph.node(
    "echo",
    Echo,
    role="echo",
)
graph.input("text", ValueType.TEXT) >> node.text
graph.output("unfed", ValueType.TEXT)
flow = Flow(name="echo", graph=graph, roles=(RolePlan(name="echo", interfaces=(Echo.name,)),))
"""
NODE = "No edge provides the required field echo.main.mood. Connect it, or make it optional."
OUTPUT = "No edge provides the graph output 'unfed'. Connect it, or remove it."


@pytest.fixture
def flow(omniflow: CommandLine) -> CommandLine:
    (omniflow.folder / "flow.py").write_text(FLOW)
    return omniflow


@pytest.mark.parametrize("reference", ["flow.py", "flow.py:graph"])
def test_finding_is_at_the_line_of_the_file_that_wrote_it(reference: str, flow: CommandLine) -> None:
    outcome = flow("graph", "check", reference)
    assert outcome.status == 1
    assert outcome.out.splitlines() == [
        f"flow.py:9: {NODE}",
        "  UNFED_FIELD nodes[0].input_groups[0]",
        f"flow.py:15: {OUTPUT}",
        "  UNFED_FIELD outputs[0]",
    ]


def test_finding_of_a_message_is_at_its_path(flow: CommandLine) -> None:
    spec = flows.load_graph(str(flow.folder / "flow.py")).spec()
    spec.nodes[0].interface = "noop.echo"
    (flow.folder / "graph.json").write_text(json_format.MessageToJson(spec))
    outcome = flow("graph", "check", "graph.json")
    assert outcome.status == 1
    assert outcome.out.splitlines() == [
        "UNFED_FIELD nodes[0].input_groups[0]",
        f"  {NODE}",
        "UNFED_FIELD outputs[0]",
        f"  {OUTPUT}",
    ]


def test_mistake_of_the_dsl_is_one_line(flow: CommandLine) -> None:
    (flow.folder / "wrong.py").write_text(FLOW + "node.txt >> node.mood\n")
    outcome = flow("graph", "check", "wrong.py")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == "error: wrong.py:17: 'echo' has neither an output nor an input 'txt'; did you mean 'text'?\n"
