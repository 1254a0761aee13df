"""What single policies choose beyond the contract that all keep."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from omniflow_core.control.balancing import (
    POLICIES,
    CallReplicas,
    Candidate,
    Choice,
    choose,
    kv_aware,
)
from omniflow_core.graph.spec import Balance
from tests.support.graphs import node

properties = settings(max_examples=150, derandomize=True, deadline=None, database=None)


def asked(turn: int = 0, draws: tuple[float, float] = (0.0, 0.0), **rest: float) -> Choice:
    return Choice(turn=turn, affinity="s", draws=draws, **rest)  # type: ignore[arg-type]


def loaded(*loads: int) -> list[Candidate]:
    return [Candidate(key=f"r{i}", load=load) for i, load in enumerate(loads)]


def test_round_robin_goes_round_whatever_the_load() -> None:
    taken = [choose(Balance.ROUND_ROBIN, loaded(9, 0, 0), asked(turn)) for turn in range(7)]
    assert taken == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(("draw", "index"), [(0.0, 0), (0.249, 0), (0.25, 1), (0.5, 2), (0.999, 3)])
def test_random_takes_the_one_that_the_draw_falls_on(draw: float, index: int) -> None:
    assert choose(Balance.RANDOM, loaded(9, 9, 9, 0), asked(draws=(draw, 0.9))) == index


def test_least_loaded_counts_what_other_control_planes_sent() -> None:
    candidates = [Candidate(key="a", load=0, foreign_load=5), Candidate(key="b", load=4)]
    assert choose(Balance.LEAST_LOADED, candidates, asked()) == 1


def test_least_loaded_takes_equals_in_turn_and_skips_the_busy() -> None:
    taken = [choose(Balance.LEAST_LOADED, loaded(1, 2, 1, 1), asked(turn)) for turn in range(8)]
    assert taken == [0, 2, 2, 3, 0, 2, 2, 3]


def test_power_of_two_takes_the_less_loaded_of_two_different_ones() -> None:
    drawn = {
        (first, second): choose(
            Balance.POWER_OF_TWO, loaded(0, 1, 2, 3), asked(draws=((first + 0.5) / 4, (second + 0.5) / 3))
        )
        for first in range(4)
        for second in range(3)
    }
    pairs = {(first, second): {first, second + (second >= first)} for first, second in drawn}
    assert all(len(pair) == 2 for pair in pairs.values())
    assert drawn == {place: min(pair) for place, pair in pairs.items()}
    assert Counter(drawn.values()) == {0: 6, 1: 4, 2: 2}, "the most loaded one is never taken"


def test_power_of_two_takes_the_first_of_equals() -> None:
    assert choose(Balance.POWER_OF_TWO, loaded(1, 1, 1), asked(draws=(0.9, 0.0))) == 2
    assert choose(Balance.POWER_OF_TWO, loaded(1, 1, 1), asked(draws=(0.0, 0.9))) == 0


def test_power_of_two_is_far_more_even_than_random() -> None:
    """Balls into bins: the fullest of 64 is a few above the mean of 20, not a dozen."""
    chance = random.Random(3)
    fullest = {}
    for policy in (Balance.RANDOM, Balance.POWER_OF_TWO):
        loads = [0] * 64
        for turn in range(64 * 20):
            draws = (chance.random(), chance.random())
            loads[choose(policy, loaded(*loads), asked(turn, draws))] += 1
        fullest[policy] = max(loads)
    assert fullest[Balance.POWER_OF_TWO] <= 23
    assert fullest[Balance.RANDOM] >= 29


@properties
@given(
    loads=st.lists(st.integers(0, 100), min_size=2, max_size=20),
    draws=st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)),
)
def test_power_of_two_never_takes_the_one_that_is_more_loaded_than_all(
    loads: list[int], draws: tuple[float, float]
) -> None:
    assume(loads.count(max(loads)) == 1)
    assert loads[choose(Balance.POWER_OF_TWO, loaded(*loads), asked(draws=draws))] < max(loads)


# --- cost aware -------------------------------------------------------------------------------------------------------


def costing(*costs: float, seconds: Sequence[float] = ()) -> list[Candidate]:
    speeds = seconds or [0.0] * len(costs)
    return [
        Candidate(key=f"r{i}", load=0, cost=cost, seconds_per_cost=speed)
        for i, (cost, speed) in enumerate(zip(costs, speeds, strict=True))
    ]


def test_cost_aware_prefers_a_longer_queue_of_cheap_activations() -> None:
    candidates = [Candidate(key="a", load=3, cost=3.0), Candidate(key="b", load=1, cost=4.0)]
    assert choose(Balance.COST_AWARE, candidates, asked()) == 0
    assert choose(Balance.LEAST_LOADED, candidates, asked()) == 1


@pytest.mark.parametrize(("cost", "index"), [(1.0, 0), (1.9, 0), (2.1, 1), (10.0, 1)])
def test_cost_aware_weighs_a_free_slow_replica_against_a_busy_fast_one(cost: float, index: int) -> None:
    """Free, 3 s a unit, against 4 units ahead at 1 s: equal at (0 + c) * 3 = (4 + c) * 1, c = 2."""
    assert choose(Balance.COST_AWARE, costing(0.0, 4.0, seconds=[3.0, 1.0]), asked(cost=cost)) == index


@pytest.mark.parametrize(("ahead", "index"), [(0.9, 1), (1.1, 0)])
def test_cost_aware_takes_an_unknown_speed_for_the_mean_of_the_known(ahead: float, index: int) -> None:
    """Known 1 and 5, so the unknown is 3: behind `ahead` it ends at 3 * (ahead + 1), the first at 5 + 1 = 6."""
    candidates = costing(5.0, ahead, 9.0, seconds=[1.0, 0.0, 5.0])
    assert choose(Balance.COST_AWARE, candidates, asked()) == index


def test_cost_aware_without_any_speed_goes_by_cost_and_takes_equals_in_turn() -> None:
    assert choose(Balance.COST_AWARE, costing(5.0, 4.0, 6.0), asked()) == 1
    assert [choose(Balance.COST_AWARE, costing(2.0, 2.0, 9.0, 2.0), asked(turn)) for turn in range(4)] == [0, 1, 3, 3]


@properties
@given(
    queues=st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e5), st.floats(1e-4, 1e3)), min_size=1, max_size=20),
    cost=st.floats(1e-3, 1e5),
    turn=st.integers(0, 1000),
)
def test_cost_aware_choice_would_be_done_first(
    queues: list[tuple[float, float, float]], cost: float, turn: int
) -> None:
    candidates = [
        Candidate(key=f"r{i}", load=0, cost=own, foreign_cost=foreign, seconds_per_cost=speed)
        for i, (own, foreign, speed) in enumerate(queues)
    ]
    ends = [(own + foreign + cost) * speed for own, foreign, speed in queues]
    assert ends[choose(Balance.COST_AWARE, candidates, asked(turn, cost=cost))] == min(ends)


# --- KV aware ---------------------------------------------------------------------------------------------------------


def test_kv_aware_goes_to_the_prefix_until_its_queue_is_longer_than_computing_it() -> None:
    tokens_of_a_place = kv_aware.SECONDS_PER_ACTIVATION / kv_aware.SECONDS_PER_TOKEN
    for queue in range(1, 6):
        holder = Candidate(key="a", load=queue, resident_tokens=10_000)
        other = Candidate(key="b", load=0)
        longer, shorter = int(tokens_of_a_place * queue) + 1, int(tokens_of_a_place * queue)
        assert choose(Balance.KV_AWARE, [other, holder], asked(prefix_tokens=longer)) == 1
        assert choose(Balance.KV_AWARE, [other, holder], asked(prefix_tokens=shorter)) == 0


def test_kv_aware_counts_no_more_tokens_than_the_prefix_has() -> None:
    much, enough = (Candidate(key=key, load=0, resident_tokens=tokens) for key, tokens in (("a", 9000), ("b", 100)))
    assert [choose(Balance.KV_AWARE, [much, enough], asked(turn, prefix_tokens=100)) for turn in range(2)] == [0, 1]


def test_kv_aware_pays_for_a_transfer_only_when_it_is_shorter() -> None:
    near = Candidate(key="a", load=0, transfer_cost=0.5, resident_tokens=1000)
    far = Candidate(key="b", load=0)
    half_a_second = int(0.5 / kv_aware.SECONDS_PER_TOKEN)
    assert choose(Balance.KV_AWARE, [near, far], asked(prefix_tokens=half_a_second + 1)) == 0
    assert choose(Balance.KV_AWARE, [near, far], asked(prefix_tokens=half_a_second - 1)) == 1


def test_kv_aware_without_signals_is_the_least_loaded() -> None:
    chance = random.Random(2)
    for turn in range(300):
        candidates = loaded(*(chance.randrange(4) for _ in range(6)))
        choice = asked(turn, prefix_tokens=500)
        assert choose(Balance.KV_AWARE, candidates, choice) == choose(Balance.LEAST_LOADED, candidates, choice)


# --- what a call keeps ------------------------------------------------------------------------------------------------


def test_call_chooses_by_all_that_is_known_and_keeps_to_it() -> None:
    sticky = node("b", is_inline=False, role="worker", balance=Balance.SESSION_AFFINITY)
    replicas = CallReplicas()
    found = replicas.replica_for(sticky, loaded(0, 0, 0), Choice(turn=0, affinity="s", draws=(0, 0), last="r2"))
    assert found == loaded(0, 0, 0)[2]
    again = replicas.replica_for(sticky, loaded(0, 0, 0), Choice(turn=1, affinity="s", draws=(0, 0), last="r0"))
    assert again == found
    assert replicas.kept(sticky) == "r2"


def test_choice_without_candidates_is_a_fault_of_the_caller() -> None:
    for policy in POLICIES:
        with pytest.raises(AssertionError, match="needs candidates"):
            choose(policy, [], asked())
