"""Balancing policies in a simulation: no process, no clock, the same figures on every machine.

    jobs ──▶ policy ──▶ ▢▢▢ ▶ replica 0       eight replicas, one place and a first-in-first-out queue each
                        ▢   ▶ replica 1
                        …                      four jobs of five cost 1, the fifth 4; their order is by chance

*open*: jobs come by chance at nine tenths of what the replicas can do; *burst*: all are there at once. *two speeds*: half of
the replicas take twice as long. A policy is given what a dispatcher knows: loads, sums of costs and the means of `Costs`,
measured from the jobs that have ended and from one job a replica before the clock starts. A job belongs to one of 64
sessions; no replica holds a prefix, so that `kv_aware` has nothing to weigh but loads.

The floor is *greedy by cost*: each job in order to the queue that would end it first, by the work that is really left there.
A policy knows what a job costs as a whole, not what is left of the one that runs.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from omniflow_core.control.balancing import POLICIES, Candidate, Choice
from omniflow_core.graph.spec import Balance
from omniflow_server.control.costs import Costs
from tests.bench.harness import noise
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report, Section
from tests.bench.harness.statistics import median, paired_ratios, percentile

REPLICAS = 8
OPEN_JOBS = 8_000
BURST_JOBS = 400
LOAD = 0.9
SESSIONS = 64
SMALL, LARGE, LARGE_SHARE = 1.0, 4.0, 0.2
FLOOR = "greedy by cost"
AT_MOST = 1.10
"""What `cost_aware` may take, against the floor."""
_NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of a session. Its cost is the seconds that it takes at speed 1."""

    arrival_s: float
    cost: float
    session: str
    draws: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Replicas by the seconds that a unit of cost takes there, and how jobs come."""

    name: str
    seconds_per_cost: Sequence[float]
    is_burst: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one pass, in units of the small job's time."""

    makespan: float
    latencies: Sequence[float]


@dataclass(slots=True)
class Replica:
    """One place and its queue. Jobs leave in the order of their ends."""

    key: str
    seconds_per_cost: float
    jobs: deque[tuple[float, float]] = field(default_factory=deque)
    """End and cost of those that have not ended."""
    cost: float = 0.0

    def end_of(self, job: Job) -> float:
        """When the job would end here."""
        free_s = self.jobs[-1][0] if self.jobs else 0.0
        return max(free_s, job.arrival_s) + job.cost * self.seconds_per_cost

    def take(self, job: Job) -> float:
        end_s = self.end_of(job)
        self.jobs.append((end_s, job.cost))
        self.cost += job.cost
        return end_s

    def finish_until(self, now_s: float, costs: Costs) -> None:
        while self.jobs and self.jobs[0][0] <= now_s:
            _, cost = self.jobs.popleft()
            self.cost = self.cost - cost if self.jobs else 0.0
            costs.observe(_NODE, self.key, cost, cost * self.seconds_per_cost)


Chooser = Callable[[Sequence[Replica], Job, Choice, Costs], int]

