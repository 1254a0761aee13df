"""What a bench prints and writes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.bench.harness import report
from tests.bench.harness.noise import Noise
from tests.bench.harness.report import Check, Report, Section, table

QUIET = Noise(
    busy_share=0.0, spin_wall_ms=10.0, spin_cpu_ms=10.0, timer_late_p50_ms=0.1, timer_late_p99_ms=0.2, load=0.5
)


def example() -> Report:
    return Report(
        name="example",
        title="an example",
        columns=["contestant", "per s"],
        rows=[["floor", "10"], ["ours", "9"]],
        checks=[Check(what="ours against the floor", value=0.9, at_least=0.8), Check(what="RSS", value=81, at_most=80)],
        looks=[QUIET],
        details={"floor": {"per_s": 10}},
    )


@pytest.mark.parametrize(
    ("check", "is_met"),
    [
        (Check(what="x", value=0.8, at_least=0.8), True),
        (Check(what="x", value=0.79, at_least=0.8), False),
        (Check(what="x", value=3.0, at_most=3.0), True),
        (Check(what="x", value=3.1, at_most=3.0), False),
    ],
    ids=["just enough", "too little", "just not too much", "too much"],
)
def test_check_holds_its_bound(check: Check, is_met: bool) -> None:
    assert check.is_met is is_met
    assert check.is_broken is not is_met


def test_check_of_an_aim_breaks_no_promise() -> None:
    check = Check(what="hop", value=3.0, at_most=2.0, is_promised=False)
    assert (check.is_met, check.is_broken) == (False, False)
    assert str(check).strip() == "hop: 3 x (aim <= 2 x)"


def test_table_aligns_numbers_to_the_right() -> None:
    assert table(["name", "n"], [["a", "100"], ["longer", "2"]]) == [
        "name      n",
        "------  ---",
        "a       100",
        "longer    2",
    ]


def test_report_says_what_holds_and_what_does_not() -> None:
    lines = example().text().splitlines()
    assert lines[0] == "an example"
    assert any(line.startswith("ok ") and "ours against the floor: 0.9" in line for line in lines)
    assert any(line.startswith("MISS") and "RSS: 81" in line for line in lines)
    assert lines[-1].startswith("noise: others 0% of the CPU typical")


def test_report_shows_further_tables_and_what_did_not_run() -> None:
    more = Section(title="streams", columns=["kind", "per s"], rows=[["raw", "5"]])
    report = dataclasses.replace(example(), sections=[more], not_run={"peer": "cannot be installed"}, notes=["a note"])
    lines = report.text().splitlines()
    assert lines[lines.index("streams") + 3] == "raw       5"
    assert lines[-3:-1] == ["NOT RUN  peer: cannot be installed", "a note"]


def test_report_writes_everything_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    content = json.loads(dataclasses.replace(example(), not_run={"peer": "no wheel"}).write().read_text())
    assert content["bench"] == "example"
    assert content["not_run"] == {"peer": "no wheel"}
    assert [check["is_met"] for check in content["checks"]] == [True, False]
    assert content["results"] == {"floor": {"per_s": 10}}
    assert content["noise"]["summary"]["spin_slowdown_max"] == 1.0
    assert content["machine"]["grpcio"]
