"""The simulation of the bench `balancing`: what it computes, and that its promise holds with a tenth of the work."""

from __future__ import annotations

import pytest

from omniflow_core.graph.spec import Balance
from tests.bench import balancing
from tests.bench.balancing import CASES, FLOOR, Case, Job, choosers, jobs_of, play
from tests.bench.harness.options import Options

ONE = Case(name="one", seconds_per_cost=[2.0], is_burst=False)
TWO = Case(name="two", seconds_per_cost=[1.0, 3.0], is_burst=True)


def job(arrival_s: float, cost: float, session: str = "s") -> Job:
    return Job(arrival_s=arrival_s, cost=cost, session=session, draws=(0.0, 0.0))


@pytest.mark.parametrize("name", choosers())
def test_one_replica_works_its_queue_off_in_order(name: str) -> None:
    """Two seconds a unit: 0 to 2, 2 to 10, then idle until 20."""
    outcome = play(ONE, [job(0.0, 1.0), job(1.0, 4.0), job(20.0, 1.0)], choosers()[name])
    assert (list(outcome.latencies), outcome.makespan) == ([2.0, 9.0, 2.0], 22.0)


@pytest.mark.parametrize("name", [FLOOR, Balance.COST_AWARE.value])
def test_fast_replica_takes_more_of_a_burst(name: str) -> None:
    """Ends on the fast one 1, 2, 3, on the slow one 3: the third job may go to either, the fourth to the other."""
    outcome = play(TWO, [job(0.0, 1.0)] * 4, choosers()[name])
    assert (sorted(outcome.latencies), outcome.makespan) == ([1.0, 2.0, 3.0, 3.0], 3.0)


def test_session_stays_where_it_was() -> None:
    outcome = play(TWO, [job(float(i * 100), 1.0) for i in range(4)], choosers()[Balance.SESSION_AFFINITY.value])
    assert len(set(outcome.latencies)) == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_jobs_of_a_seed_are_the_same_and_load_the_replicas_as_they_should(case: Case) -> None:
    jobs = jobs_of(case, 8000, 3)
    assert jobs == jobs_of(case, 8000, 3) != jobs_of(case, 8000, 4)
    assert 0.18 < sum(job.cost == balancing.LARGE for job in jobs) / 8000 < 0.22
    assert {job.cost for job in jobs} == {balancing.SMALL, balancing.LARGE}
    if case.is_burst:
        assert {job.arrival_s for job in jobs} == {0.0}
    else:
        offered = sum(job.cost for job in jobs) / jobs[-1].arrival_s
        assert offered / sum(1 / seconds for seconds in case.seconds_per_cost) == pytest.approx(0.9, rel=0.05)


async def test_bench_holds_its_promise_and_shows_everybody() -> None:
    report = await balancing.run(Options(rounds=3, is_quick=True))
    assert [row[0] for row in report.rows] == [FLOOR, *(balance.value for balance in Balance)]
    assert [section.title for section in report.sections] == [case.name for case in CASES[1:]]
    assert [check.what for check in report.checks if not check.is_met] == []
    assert len(report.checks) == 12
