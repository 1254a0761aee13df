"""What every policy promises, and which promise what."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniflow_core.control.balancing import POLICIES, Candidate, Choice, choose
from omniflow_core.graph.spec import Balance

ALL = pytest.mark.parametrize("policy", Balance, ids=lambda policy: policy.value)

LOAD = {"load": 1, "foreign_load": 1}
LOOKS_AT: Mapping[Balance, Mapping[str, float]] = {
    Balance.ROUND_ROBIN: {},
    Balance.RANDOM: {},
    Balance.LEAST_LOADED: LOAD,
    Balance.POWER_OF_TWO: LOAD,
    Balance.CONSISTENT_HASH: {},
    Balance.SESSION_AFFINITY: {},
    Balance.COST_AWARE: {"cost": 0.5, "foreign_cost": 0.5, "seconds_per_cost": 0.1},
    Balance.KV_AWARE: {**LOAD, "resident_tokens": -1, "transfer_cost": 0.001},
}
"""By policy: how much more of a figure makes a candidate the worse of two."""
FIGURES = {figure for figures in LOOKS_AT.values() for figure in figures} | {"capacity"}
IN_TURN = {Balance.ROUND_ROBIN, Balance.LEAST_LOADED, Balance.COST_AWARE, Balance.KV_AWARE}
BY_CHANCE = {Balance.RANDOM, Balance.POWER_OF_TWO}
BY_AFFINITY = {Balance.CONSISTENT_HASH, Balance.SESSION_AFFINITY}
AFFINE = pytest.mark.parametrize("policy", [policy for policy in Balance if policy in BY_AFFINITY])
HIGHEST_DRAW = math.nextafter(1.0, 0.0)


def equals(count: int) -> list[Candidate]:
    return [
        Candidate(key=f"r{i}", load=3, foreign_load=2, cost=4.0, seconds_per_cost=2.0, resident_tokens=50)
        for i in range(count)
    ]


def choices(count: int, seed: int = 1) -> list[Choice]:
    """As many as a node makes one after another, each for a session of its own."""
    chance = random.Random(seed)
    return [
        Choice(turn=i, affinity=f"s{i}", draws=(chance.random(), chance.random()), prefix_tokens=100)
        for i in range(count)
    ]


candidate = st.builds(
    Candidate,
    key=st.just(""),
    load=st.integers(0, 50),
    foreign_load=st.integers(0, 50),
    capacity=st.integers(0, 8),
    cost=st.floats(0, 1e6),
    foreign_cost=st.floats(0, 1e6),
    seconds_per_cost=st.sampled_from([0.0, 0.001, 0.01, 1.0]),
    resident_tokens=st.integers(0, 5000),
    transfer_cost=st.floats(0, 10),
)
draw = st.one_of(st.floats(0, 1, exclude_max=True), st.just(HIGHEST_DRAW))


@st.composite
def rolls(draw_from: st.DrawFn) -> Sequence[Candidate]:
    made = draw_from(st.lists(candidate, min_size=1, max_size=64))
    return [dataclasses.replace(one, key=f"r{i}") for i, one in enumerate(made)]


chosen_for = st.builds(
    Choice,
    turn=st.integers(0, 2**40),
    affinity=st.text(max_size=8),
    draws=st.tuples(draw, draw),
    cost=st.floats(0.001, 1e6),
    prefix_tokens=st.integers(0, 5000),
    last=st.sampled_from(["", "r0", "r3", "gone"]),
)


def test_every_policy_has_a_function_and_a_contract() -> None:
    assert set(POLICIES) == set(Balance) == set(LOOKS_AT) == IN_TURN | BY_CHANCE | BY_AFFINITY


@ALL
def test_choice_is_one_of_the_candidates(policy: Balance) -> None:
    for count in range(1, 65):
        for draws in ((0.0, 0.0), (HIGHEST_DRAW, HIGHEST_DRAW), (0.0, HIGHEST_DRAW), (0.5, 0.5)):
            for turn in (0, count - 1, count, 1000):
                index = choose(policy, equals(count), Choice(turn=turn, affinity="s", draws=draws))
                assert 0 <= index < count


@ALL
@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(candidates=rolls(), choice=chosen_for)
def test_same_input_gives_the_same_choice(policy: Balance, candidates: Sequence[Candidate], choice: Choice) -> None:
    index = choose(policy, candidates, choice)
    assert 0 <= index < len(candidates)
    assert choose(policy, tuple(map(dataclasses.replace, candidates)), dataclasses.replace(choice)) == index


@ALL
@pytest.mark.parametrize("figure", sorted(FIGURES))
@pytest.mark.parametrize("count", [2, 5])
def test_less_of_what_a_policy_looks_at_wins_and_nothing_else_matters(policy: Balance, figure: str, count: int) -> None:
    worse = LOOKS_AT[policy].get(figure, 0)
    for best in range(count):
        rest = [
            dataclasses.replace(one, **{figure: getattr(one, figure) + (worse or 1)}) if i != best else one
            for i, one in enumerate(equals(count))
        ]
        taken = [choose(policy, rest, choice) for choice in choices(40)]
        if not worse:
            assert taken == [choose(policy, equals(count), choice) for choice in choices(40)]
        elif policy is Balance.POWER_OF_TWO and count > 2:
            assert Counter(taken).most_common(1)[0][0] == best, "it wins whenever it is drawn"
        else:
            assert set(taken) == {best}


@ALL
def test_equal_candidates_share_ten_thousand_choices(policy: Balance) -> None:
    count, total = 8, 10_000
    shares = Counter(choose(policy, equals(count), choice) for choice in choices(total))
    if policy in IN_TURN:
        assert set(shares.values()) == {total // count}
        return
    sigma = math.sqrt(total * (1 / count) * (1 - 1 / count))
    assert set(shares) == set(range(count))
    assert all(abs(share - total / count) <= 3 * sigma for share in shares.values()), shares


@AFFINE
def test_removal_moves_only_the_affinities_that_it_had(policy: Balance) -> None:
    all_of, gone = equals(9), 4
    rest = [one for i, one in enumerate(all_of) if i != gone]
    moved = 0
    for choice in choices(2000):
        before = all_of[choose(policy, all_of, choice)].key
        after = rest[choose(policy, rest, choice)].key
        assert before in (after, f"r{gone}")
        moved += before != after
    assert 2000 / 9 * 0.75 < moved < 2000 / 9 * 1.25


@AFFINE
def test_addition_moves_only_the_affinities_that_it_takes(policy: Balance) -> None:
    few, more = equals(8), equals(9)
    moved = 0
    for choice in choices(2000):
        before, after = few[choose(policy, few, choice)].key, more[choose(policy, more, choice)].key
        assert after in (before, "r8")
        moved += before != after
    assert 2000 / 9 * 0.75 < moved < 2000 / 9 * 1.25


def test_session_affinity_stays_where_it_was_while_others_come_and_go() -> None:
    for choice in choices(200):
        few = equals(8)
        last = few[choose(Balance.SESSION_AFFINITY, few, choice)].key
        known = dataclasses.replace(choice, last=last)
        for count in (9, 20, 64):
            more = equals(count)[::-1]
            assert more[choose(Balance.SESSION_AFFINITY, more, known)].key == last
        without = [one for one in few if one.key != last]
        assert choose(Balance.SESSION_AFFINITY, without, known) == choose(Balance.CONSISTENT_HASH, without, known)


@AFFINE
def test_order_of_candidates_does_not_matter_to_an_affinity(policy: Balance) -> None:
    for choice in choices(100):
        forth, back = equals(7), equals(7)[::-1]
        assert forth[choose(policy, forth, choice)].key == back[choose(policy, back, choice)].key


@ALL
def test_nobody_starves(policy: Balance) -> None:
    """While work piles up everybody gets some, also the slow one, and all but the one that holds every prefix."""
    candidates = equals(16)
    candidates[3] = dataclasses.replace(candidates[3], seconds_per_cost=20.0)
    candidates[5] = dataclasses.replace(candidates[5], resident_tokens=5000)
    taken: Counter[int] = Counter()
    for choice in choices(3200):
        index = choose(policy, candidates, dataclasses.replace(choice, prefix_tokens=5000))
        one = candidates[index]
        candidates[index] = dataclasses.replace(one, load=one.load + 1, cost=one.cost + choice.cost)
        taken[index] += 1
    assert min(taken[i] for i in range(16) if i != 3) >= 100
    assert taken[3] >= (15 if policy is Balance.COST_AWARE else 100)
