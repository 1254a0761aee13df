"""Random numbers that depend on their place alone."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from omniflow_roles.engines.sampling.seeds import draw_key, request_seed, uniform
from tests.roles.engines.sampling.chi_square import fits

SEEDS = st.integers(min_value=0, max_value=2**64 - 1)


def test_uniform_is_the_output_of_splitmix64() -> None:
    """The published generator's first numbers from state 1234567, of which the upper 53 bits are used."""
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [uniform(1234567, position) for position in range(5)] == [(value >> 11) / 2**53 for value in published]


def test_uniform_of_a_seed_does_not_change_between_versions() -> None:
    """A caller who keeps a seed keeps a text."""
    assert [uniform(draw_key(42, completion), 0) for completion in (0, 1)] == [0.7720564905202446, 0.5393434884677732]


@given(seed=SEEDS, completion=st.integers(0, 63), position=st.integers(0, 2**20))
def test_uniform_is_at_least_zero_and_less_than_one(seed: int, completion: int, position: int) -> None:
    key = draw_key(seed, completion)
    assert 0.0 <= uniform(key, position) < 1.0
    assert uniform(key, position) == uniform(draw_key(seed, completion), position)


def test_uniform_is_less_than_one_for_the_largest_value() -> None:
    assert (2**64 - 1 >> 11) * 2.0**-53 < 1.0


def test_keys_of_seeds_and_completions_differ() -> None:
    seeds = [0, 1, 2, 3, 63, 2**32, 2**63, 2**64 - 1]
    keys = [draw_key(seed, completion) for seed, completion in itertools.product(seeds, range(64))]
    assert len(set(keys)) == len(keys)


def test_uniform_is_uniform_over_positions_completions_and_seeds() -> None:
    places = {
        "positions": [uniform(draw_key(1, 0), position) for position in range(20_000)],
        "completions": [uniform(draw_key(seed, completion), 0) for seed in range(320) for completion in range(64)],
        "seeds": [uniform(draw_key(seed, 0), 3) for seed in range(20_000)],
    }
    for numbers in places.values():
        counts = [0] * 100
        for number in numbers:
            counts[int(number * 100)] += 1
        assert fits(counts, [0.01] * 100)


def test_neighbours_are_independent() -> None:
    """Pairs of positions, and of completions of one seed, fill the square."""
    pairs = [(uniform(draw_key(5, 0), 2 * n), uniform(draw_key(5, 0), 2 * n + 1)) for n in range(10_000)]
    pairs += [(uniform(draw_key(n, 0), 0), uniform(draw_key(n, 1), 0)) for n in range(10_000)]
    counts = [0] * 100
    for left, right in pairs:
        counts[int(left * 10) * 10 + int(right * 10)] += 1
    assert fits(counts, [0.01] * 100)


def test_request_seed_is_the_callers_or_a_new_one() -> None:
    assert request_seed(0) == 0
    assert request_seed(7) == 7
    assert len({request_seed(None) for _ in range(8)}) == 8
