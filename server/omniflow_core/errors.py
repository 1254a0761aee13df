"""The one tree of errors, and the one table from reason to status code.

Every error that crosses a process boundary has a `Reason` (the same names as the proto enum
`omniflow.common.v1.ErrorReason`). The status code follows from the reason, never the other way round, so the server, both
clients and the documents cannot disagree. Messages are written for the caller: they name the field or resource and say
what to do; they never carry an exception's text.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class Code(enum.IntEnum):
    """Status codes, numbered as in gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Reason(enum.StrEnum):
    """Why something failed. Documented in proto/omniflow/common/v1/error.proto."""

    INVALID_FIELD = "INVALID_FIELD"
    UNKNOWN_GRAPH = "UNKNOWN_GRAPH"
    UNKNOWN_FIELD = "UNKNOWN_FIELD"
    TYPE_MISMATCH = "TYPE_MISMATCH"
    MISSING_INPUT = "MISSING_INPUT"
    BUFFER_REF_REFUSED = "BUFFER_REF_REFUSED"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    INVALID_MEDIA = "INVALID_MEDIA"
    INVALID_GRAPH = "INVALID_GRAPH"
    UNKNOWN_INTERFACE = "UNKNOWN_INTERFACE"
    INVALID_CONFIG = "INVALID_CONFIG"
    PROTOCOL_VIOLATION = "PROTOCOL_VIOLATION"
    CHECKSUM_MISMATCH = "CHECKSUM_MISMATCH"
    UNKNOWN_CALL = "UNKNOWN_CALL"
    INVALID_RESUME_TOKEN = "INVALID_RESUME_TOKEN"
    EVENTS_TRIMMED = "EVENTS_TRIMMED"
    CALL_CANCELLED = "CALL_CANCELLED"
    CALL_SUPERSEDED = "CALL_SUPERSEDED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CLIENT_LOST = "CLIENT_LOST"
    OWNER_LOST = "OWNER_LOST"
    STALE_OWNER = "STALE_OWNER"
    CALL_ENDED = "CALL_ENDED"
    TOO_MANY_CALLS = "TOO_MANY_CALLS"
    DRAINING = "DRAINING"
    NO_REPLICA = "NO_REPLICA"
    REPLICA_LOST = "REPLICA_LOST"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    BUFFER_FULL = "BUFFER_FULL"
    POOL_EXHAUSTED = "POOL_EXHAUSTED"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    INTERFACE_FAILED = "INTERFACE_FAILED"
    IMPOSSIBLE_INPUT = "IMPOSSIBLE_INPUT"
    INVALID_OUTPUT = "INVALID_OUTPUT"
    LOOP_BOUND_EXCEEDED = "LOOP_BOUND_EXCEEDED"
    COUNT_NOT_REACHED = "COUNT_NOT_REACHED"
    COUNT_CONFLICT = "COUNT_CONFLICT"
    AMBIGUOUS_COMPANION = "AMBIGUOUS_COMPANION"
    REPLAY_DIVERGED = "REPLAY_DIVERGED"
    UNKNOWN_SESSION = "UNKNOWN_SESSION"
    CONFLICT = "CONFLICT"
    STATE_LOST = "STATE_LOST"
    INCOMPATIBLE_LAYOUT = "INCOMPATIBLE_LAYOUT"
    TRANSFER_UNCERTAIN = "TRANSFER_UNCERTAIN"
    STALE_EPOCH = "STALE_EPOCH"
    BARRIER_INCOMPLETE = "BARRIER_INCOMPLETE"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNKNOWN_RESOURCE = "UNKNOWN_RESOURCE"
    CONNECTION_LOST = "CONNECTION_LOST"


