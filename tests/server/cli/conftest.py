"""The command line as a fixture."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.server.cli.command import CommandLine


@pytest.fixture
def omniflow(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    """`omniflow("config", "show")`, in an empty folder, with no variable of the machine."""
    for variable in [name for name in os.environ if name.startswith("OMNIFLOW_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("OMNIFLOW_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys=capsys, monkeypatch=monkeypatch, folder=tmp_path)
