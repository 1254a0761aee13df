"""Times as stores count them: whole milliseconds for leases, whole microseconds for what must always grow."""

from __future__ import annotations

import math


def whole_ms(seconds: float) -> int:
    """Rounded up, at least one: a store refuses to keep a row for no time."""
    return max(1, math.ceil(seconds * 1000 - 1e-6))


def whole_us(seconds: float) -> int:
    """Rounded to the nearest, so that a sum of seconds that is a hair short does not lose a millisecond."""
    return round(seconds * 1_000_000)
