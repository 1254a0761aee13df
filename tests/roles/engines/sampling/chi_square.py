"""Pearson's chi-square test, written out."""

from __future__ import annotations

import math
from collections.abc import Sequence

_LEAST_EXPECTED = 5.0


def fits(counts: Sequence[int], probabilities: Sequence[float], *, deviations: float = 4.0) -> bool:
    """Whether the counts are as likely as draws from the probabilities are; a right sampler fails once in 30,000 seeds.

    Classes that fewer than five are expected of are taken together, as the test's approximation asks for. The bound is that
    of Wilson and Hilferty: the cube root of chi-square over its degrees of freedom is nearly normal.
    """
    total = sum(counts)
    pairs = [(float(count), total * probability) for count, probability in zip(counts, probabilities, strict=True)]
    rare = [pair for pair in pairs if pair[1] < _LEAST_EXPECTED]
    classes = [pair for pair in pairs if pair[1] >= _LEAST_EXPECTED]
    rare_expected = sum(expected for _, expected in rare)
    if rare_expected > 0:
        classes.append((sum(count for count, _ in rare), rare_expected))
    freedom = len(classes) - 1
    statistic = sum((count - expected) ** 2 / expected for count, expected in classes)
    spread = 2 / (9 * max(freedom, 1))
    return statistic <= freedom * (1 - spread + deviations * math.sqrt(spread)) ** 3
