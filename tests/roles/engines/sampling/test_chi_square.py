"""The test that the statistical tests rest on."""

from __future__ import annotations

import random

from tests.roles.engines.sampling.chi_square import fits

FAIR = [0.1] * 10


def test_fits_accepts_draws_of_the_distribution() -> None:
    for seed in range(20):
        drawn = random.Random(seed).choices(range(10), k=5000)
        assert fits([drawn.count(value) for value in range(10)], FAIR)


def test_fits_rejects_draws_of_one_a_little_different() -> None:
    for seed in range(20):
        drawn = random.Random(seed).choices(range(10), weights=[1.3] + [1] * 9, k=20_000)
        assert not fits([drawn.count(value) for value in range(10)], FAIR)


def test_fits_rejects_counts_that_are_too_high_for_rare_values() -> None:
    assert not fits([9900, 50, 50], [0.9998, 0.0001, 0.0001])
