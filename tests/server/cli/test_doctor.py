"""`omniflow doctor`: what it prints, and its status."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from omniflow_server.launch.doctor import machine
from tests.server.cli.command import CommandLine

pytestmark = pytest.mark.integration

TINY = str(Path(__file__).parents[1] / "launch" / "tiny_flow.py")


def names(text: str) -> list[str]:
    return [finding["check"] for finding in json.loads(text)]


def test_doctor_prints_a_line_per_check_and_ends_in_time(omniflow: CommandLine) -> None:
    began_s = time.monotonic()
    outcome = omniflow("doctor", "--set", "control.listen=127.0.0.1:0")
    assert time.monotonic() - began_s < 5.0
    lines = outcome.out.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warning", "failed"}
    assert outcome.status == int(any(line.startswith("failed") for line in lines))
    assert f"ok      runtime folder {omniflow.folder}/run/default" in outcome.out


def test_doctor_fails_when_a_check_does_and_says_how_to_mend_it(
    omniflow: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "OPEN_FILES_FLOOR", 1 << 40)
    outcome = omniflow("doctor", "--set", "supervisor.metadata=memory")
    assert outcome.status == 1
    line = next(line for line in outcome.out.splitlines() if line.startswith("failed"))
    assert "open files" in line
    assert "-> `ulimit -n " in line


def test_doctor_as_json_has_every_check(omniflow: CommandLine) -> None:
    outcome = omniflow("doctor", "--json", "--flow", TINY, "--set", "supervisor.metadata=memory")
    assert names(outcome.out) == [
        *("python", "system", "open files", "memory files", "shared memory", "gpu", "packages", "interfaces"),
        *("flow", "settings", "runtime folder", "addresses", "store", "clock", "environments", "rdma"),
    ]
    assert set(json.loads(outcome.out)[0]) == {"check", "verdict", "found", "remedy"}


def test_doctor_goes_on_without_settings_and_without_a_flow(omniflow: CommandLine) -> None:
    outcome = omniflow("doctor", "--json", "--flow", "absent.py", "--set", "control.listn=x")
    assert outcome.status == 1
    failed = {f["check"]: f["found"] for f in json.loads(outcome.out) if f["verdict"] == "failed"}
    assert failed["flow"] == "there is no file absent.py"
    assert "control.listn: unknown key" in failed["settings"]
    assert "store" not in names(outcome.out)


def test_doctor_teaches_by_examples(omniflow: CommandLine) -> None:
    assert "omniflow doctor --flow assistant" in omniflow("doctor", "--help").out
