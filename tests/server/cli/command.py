"""Running a command line in this process, as a person would: what it prints and its status."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from omniflow_server.cli import app


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command did."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """Runs `omniflow ...` with a runtime folder of its own."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    folder: Path

    def __call__(self, *arguments: str) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", ["omniflow", *arguments])
        with pytest.raises(SystemExit) as ended:
            app.run()
        printed = self.capsys.readouterr()
        return Outcome(status=int(ended.value.code or 0), out=printed.out, err=printed.err)
