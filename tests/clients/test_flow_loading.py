"""Finding a flow by name or in a file."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from omniflow import flow_loading as flows
from omniflow.flow import ENTRY_POINT_GROUP
from omniflow_core.errors import OmniFlowError, Reason

GOOD = """
from omniflow.dsl import Graph
from omniflow.flow import Flow

graph = Graph("empty")
flow = Flow(name="empty", graph=graph, roles=())
other = Flow(name="other", graph=Graph("other"), roles=())
"""


def written(folder: Path, text: str = GOOD) -> Path:
    file = folder / "my_flow.py"
    file.write_text(text)
    return file


def test_load_flow_reads_the_attribute_flow_of_a_file(tmp_path: Path) -> None:
    assert flows.load_flow(str(written(tmp_path))).name == "empty"


def test_load_flow_reads_a_named_attribute(tmp_path: Path) -> None:
    assert flows.load_flow(f"{written(tmp_path)}:other").name == "other"


def test_load_graph_takes_a_flow_or_a_graph(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert flows.load_graph(str(file)) is flows.load_graph(f"{file}:graph")


def test_load_flow_finds_an_entry_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    point = metadata.EntryPoint(name="named", value="omniflow.flow:Flow", group=ENTRY_POINT_GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    with pytest.raises(OmniFlowError, match="named is a type, not a Flow"):
        flows.load_flow("named")
    with pytest.raises(OmniFlowError, match="no flow 'nmed'; did you mean 'named'"):
        flows.load_flow("nmed")


def test_load_flow_names_an_entry_point_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint(name="named", value="no_such_module_anywhere:flow", group=ENTRY_POINT_GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    with pytest.raises(OmniFlowError, match=r"'named' .* cannot be loaded: ModuleNotFoundError: .*no_such_module"):
        flows.load_flow("named")


@pytest.mark.parametrize(
    ("text", "attribute", "message"),
    [
        (GOOD, "missing", "has no 'missing'; it has .*my_flow.py:flow"),
        ("x = 1\n", "flow", r"has no 'flow'; write `flow = Flow\(name="),
        ("x = 1\nflow = 3\n", "flow", "is a int, not a Flow"),
        ("x = 1\ny = x.nothing\n", "flow", r"my_flow.py:2: AttributeError: 'int' object"),
        ("x = 1\n\nx = = 2\n", "flow", r"my_flow.py:3: SyntaxError"),
    ],
)
def test_load_flow_says_what_is_wrong_with_a_file(text: str, attribute: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(OmniFlowError, match=message) as caught:
        flows.load_flow(f"{written(tmp_path, text)}:{attribute}")
    assert caught.value.reason is Reason.INVALID_CONFIG


def test_load_flow_names_a_file_that_is_missing() -> None:
    with pytest.raises(OmniFlowError, match=r"there is no file path/to/flow\.py"):
        flows.load_flow("path/to/flow.py")


def test_absolute_reference_leaves_entry_points_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert flows.absolute_reference("assistant") == "assistant"
    assert flows.absolute_reference("flow.py:other") == f"{tmp_path}/flow.py:other"
