"""The assistant's graph, as the control plane sees it."""

from __future__ import annotations

import subprocess
import sys

from omniflow.codec.workflow import graph_spec_from_proto
from omniflow_core.graph.plan import plan_graph
from omniflow_roles.models.assistant.flow import flow

ENGINES = ("torch", "transformers", "numpy", "piper", "pocketsphinx", "onnxruntime")


def test_flow_can_be_planned() -> None:
    plan = plan_graph(graph_spec_from_proto(flow.graph.spec()))
    assert set(plan.nodes) == {"parser", "asr", "llm", "splitter", "tts"}


def test_flow_has_an_edge_for_every_output_and_two_ways_into_the_model() -> None:
    edges = {(e.source_node, e.source_field, e.target_node, e.target_field) for e in flow.graph.spec().edges}
    assert edges == {
        ("", "text", "parser", "text"),
        ("", "audio", "parser", "audio"),
        ("parser", "audio", "asr", "audio"),
        ("parser", "text", "llm", "text"),
        ("asr", "transcript", "llm", "transcript"),
        ("asr", "transcript", "", "transcript"),
        ("llm", "tokens", "", "text"),
        ("llm", "passage", "splitter", "passage"),
        ("splitter", "sentence", "tts", "sentence"),
        ("tts", "audio", "", "audio"),
    }


def test_flow_plans_a_role_for_every_node_that_is_not_inline() -> None:
    nodes = flow.graph.spec().nodes
    hosted = {(role.name, interface) for role in flow.roles for interface in role.interfaces}
    assert hosted == {(node.role, node.interface) for node in nodes if not node.is_inline}
    assert {node.name for node in nodes if node.is_inline} == {"parser", "splitter"}
    assert {role.environment for role in flow.roles} == {"assistant"}


def test_flow_orders_its_audio() -> None:
    assert not any(output.is_unordered for output in flow.graph.spec().outputs)


def test_flow_is_imported_without_an_engine() -> None:
    code = (
        "import sys; from omniflow_roles.models.assistant import flow; "
        f"print([name for name in {ENGINES!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
