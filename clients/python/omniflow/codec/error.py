"""Errors as `google.rpc.Status` and as failed RPCs, and back.

Every error of ours carries one ErrorInfo of the domain "omniflow" whose reason decides; a status without one (a proxy,
the gRPC library itself) is mapped by its code to the nearest reason, and counts as inferred, not stated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from omniflow_core.errors import Code, ErrorInfo, OmniFlowError, Reason, Violation

DOMAIN = "omniflow"
STATUS_DETAILS_KEY = "grpc-status-details-bin"
MAX_DETAILS_BYTES = 4096
"""Size of the status in the trailers. HTTP/2 header lists are limited to 8 KiB by default, and a trailer that is too
large breaks the whole connection, so an error's details are cut and not its code."""

_NEAREST: Mapping[Code, Reason] = {
    Code.CANCELLED: Reason.CALL_CANCELLED,
    Code.INVALID_ARGUMENT: Reason.INVALID_FIELD,
    Code.DEADLINE_EXCEEDED: Reason.DEADLINE_EXCEEDED,
    Code.NOT_FOUND: Reason.UNKNOWN_RESOURCE,
    Code.ALREADY_EXISTS: Reason.CONFLICT,
    Code.PERMISSION_DENIED: Reason.PERMISSION_DENIED,
    Code.RESOURCE_EXHAUSTED: Reason.QUOTA_EXCEEDED,
    Code.FAILED_PRECONDITION: Reason.PROTOCOL_VIOLATION,
    Code.ABORTED: Reason.CONFLICT,
    Code.OUT_OF_RANGE: Reason.INVALID_FIELD,
    Code.UNIMPLEMENTED: Reason.UNIMPLEMENTED,
    Code.UNAVAILABLE: Reason.CONNECTION_LOST,
    Code.DATA_LOSS: Reason.STATE_LOST,
    Code.UNAUTHENTICATED: Reason.UNAUTHENTICATED,
}


def status_to_proto(info: ErrorInfo) -> status_pb2.Status:
    """The status that an event carries."""
    status = status_pb2.Status(code=int(info.code), message=info.message)
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(reason=info.reason.value, domain=DOMAIN, metadata=dict(info.metadata))
    )
    if info.violations:
        status.details.add().Pack(_violations_to_proto(info))
    if info.retry_after_s is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(round(info.retry_after_s * 1e9))
        status.details.add().Pack(retry)
    return status


def _violations_to_proto(info: ErrorInfo) -> Any:
    """The violations in the detail message that the reason's documentation names."""
    if info.reason is Reason.INVALID_GRAPH:
        precondition = error_details_pb2.PreconditionFailure()
        for violation in info.violations:
            precondition.violations.add(
                type=info.reason.value, subject=violation.field, description=violation.description
            )
        return precondition
    if info.reason is Reason.QUOTA_EXCEEDED:
        quota = error_details_pb2.QuotaFailure()
        for violation in info.violations:
            quota.violations.add(subject=violation.field, description=violation.description)
        return quota
    request = error_details_pb2.BadRequest()
    for violation in info.violations:
        request.field_violations.add(field=violation.field, description=violation.description)
    return request


def status_to_trailers(info: ErrorInfo) -> tuple[tuple[str, bytes], ...]:
    """Trailing metadata that carries the status of a failed RPC; violations beyond what fits are left out."""
    kept = len(info.violations)
    while True:
        data = status_to_proto(_with_violations(info, kept)).SerializeToString()
        if len(data) <= MAX_DETAILS_BYTES or kept == 0:
            return ((STATUS_DETAILS_KEY, data),)
        kept //= 2


def _with_violations(info: ErrorInfo, count: int) -> ErrorInfo:
    return ErrorInfo(
        reason=info.reason,
        message=info.message,
        violations=info.violations[:count],
        metadata=info.metadata,
        retry_after_s=info.retry_after_s,
    )


def status_from_proto(status: status_pb2.Status) -> ErrorInfo:
    """The error of a status; a reason that this version does not know is INTERNAL, and kept in the metadata."""
    reason, metadata = _reason_of(status)
    return ErrorInfo(
        reason=reason,
        message=status.message,
        violations=tuple(_violations_from(status.details)),
        metadata=metadata,
        retry_after_s=_retry_after_s(status.details),
    )


