"""Percentiles and ratios of small samples."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which the share of the sample lies, by linear interpolation. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """The middle of a sample."""
    return percentile(values, 0.5)


def paired_ratios(values: Sequence[float], floor: Sequence[float]) -> list[float]:
    """Ratios of what two contestants did in the same round: what disturbs a round disturbs both."""
    return [value / base for value, base in zip(values, floor, strict=True)]
