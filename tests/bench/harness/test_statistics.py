"""Percentiles and ratios."""

from __future__ import annotations

import pytest

from tests.bench.harness.statistics import median, paired_ratios, percentile


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 10.0), (0.5, 30.0), (0.25, 20.0), (0.9, 46.0), (1.0, 50.0)], ids=str
)
def test_percentile_interpolates_between_values(share: float, expected: float) -> None:
    assert percentile([50.0, 10.0, 40.0, 20.0, 30.0], share) == pytest.approx(expected)


def test_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_median_of_an_even_sample_lies_between() -> None:
    assert median([1.0, 2.0, 10.0, 3.0]) == 2.5


def test_paired_ratios_compare_rounds_and_not_averages() -> None:
    assert paired_ratios([2.0, 30.0], [1.0, 10.0]) == [2.0, 3.0]
