"""Every bench runs, with a tenth of its work; figures are looked at by people, on a quiet machine."""

from __future__ import annotations

import importlib

import pytest

from tests.bench.harness.options import Options

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize("name", ["events", "hops", "memory"])
async def test_bench_runs_and_reports(name: str) -> None:
    bench = importlib.import_module(f"tests.bench.{name}")
    report = await bench.run(Options(rounds=1, is_quick=True))
    assert report.name == name
    assert report.rows
    assert report.checks
    assert report.title in report.text()


@pytest.mark.assistant
async def test_engine_bench_gives_the_same_tokens_through_the_platform() -> None:
    bench = importlib.import_module("tests.bench.engine")
    report = await bench.run(Options(rounds=1, is_quick=True))
    assert [row[0] for row in report.rows] == ["in process", "platform"]
