"""What is found in a checkpoint: errors, which keep it from being loaded, and warnings."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field


class Severity(enum.StrEnum):
    """An error keeps the checkpoint from being loaded."""

    ERROR = "error"
    WARNING = "warning"


class FindingCode(enum.StrEnum):
    """What kind of thing is wrong; stable, for scripts."""

    NOT_A_MODEL = "NOT_A_MODEL"
    AMBIGUOUS = "AMBIGUOUS"
    PICKLE_WEIGHTS = "PICKLE_WEIGHTS"
    NO_WEIGHTS = "NO_WEIGHTS"
    UNUSED_FILE = "UNUSED_FILE"
    REMOTE_CODE = "REMOTE_CODE"
    BAD_CONFIG = "BAD_CONFIG"
    UNKNOWN_ARCHITECTURE = "UNKNOWN_ARCHITECTURE"
    NOT_GENERATIVE = "NOT_GENERATIVE"
    NOT_CAUSAL = "NOT_CAUSAL"
    WINDOW_NOT_APPLIED = "WINDOW_NOT_APPLIED"
    UNSUPPORTED_ROPE = "UNSUPPORTED_ROPE"
    CONTEXT_CUT = "CONTEXT_CUT"
    QUANTIZED = "QUANTIZED"
    UNSUPPORTED_DTYPE = "UNSUPPORTED_DTYPE"
    TRUNCATED = "TRUNCATED"
    BAD_HEADER = "BAD_HEADER"
    BAD_OFFSETS = "BAD_OFFSETS"
    BAD_INDEX = "BAD_INDEX"
    MISSING_SHARD = "MISSING_SHARD"
    STRAY_SHARD = "STRAY_SHARD"
    DUPLICATE_TENSOR = "DUPLICATE_TENSOR"
    MISSING_TENSOR = "MISSING_TENSOR"
    UNINDEXED_TENSOR = "UNINDEXED_TENSOR"
    UNUSED_TENSOR = "UNUSED_TENSOR"
    MISMATCHED_SHAPE = "MISMATCHED_SHAPE"
    NO_TOKENIZER = "NO_TOKENIZER"
    BAD_TOKENIZER = "BAD_TOKENIZER"
    UNSUPPORTED_ADAPTER = "UNSUPPORTED_ADAPTER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: `where` is a file, a key of a file, or a tensor; `fix` is what to do about it."""

    severity: Severity
    code: FindingCode
    where: str
    message: str
    fix: str


class UnreadableError(Exception):
    """A file whose header cannot be used; it becomes a finding of the report."""

    def __init__(self, code: FindingCode, where: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.code, self.where, self.message, self.fix = code, where, message, fix


@dataclass(slots=True)
class Findings:
    """Findings as they come up, each once."""

    items: list[Finding] = field(default_factory=list)

    def error(self, code: FindingCode, where: str, message: str, fix: str) -> None:
        """Adds what keeps the checkpoint from being loaded."""
        self._add(Finding(severity=Severity.ERROR, code=code, where=where, message=message, fix=fix))

    def warn(self, code: FindingCode, where: str, message: str, fix: str) -> None:
        """Adds what a person should know though the checkpoint loads."""
        self._add(Finding(severity=Severity.WARNING, code=code, where=where, message=message, fix=fix))

    def unreadable(self, problem: UnreadableError) -> None:
        """Adds a file's problem as an error."""
        self.error(problem.code, problem.where, problem.message, problem.fix)

    def in_order(self) -> tuple[Finding, ...]:
        """Errors first, otherwise as they came."""
        return tuple(sorted(self.items, key=lambda finding: finding.severity is Severity.WARNING))

    def _add(self, finding: Finding) -> None:
        if finding not in self.items:
            self.items.append(finding)


def and_more(items: Sequence[object]) -> str:
    """The end of a message that names the first of several."""
    return f" (and {len(items) - 1:,} more)" if len(items) > 1 else ""
