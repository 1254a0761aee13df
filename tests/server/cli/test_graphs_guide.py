"""The guide to graphs says what is so: its graphs run and give what it says, its commands print what it shows."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

import omniflow
from omniflow.codec.common import value_from_proto
from omniflow.codec.workflow import graph_spec_from_proto
from omniflow.values import Media, Value
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.graph.plan import find_faults
from tests.server.cli import guide
from tests.server.cli.command import CommandLine
from tests.server.control.planes import ended, events, plane, start
from tests.server.launch.installed import Installed

FIXTURE = Path(__file__).parents[2] / "vectors" / "data" / "graph_spec_figure4.binpb"
PROMISES = list(guide.promises())
SESSIONS = list(guide.sessions())


def test_guide_has_what_its_tests_look_for() -> None:
    graphs = {promise.graph.name for promise in PROMISES}
    assert graphs == {"loud", "cards", "greet", "agent", "speech", "book", "count", "figure4"}
    text = guide.GUIDE.read_text(encoding="utf-8")
    assert len(PROMISES) == sum(line.startswith("# ") and " -> " in line for line in text.splitlines())
    assert len(SESSIONS) == text.count("\n$ omniflow ")


@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_graph_can_run(promise: guide.Promise) -> None:
    assert list(find_faults(graph_spec_from_proto(promise.graph.spec()))) == []


@pytest.mark.parametrize("promise", PROMISES, ids=str)
async def test_graph_gives_what_the_guide_says(promise: guide.Promise) -> None:
    spec = inline(promise.graph.spec())
    async with plane(*promise.graph.interfaces.values()) as made:
        await made.install(made.catalog.compile(spec))
        call = await ended(start(made, promise.graph.name, **promise.inputs))
        found = events(call)
    assert found[-1].WhichOneof("event") == "finished", found[-1]
    outputs: dict[str, list[str]] = {}
    for event in found:
        if event.WhichOneof("event") == "value":
            outputs.setdefault(event.field, []).append(shown(value_from_proto(event.value, path=event.field)))
    assert outputs == promise.outputs


@pytest.mark.integration
@pytest.mark.timeout(180)
async def test_figure4_runs_in_processes_of_its_own() -> None:
    with tempfile.TemporaryDirectory(prefix="of-") as folder:  # short enough for sockets
        command = Installed(folder=Path(folder))
        (command.folder / "figure4.py").write_text(guide.figure4())
        try:
            command("up", "figure4.py", "--detach", "--listen", "127.0.0.1:0")
            async with omniflow.connect(command.status()["target"]) as client:
                for promise in (promise for promise in PROMISES if promise.graph.name == "figure4"):
                    result = await client.run("figure4", inputs=promise.inputs)
                    assert {
                        name: list(map(shown, values)) for name, values in result.outputs.items()
                    } == promise.outputs
        finally:
            command("down")


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.command)
def test_command_prints_what_the_guide_shows(
    session: guide.Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in [name for name in os.environ if name.startswith("OMNIFLOW_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    for name, text in session.files.items():
        (tmp_path / name).write_text(text)
    command, *arguments = session.command.split()
    assert command == "omniflow"
    outcome = CommandLine(capsys=capsys, monkeypatch=monkeypatch, folder=tmp_path)(*arguments)
    printed = outcome.out + outcome.err
    shown_parts = session.printed.split("...\n")
    assert "...\n".join(part if part in printed else "" for part in shown_parts) == session.printed
    assert len(shown_parts) > 1 or printed == session.printed


def test_figure4_is_the_golden_fixture() -> None:
    """Clients of other languages build the same message: see clients/go/graph_spec_test.go."""
    (graph,) = {promise.graph for promise in PROMISES if promise.graph.name == "figure4"}
    assert graph.spec() == graph_spec_pb2.GraphSpec.FromString(FIXTURE.read_bytes()), (
        "run tests/vectors/write_vectors.py"
    )


def inline(spec: graph_spec_pb2.GraphSpec) -> graph_spec_pb2.GraphSpec:
    """The graph without its roles, so that one process runs it."""
    for node in spec.nodes:
        node.role, node.is_inline = "", True
    return spec


def shown(value: Value) -> str:
    return bytes(value.data).decode() if isinstance(value, Media) else str(value)
