"""Graphs that can be called, and what is said of those that cannot."""

from __future__ import annotations

import pytest

from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.findings import InvalidGraphError
from omniflow_server.control import catalog as catalog_module
from omniflow_server.control.catalog import Catalog, CatalogEntry
from omniflow_server.control.graph_versions import GraphVersions
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
        catalog.pick(name, "sessions/a")
    assert catalog.unknown(name).info == caught.value.info
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


def described(catalog: Catalog, description: str, name: str = "demo") -> CatalogEntry:
    spec = chain(name).spec()
    spec.description = description
    return catalog.compile(spec)


def test_reinstalled_graph_leaves_running_calls_their_plan(catalog: Catalog) -> None:
    before = catalog.get("graphs/demo")
    catalog.install(described(catalog, "new"))
    assert catalog.get("graphs/demo").message.description == "new"
    assert catalog.get("graphs/demo").plan is not before.plan
    assert before.message.description == ""


def test_definition_that_is_installed_is_not_planned_again(catalog: Catalog) -> None:
    first = catalog.get("graphs/demo")
    assert catalog.compile(chain("demo").spec()) is first
    catalog.install(described(catalog, "new"))
    assert catalog.compile(chain("demo").spec()) is first, "as long as its revision is kept"
    catalog.install(first)
    assert catalog.get("graphs/demo") is first
    assert len(catalog.versions("graphs/demo").revisions) == 2


def test_new_calls_are_shared_and_an_affinity_keeps_its_revision(catalog: Catalog) -> None:
    old, new = catalog.get("graphs/demo"), described(catalog, "new")
    catalog.take(catalog.versions("graphs/demo").adding(new.revision, 40), [new])
    assert catalog.get("graphs/demo") is old, "the larger share"
    affinities = [f"sessions/{i}" for i in range(500)]
    picked = {affinity: catalog.pick("graphs/demo", affinity) for affinity in affinities}
    assert 140 < list(picked.values()).count(new) < 260  # 200 expected
    assert set(map(id, picked.values())) == {id(old), id(new)}
    assert all(catalog.pick("graphs/demo", affinity) is entry for affinity, entry in picked.items())
    catalog.take(catalog.versions("graphs/demo").adding(new.revision, 60), [])
    assert catalog.get("graphs/demo") is new
    stayed = {affinity for affinity, entry in picked.items() if catalog.pick("graphs/demo", affinity) is entry}
    assert {affinity for affinity, entry in picked.items() if entry is new} <= stayed


def test_dropped_revision_still_runs_what_holds_it(catalog: Catalog) -> None:
    held = catalog.get("graphs/demo")
    for i in range(8):
        catalog.install(described(catalog, f"revision {i}"))
    kept = catalog.versions("graphs/demo")
    assert len(kept.revisions) == 8
    assert held.message.revision not in kept.names
    assert held.plan.spec.name == "graphs/demo"
    again = catalog.compile(chain("demo").spec())
    assert again.message == held.message
    assert again is not held, "nothing keeps what was dropped"


def test_graph_too_many_is_refused_and_a_revision_is_none(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "MAX_GRAPHS", 2)
    catalog.install(described(catalog, "new"))
    third = described(catalog, "", name="third")
    with pytest.raises(OmniFlowError, match="2 graphs are installed, and there is no room") as caught:
        catalog.install(third)
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    assert catalog.names() == ["graphs/assistant", "graphs/demo"]
    with pytest.raises(OmniFlowError):
        catalog.take(GraphVersions.first(third.revision), [third])


@pytest.mark.parametrize("others", [{"graphs/x"}, {"graphs/x", "graphs/third"}])
def test_room_is_counted_with_graphs_that_do_not_run_here(
    catalog: Catalog, others: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "MAX_GRAPHS", 3)
    catalog.check_room("graphs/third")
    catalog.check_room("graphs/demo", others)
    with pytest.raises(OmniFlowError, match="no room"):
        catalog.check_room("graphs/third", others)


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
