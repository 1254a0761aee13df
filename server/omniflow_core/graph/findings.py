"""What the planner finds wrong with a graph, collected while it goes on looking."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from omniflow_core.errors import OmniFlowError, Reason, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: where (`field` is a path in the definition), what, and what would fix it."""

    reason: str
    field: str
    message: str
    fix: str
    node: str = ""
    group: str = ""


class InvalidGraphError(OmniFlowError):
    """The graph breaks rules of the planner. `findings` holds them all."""

    def __init__(self, graph: str, findings: tuple[Finding, ...]) -> None:
        super().__init__(
            Reason.INVALID_GRAPH,
            f"{graph} cannot run: {findings[0].message} {findings[0].fix}"
            + (f" (and {len(findings) - 1} more findings)" if len(findings) > 1 else ""),
            violations=[Violation(field=f.field, description=f"{f.reason}: {f.message} {f.fix}") for f in findings],
        )
        self.findings = findings


def nearest(name: str, known: Iterable[str]) -> str:
    """A fix that names the most similar known name, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(names)}." if names else "There is none."
