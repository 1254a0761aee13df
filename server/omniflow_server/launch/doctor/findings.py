"""What a check says: a verdict, what was found, and how to mend it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """Flows run, with less than they could have."""
    FAILED = "failed"
    """Flows do not run, or not for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check."""

    check: str
    """What was looked at."""
    verdict: Verdict
    found: str
    remedy: str = ""
    """What to do; empty when all is well."""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check=check, verdict=Verdict.OK, found=found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """It works, with less."""
    return Finding(check=check, verdict=Verdict.WARNING, found=found, remedy=remedy)


def failed(check: str, found: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(check=check, verdict=Verdict.FAILED, found=found, remedy=remedy)