_REASONS_BY_CODE: Mapping[Code, tuple[Reason, ...]] = {
    Code.INVALID_ARGUMENT: (
        Reason.INVALID_FIELD,
        Reason.UNKNOWN_FIELD,
        Reason.TYPE_MISMATCH,
        Reason.MISSING_INPUT,
        Reason.BUFFER_REF_REFUSED,
        Reason.INVALID_MEDIA,
        Reason.INVALID_GRAPH,
        Reason.UNKNOWN_INTERFACE,
        Reason.INVALID_CONFIG,
        Reason.COUNT_CONFLICT,
    ),
    Code.NOT_FOUND: (
        Reason.UNKNOWN_GRAPH,
        Reason.UNKNOWN_CALL,
        Reason.UNKNOWN_SESSION,
        Reason.UNKNOWN_RESOURCE,
    ),
    Code.RESOURCE_EXHAUSTED: (
        Reason.PAYLOAD_TOO_LARGE,
        Reason.MESSAGE_TOO_LARGE,
        Reason.TOO_MANY_CALLS,
        Reason.QUOTA_EXCEEDED,
        Reason.BUFFER_FULL,
        Reason.POOL_EXHAUSTED,
        Reason.LOOP_BOUND_EXCEEDED,
    ),
    Code.ALREADY_EXISTS: (Reason.REQUEST_ID_REUSED,),
    Code.FAILED_PRECONDITION: (
        Reason.PROTOCOL_VIOLATION,
        Reason.CALL_ENDED,
        Reason.IMPOSSIBLE_INPUT,
        Reason.COUNT_NOT_REACHED,
        Reason.AMBIGUOUS_COMPANION,
        Reason.INCOMPATIBLE_LAYOUT,
        Reason.STALE_EPOCH,
    ),
    Code.PERMISSION_DENIED: (Reason.INVALID_RESUME_TOKEN, Reason.PERMISSION_DENIED),
    Code.OUT_OF_RANGE: (Reason.EVENTS_TRIMMED,),
    Code.CANCELLED: (Reason.CALL_CANCELLED, Reason.CLIENT_LOST),
    Code.ABORTED: (Reason.CALL_SUPERSEDED, Reason.STALE_OWNER, Reason.CONFLICT),
    Code.DEADLINE_EXCEEDED: (Reason.DEADLINE_EXCEEDED,),
    Code.UNAVAILABLE: (
        Reason.OWNER_LOST,
        Reason.DRAINING,
        Reason.NO_REPLICA,
        Reason.REPLICA_LOST,
        Reason.BARRIER_INCOMPLETE,
        Reason.STORE_UNAVAILABLE,
        Reason.CONNECTION_LOST,
    ),
    Code.INTERNAL: (Reason.INTERFACE_FAILED, Reason.INVALID_OUTPUT, Reason.INTERNAL),
    Code.DATA_LOSS: (Reason.CHECKSUM_MISMATCH, Reason.REPLAY_DIVERGED, Reason.STATE_LOST),
    Code.UNAUTHENTICATED: (Reason.UNAUTHENTICATED,),
    Code.UNIMPLEMENTED: (Reason.UNIMPLEMENTED,),
    Code.UNKNOWN: (Reason.TRANSFER_UNCERTAIN,),
}

CODE_OF: Mapping[Reason, Code] = {reason: code for code, reasons in _REASONS_BY_CODE.items() for reason in reasons}
"""Status code of every reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule: `field` is a path in the request, such as `call.inputs[audio]`."""

    field: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """An error as a value, for events, commands and logs."""

    reason: Reason
    message: str
    violations: tuple[Violation, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_after_s: float | None = None

    @property
    def code(self) -> Code:
        return CODE_OF[self.reason]


class OmniFlowError(Exception):
    """Raised for everything that a caller can be told about.

    `is_stated` is True when the server said so, False when a client inferred it (a broken connection).
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        violations: Sequence[Violation] = (),
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
        is_stated: bool = True,
    ) -> None:
        super().__init__(message)
        self.info = ErrorInfo(
            reason=reason,
            message=message,
            violations=tuple(violations),
            metadata=dict(metadata or {}),
            retry_after_s=retry_after_s,
        )
        self.is_stated = is_stated

    @classmethod
    def of(cls, info: ErrorInfo, *, is_stated: bool = True) -> OmniFlowError:
        return cls(
            info.reason,
            info.message,
            violations=info.violations,
            metadata=info.metadata,
            retry_after_s=info.retry_after_s,
            is_stated=is_stated,
        )

    @property
    def reason(self) -> Reason:
        return self.info.reason

    @property
    def code(self) -> Code:
        return self.info.code

    @property
    def message(self) -> str:
        return self.info.message

    @property
    def violations(self) -> tuple[Violation, ...]:
        return self.info.violations

    def __str__(self) -> str:
        untold = [v for v in self.violations if v.field not in self.message or v.description not in self.message]
        fields = "".join(f"\n  {v.field}: {v.description}" for v in untold)
        return f"{self.code.name} ({self.reason}): {self.message}{fields}"


def invalid_field(field_path: str, description: str, *, reason: Reason = Reason.INVALID_FIELD) -> OmniFlowError:
    """The error for one bad request field; its message names the field too."""
    return OmniFlowError(
        reason,
        f"{field_path}: {description}",
        violations=(Violation(field=field_path, description=description),),
    )
