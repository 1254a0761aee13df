"""Consoles, and what every command prints the same way."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from omniflow_core.errors import OmniFlowError, Reason

FAILED, USED_WRONGLY, INTERRUPTED = 1, 2, 130

_MISUSE = frozenset({Reason.INVALID_CONFIG, Reason.INVALID_FIELD, Reason.UNKNOWN_FIELD, Reason.TYPE_MISMATCH})


def console() -> Console:
    """Standard output. Made anew for each command: what standard output is can change between them."""
    return Console(highlight=False)


def errors() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False)


def exit_status(problem: OmniFlowError) -> int:
    """2 when the command or its configuration is to blame, 1 otherwise."""
    return USED_WRONGLY if problem.reason in _MISUSE else FAILED


def show_error(problem: OmniFlowError) -> None:
    """One line on standard error, and one for each further mistake."""
    out = errors()
    out.print(f"[bold red]error:[/] {escape(problem.message)}", soft_wrap=True)
    for violation in problem.violations if len(problem.violations) > 1 else ():
        out.print(f"  {escape(violation.field)}: {escape(violation.description)}", soft_wrap=True)
    if problem.info.retry_after_s is not None:
        out.print(f"  try again in {problem.info.retry_after_s:.1f} s", soft_wrap=True)


def warn(text: str) -> None:
    """One line on standard error."""
    errors().print(f"[yellow]warning:[/] {escape(text)}", soft_wrap=True)


def seconds(value_s: float) -> str:
    """A duration for people."""
    if value_s < 60:
        return f"{value_s:.1f} s"
    minutes, rest = divmod(round(value_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
