"""Interleaved rounds."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.bench.harness import noise
from tests.bench.harness.contest import CLIENT, Contestant, Results, Round, Work, compete
from tests.bench.harness.noise import Noise, look, summary
from tests.bench.harness.options import Options

QUIET = Noise(
    busy_share=0.0, spin_wall_ms=10.0, spin_cpu_ms=10.0, timer_late_p50_ms=0.1, timer_late_p99_ms=0.2, load=0.5
)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    async def quiet_look() -> Noise:
        return QUIET

    monkeypatch.setattr(noise, "look", quiet_look)


def contestant(name: str, log: list[str], work: Callable[[], Work] = lambda: Work(count=1)) -> Contestant:
    async def run() -> Work:
        log.append(name)
        return work()

    return Contestant(name=name, run=run)


async def test_contest_warms_up_and_then_rotates_who_begins() -> None:
    log: list[str] = []
    await compete([contestant(name, log) for name in "ABC"], Options(rounds=3))
    assert "".join(log) == "ABC" + "ABC" + "BCA" + "CAB"


async def test_contest_does_not_time_the_warm_up() -> None:
    results = await compete([contestant("A", [])], Options(rounds=2), warmups=5)
    assert (len(results.rounds["A"]), len(results.looks)) == (2, 2)


async def test_contest_goes_on_without_an_optional_contestant_that_fails() -> None:
    log: list[str] = []

    async def fail() -> Work:
        log.append("B")
        raise RuntimeError("no such device")

    fails = Contestant(name="B", run=fail, is_optional=True)
    results = await compete([contestant("A", log), fails, contestant("C", log)], Options(rounds=2))
    assert "".join(log) == "ABC" + "AC" + "CA"
    assert set(results.rounds) == {"A", "C"}
    assert results.failures == {"B": "no such device"}


async def test_contest_ends_when_another_contestant_fails() -> None:
    async def fail() -> Work:
        raise RuntimeError("no such device")

    with pytest.raises(RuntimeError, match="no such device"):
        await compete([Contestant(name="A", run=fail)], Options(rounds=2))


async def test_contest_measures_the_processes_that_take_part() -> None:
    async def spin() -> Work:
        sum(range(300_000))
        return Work(count=10)

    spinner = Contestant(name="A", run=spin, processes={"again": os.getpid()})
    (round,) = (await compete([spinner], Options(rounds=1))).rounds["A"]
    assert set(round.cpu_s) == {CLIENT, "again"}
    assert 0.0 < round.cpu_s[CLIENT] <= round.wall_s * 1.5
    assert round.per_s == 10 / round.wall_s


async def test_contest_takes_the_wall_time_that_a_contestant_measured() -> None:
    results = await compete([contestant("A", [], lambda: Work(count=6, figures={"wall_s": 2.0}))], Options(rounds=1))
    assert results.rates("A") == [3.0]


def test_results_compare_contestants_round_by_round() -> None:
    def rounds(*walls_s: float) -> list[Round]:
        return [Round(work=Work(count=12), wall_s=wall_s, cpu_s={CLIENT: 0.000024}) for wall_s in walls_s]

    results = Results({"floor": rounds(1.0, 4.0, 2.0), "ours": rounds(2.0, 4.0, 8.0)}, [QUIET])
    assert results.rate_ratio("ours", "floor") == 0.5
    assert results.cpu_us("ours") == {CLIENT: pytest.approx(2.0)}


async def test_noise_is_looked_at_in_little_time() -> None:
    seen = await look()
    assert 0 < seen.spin_cpu_ms <= seen.spin_wall_ms * 1.5
    assert seen.timer_late_p50_ms <= seen.timer_late_p99_ms
    assert set(summary([QUIET, seen])) >= {"spin_slowdown_max", "timer_late_p99_ms", "load_last"}