EQUAL, HALF_SLOW = [1.0] * REPLICAS, [1.0] * (REPLICAS // 2) + [2.0] * (REPLICAS // 2)
CASES = (
    Case(name="open", seconds_per_cost=EQUAL, is_burst=False),
    Case(name="burst", seconds_per_cost=EQUAL, is_burst=True),
    Case(name="open, two speeds", seconds_per_cost=HALF_SLOW, is_burst=False),
    Case(name="burst, two speeds", seconds_per_cost=HALF_SLOW, is_burst=True),
)


async def run(options: Options) -> Report:
    """The bench."""
    looks = [await noise.look()]
    outcomes = {case.name: _rounds(case, options) for case in CASES}
    looks.append(await noise.look())
    first, *others = CASES
    columns = ["policy", "makespan", "p50", "p99", "makespan / floor", "p50 / floor", "p99 / floor"]
    return Report(
        name="balancing",
        title=f"{first.name}: {REPLICAS} replicas, {options.rounds} rounds; times in units of the small job",
        columns=columns,
        rows=_rows(outcomes[first.name]),
        sections=[Section(title=case.name, columns=columns, rows=_rows(outcomes[case.name])) for case in others],
        checks=[check for case in CASES for check in _checks(case, outcomes[case.name])],
        looks=looks,
        details={name: _as_json(rounds) for name, rounds in outcomes.items()},
    )


def choosers() -> Mapping[str, Chooser]:
    """The policies and the floor, by name."""
    return {FLOOR: _greedy, **{balance.value: _by_policy(balance) for balance in Balance}}


def _greedy(replicas: Sequence[Replica], job: Job, choice: Choice, costs: Costs) -> int:
    return min(range(len(replicas)), key=lambda i: replicas[i].end_of(job))


def _by_policy(balance: Balance) -> Chooser:
    policy = POLICIES[balance]

    def choose(replicas: Sequence[Replica], job: Job, choice: Choice, costs: Costs) -> int:
        return policy(
            [
                Candidate(
                    key=replica.key,
                    load=len(replica.jobs),
                    capacity=1,
                    cost=replica.cost,
                    seconds_per_cost=costs.expected(_NODE, replica.key),
                )
                for replica in replicas
            ],
            choice,
        )

    return choose


def jobs_of(case: Case, count: int, seed: int) -> Sequence[Job]:
    """The jobs of a round, in order of arrival."""
    chance = random.Random(seed)
    work_per_s = sum(1 / seconds for seconds in case.seconds_per_cost)
    mean_cost = SMALL + LARGE_SHARE * (LARGE - SMALL)
    jobs, now_s = [], 0.0
    for _ in range(count):
        if not case.is_burst:
            now_s += chance.expovariate(LOAD * work_per_s / mean_cost)
        cost = LARGE if chance.random() < LARGE_SHARE else SMALL
        session = f"s{chance.randrange(SESSIONS)}"
        jobs.append(Job(arrival_s=now_s, cost=cost, session=session, draws=(chance.random(), chance.random())))
    return jobs


def play(case: Case, jobs: Sequence[Job], choose: Chooser) -> Outcome:
    """One pass."""
    replicas = [Replica(f"r{i}", seconds) for i, seconds in enumerate(case.seconds_per_cost)]
    costs, last = Costs(), dict[str, str]()
    for replica in replicas:
        costs.observe(_NODE, replica.key, SMALL, SMALL * replica.seconds_per_cost)
    latencies, makespan = [], 0.0
    for turn, job in enumerate(jobs):
        for replica in replicas:
            replica.finish_until(job.arrival_s, costs)
        choice = Choice(turn=turn, affinity=job.session, draws=job.draws, cost=job.cost, last=last.get(job.session, ""))
        taken = replicas[choose(replicas, job, choice, costs)]
        last[job.session] = taken.key
        end_s = taken.take(job)
        latencies.append(end_s - job.arrival_s)
        makespan = max(makespan, end_s)
    return Outcome(makespan=makespan, latencies=latencies)


Rounds = Mapping[str, Sequence[Outcome]]
"""By contestant."""

FIGURES: Mapping[str, Callable[[Outcome], float]] = {
    "makespan": lambda outcome: outcome.makespan,
    "p50": lambda outcome: percentile(outcome.latencies, 0.5),
    "p99": lambda outcome: percentile(outcome.latencies, 0.99),
}


def _rounds(case: Case, options: Options) -> Rounds:
    """Everybody plays the same jobs in a round; each round has its own."""
    count = options.scaled(BURST_JOBS if case.is_burst else OPEN_JOBS)
    done: dict[str, list[Outcome]] = {name: [] for name in choosers()}
    for seed in range(options.rounds):
        jobs = jobs_of(case, count, seed)
        for name, choose in choosers().items():
            done[name].append(play(case, jobs, choose))
    return done


def figures(rounds: Rounds, name: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Medians over the rounds, and medians of the ratios to the floor of the same round."""
    values = {figure: [of(outcome) for outcome in rounds[name]] for figure, of in FIGURES.items()}
    floors = {figure: [of(outcome) for outcome in rounds[FLOOR]] for figure, of in FIGURES.items()}
    return (
        {figure: median(values[figure]) for figure in FIGURES},
        {figure: median(paired_ratios(values[figure], floors[figure])) for figure in FIGURES},
    )


def _rows(rounds: Rounds) -> Sequence[Sequence[str]]:
    rows = []
    for name in rounds:
        values, ratios = figures(rounds, name)
        rows.append([name, *(f"{value:.1f}" for value in values.values()), *(f"{r:.2f}" for r in ratios.values())])
    return rows


def _checks(case: Case, rounds: Rounds) -> Sequence[Check]:
    _, ratios = figures(rounds, Balance.COST_AWARE.value)
    return [
        Check(what=f"{case.name}: {figure} of cost_aware against the floor", value=ratios[figure], at_most=AT_MOST)
        for figure in FIGURES
    ]


def _as_json(rounds: Rounds) -> Mapping[str, object]:
    return {name: dict(zip(("figures", "ratios"), figures(rounds, name), strict=True)) for name in rounds}
