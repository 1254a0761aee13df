"""Hypothesis profiles: `ci` replays the same examples each time, `long` (HYPOTHESIS_PROFILE=long) looks for new ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.filter_too_much)

settings.register_profile(
    "ci", max_examples=120, derandomize=True, deadline=None, database=None, suppress_health_check=_SLOW
)
settings.register_profile("long", max_examples=50_000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
