"""Every bench runs, with a tenth of its work; figures are looked at by people, on a quiet machine."""

from __future__ import annotations

import importlib

import pytest

from tests.bench import __main__ as command
from tests.bench.control.lanes import GRPC
from tests.bench.harness.options import Options
from tests.bench.profiling.__main__ import profile

QUICK = Options(rounds=1, is_quick=True)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ["core", "events", "hops", "yields", "memory"])
async def test_bench_runs_and_reports(name: str) -> None:
    bench = importlib.import_module(f"tests.bench.{name}")
    report = await bench.run(QUICK)
    assert report.name == name
    assert report.rows
    assert report.checks
    assert report.title in report.text()


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_control_bench_runs_every_way_to_the_roles_and_says_that_peers_did_not_take_part() -> None:
    bench = importlib.import_module("tests.bench.control")
    report = await bench.run(QUICK)
    assert len(report.rows) == len(bench.TOPOLOGIES) * 5
    assert set(report.not_run) == {"peers"}
    assert [note.startswith("not looked at") for note in report.notes] == [True] * 4


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ["fan5", "tokens"])
async def test_profile_names_the_functions_of_a_control_plane_and_a_role(name: str) -> None:
    lines = "\n".join(await profile(name, GRPC, requests=200, events=20_000))
    assert lines.count("with what it calls") == 4
    assert "server/omniflow_server/control/call.py" in lines
    assert "roles/omniflow_roles/harness" in lines


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.assistant
async def test_engine_bench_gives_the_same_tokens_through_the_platform() -> None:
    bench = importlib.import_module("tests.bench.engine")
    report = await bench.run(QUICK)
    assert [row[0] for row in report.rows] == ["in process", "platform"]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.assistant
@pytest.mark.timeout(600)
async def test_decoding_bench_runs_without_llama_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    bench = importlib.import_module("tests.bench.decoding")
    monkeypatch.delenv("OMNIFLOW_ENVIRONMENTS_LLAMA", raising=False)
    report = await bench.run(QUICK)
    names = [row[0] for row in report.rows]
    assert {"decode 1, engine int8", "decode 32, generate() float32", "first token, loaded, engine int8"} <= set(names)
    assert not any("llama" in name for name in names)
    assert any("OMNIFLOW_ENVIRONMENTS_LLAMA" in note for note in report.notes)
    (agreed,) = (note for note in report.notes if note.startswith("tokens, of 24"))
    assert "engine float32 24" in agreed


@pytest.mark.parametrize("name", command.BENCHES)
def test_bench_is_imported_in_any_environment(name: str) -> None:
    assert callable(importlib.import_module(f"tests.bench.{name}").run)


def test_all_benches_leave_out_what_cannot_run_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "NEEDS", {"decoding": "no_such_package", "hops": "json"})
    missing = command.missing_packages()
    assert command.names_of_all(missing) == [name for name in command.BENCHES if name != "decoding"]
    assert capsys.readouterr().out.startswith("decoding: left out, it needs no_such_package")


def test_bench_that_cannot_run_here_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "NEEDS", {"decoding": "no_such_package"})
    with pytest.raises(SystemExit):
        command.main(["decoding"])
    assert "decoding needs no_such_package" in capsys.readouterr().err