def is_ours(status: status_pb2.Status) -> bool:
    """Whether the status was made by this platform, and not by a proxy or library on the way."""
    return any(info.domain == DOMAIN for info in _unpacked(status.details, error_details_pb2.ErrorInfo))


def _reason_of(status: status_pb2.Status) -> tuple[Reason, Mapping[str, str]]:
    for info in _unpacked(status.details, error_details_pb2.ErrorInfo):
        if info.domain == DOMAIN:
            metadata = dict(info.metadata)
            if info.reason in Reason.__members__:
                return Reason[info.reason], metadata
            return Reason.INTERNAL, metadata | {"unknown_reason": info.reason}
    return _reason_by_code(status.code), {}


def _reason_by_code(code: int) -> Reason:
    return _NEAREST.get(Code(code), Reason.INTERNAL) if code in Code.__members__.values() else Reason.INTERNAL


def _violations_from(details: Iterable[Any]) -> Iterable[Violation]:
    for request in _unpacked(details, error_details_pb2.BadRequest):
        for broken in request.field_violations:
            yield Violation(field=broken.field, description=broken.description)
    for precondition in _unpacked(details, error_details_pb2.PreconditionFailure):
        for finding in precondition.violations:
            yield Violation(field=finding.subject, description=finding.description)
    for quota in _unpacked(details, error_details_pb2.QuotaFailure):
        for used_up in quota.violations:
            yield Violation(field=used_up.subject, description=used_up.description)


def _retry_after_s(details: Iterable[Any]) -> float | None:
    for retry in _unpacked(details, error_details_pb2.RetryInfo):
        return float(retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9)
    return None


def _unpacked(details: Iterable[Any], kind: type[Any]) -> Iterable[Any]:
    """The details of one message type; those that do not parse are left out."""
    for detail in details:
        if detail.Is(kind.DESCRIPTOR):
            message = kind()
            try:
                detail.Unpack(message)
            except DecodeError:
                continue
            yield message


def error_from_rpc(exc: grpc.RpcError) -> OmniFlowError:
    """The typed error of a failed RPC; `is_stated` is True only when the platform itself gave the reason."""
    status = _status_in_trailers(exc)
    if status is not None and is_ours(status):
        return OmniFlowError.of(status_from_proto(status))
    code, text = _code_of(exc), _details_of(exc)
    reason = _inferred_reason(code, text)
    return OmniFlowError(
        reason,
        _inferred_message(reason, code, text),
        metadata={"grpc_code": code.name},
        is_stated=False,
    )


def _inferred_reason(code: Code, text: str) -> Reason:
    if code is Code.RESOURCE_EXHAUSTED and "larger than max" in text:
        return Reason.MESSAGE_TOO_LARGE
    # A proxy whose backend died resets the stream: INTERNAL by the reset's own mapping, CANCELLED for the code CANCEL,
    # UNKNOWN from transports that have no better word.
    # "Internal error from Core" is grpc.aio's word for a write that failed on a dead stream.
    is_reset = any(sign in text for sign in ("RST_STREAM", "Stream removed", "Internal error from Core"))
    if is_reset and code in (Code.INTERNAL, Code.CANCELLED, Code.UNKNOWN):
        return Reason.CONNECTION_LOST
    return _reason_by_code(code)


def _inferred_message(reason: Reason, code: Code, text: str) -> str:
    if reason is Reason.CONNECTION_LOST:
        return f"the connection broke: {text or 'no details'}"
    return text or f"the RPC ended with {code.name} without a reason"


def _status_in_trailers(exc: grpc.RpcError) -> status_pb2.Status | None:
    trailers = getattr(exc, "trailing_metadata", None)
    for key, value in (trailers() if trailers is not None else None) or ():
        if key == STATUS_DETAILS_KEY:
            try:
                return status_pb2.Status.FromString(cast("bytes", value))
            except DecodeError:
                return None
    return None


def _code_of(exc: grpc.RpcError) -> Code:
    code = getattr(exc, "code", None)
    status = code() if code is not None else None
    return Code(status.value[0]) if isinstance(status, grpc.StatusCode) else Code.UNKNOWN


def _details_of(exc: grpc.RpcError) -> str:
    details = getattr(exc, "details", None)
    return (details() if details is not None else None) or ""
