"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE.

`ci` (the default) replays the same examples each time, `quick` a part of them, `long` looks for new ones.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.filter_too_much)

for _name, _examples in (("ci", 120), ("quick", 40)):
    settings.register_profile(
        _name, max_examples=_examples, derandomize=True, deadline=None, database=None, suppress_health_check=_SLOW
    )
settings.register_profile("long", max_examples=50_000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
