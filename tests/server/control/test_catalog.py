"""Graphs that can be called, and what is said of those that cannot."""

from __future__ import annotations

import pytest

from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.findings import InvalidGraphError
from omniflow_server.control.catalog import Catalog
from tests.server.control.table import Joint, Step, chain


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog([Step.name, Joint.name])
    for name in ("assistant", "demo"):
        made.install(made.compile(chain(name).spec()))
    return made


def test_get_gives_the_graph_and_its_plan(catalog: Catalog) -> None:
    entry = catalog.get("graphs/demo")
    assert entry.message.name == entry.plan.spec.name == "graphs/demo"
    assert catalog.names() == ["graphs/assistant", "graphs/demo"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("graphs/asistant", "did you mean graphs/assistant?"),
        ("x", "installed: graphs/assistant, graphs/demo."),
        ("", "installed: graphs/assistant, graphs/demo."),
    ],
)
def test_unknown_graph_names_the_nearest(catalog: Catalog, name: str, hint: str) -> None:
    with pytest.raises(OmniFlowError) as caught:
        catalog.get(name)
    assert caught.value.reason is Reason.UNKNOWN_GRAPH
    assert caught.value.message == f"There is no graph {name!r}; {hint}"


def test_empty_catalog_says_so() -> None:
    with pytest.raises(OmniFlowError, match="installed: none"):
        Catalog([]).get("graphs/x")


def test_revision_follows_the_definition_alone(catalog: Catalog) -> None:
    spec = chain().spec()
    first = catalog.compile(spec).message.revision
    spec.revision = "what a client says"
    assert catalog.compile(spec).message.revision == first
    spec.description = "another"
    assert catalog.compile(spec).message.revision != first
    assert spec.revision == "what a client says", "the request is not changed"


def test_reinstalled_graph_leaves_running_calls_their_plan(catalog: Catalog) -> None:
    before = catalog.get("graphs/demo")
    spec = chain("demo").spec()
    spec.description = "new"
    catalog.install(catalog.compile(spec))
    assert catalog.get("graphs/demo").message.description == "new"
    assert catalog.get("graphs/demo").plan is not before.plan
    assert before.message.description == ""


def test_interface_that_is_not_enabled_names_the_nearest(catalog: Catalog) -> None:
    spec = chain().spec()
    spec.nodes[0].interface = "test.stepp"
    spec.nodes[1].interface = "os.system"
    findings = catalog.check(spec)
    assert [(f.reason, f.field, f.node) for f in findings] == [
        ("UNKNOWN_INTERFACE", "graph.nodes[0].interface", "a"),
        ("UNKNOWN_INTERFACE", "graph.nodes[1].interface", "c"),
    ]
    assert findings[0].fix == "Did you mean 'test.step'?"
    assert findings[1].fix == "Register it, or enable it in the configuration."


def test_graph_with_findings_is_refused_with_all_of_them(catalog: Catalog) -> None:
    spec = graph_spec_pb2.GraphSpec(name="graphs/bad")
    spec.CopyFrom(chain("bad").spec())
    spec.edges[0].source_field = "nope"
    spec.nodes[0].interface = "unknown"
    with pytest.raises(InvalidGraphError) as caught:
        catalog.compile(spec)
    assert [f.reason for f in caught.value.findings] == ["UNKNOWN_FIELD", "UNKNOWN_INTERFACE"]
    assert "graphs/bad" not in catalog.names()


def test_graph_with_global_parameters_is_refused_until_somebody_holds_them(catalog: Catalog) -> None:
    spec = chain().spec()
    spec.global_parameters.add(name="kv", layout="llm")
    with pytest.raises(InvalidGraphError) as caught:
        catalog.compile(spec)
    assert [(f.reason, f.field) for f in caught.value.findings] == [("UNSUPPORTED", "graph.global_parameters[0]")]
