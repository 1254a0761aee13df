"""All checks together."""

from __future__ import annotations

from omniflow_server.launch.doctor.examination import attempt
from omniflow_server.launch.doctor.findings import Verdict, ok


def test_check_that_breaks_is_a_finding_too() -> None:
    finding = attempt(lambda: ok("x", [][0]), "x")
    assert (finding.check, finding.verdict) == ("x", Verdict.FAILED)
    assert finding.found == "IndexError: list index out of range"
