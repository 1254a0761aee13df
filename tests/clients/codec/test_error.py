"""Errors survive their status, and foreign statuses are mapped and marked as inferred."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from omniflow.codec.error import (
    MAX_DETAILS_BYTES,
    STATUS_DETAILS_KEY,
    error_from_rpc,
    status_from_proto,
    status_to_proto,
    status_to_trailers,
)
from omniflow_core.errors import Code, ErrorInfo, Reason, Violation


def rpc_error(
    code: grpc.StatusCode, details: str = "", trailers: tuple[tuple[str, bytes], ...] = ()
) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), details=details)


@pytest.mark.parametrize("reason", Reason)
def test_error_of_every_reason_survives(reason: Reason) -> None:
    info = ErrorInfo(
        reason=reason,
        message="say what to do",
        violations=(Violation(field="call.inputs[audio]", description="not a WAV file"),),
        metadata={"first_kept_sequence": "7"},
        retry_after_s=1.25,
    )
    status = status_pb2.Status.FromString(status_to_proto(info).SerializeToString())
    assert status.code == info.code
    assert status_from_proto(status) == info


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.INVALID_FIELD, error_details_pb2.BadRequest),
        (Reason.INVALID_GRAPH, error_details_pb2.PreconditionFailure),
        (Reason.QUOTA_EXCEEDED, error_details_pb2.QuotaFailure),
    ],
)
def test_violations_travel_in_the_documented_message(reason: Reason, kind: type) -> None:
    info = ErrorInfo(reason=reason, message="", violations=(Violation(field="a", description="b"),))
    assert any(detail.Is(kind.DESCRIPTOR) for detail in status_to_proto(info).details)  # type: ignore[attr-defined]


def test_unknown_reason_becomes_internal_and_is_kept() -> None:
    status = status_pb2.Status(code=9, message="new")
    status.details.add().Pack(error_details_pb2.ErrorInfo(domain="omniflow", reason="FROM_THE_FUTURE"))
    info = status_from_proto(status)
    assert info.reason is Reason.INTERNAL
    assert info.metadata["unknown_reason"] == "FROM_THE_FUTURE"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (Code.UNAVAILABLE, Reason.CONNECTION_LOST),
        (Code.NOT_FOUND, Reason.UNKNOWN_RESOURCE),
        (Code.UNKNOWN, Reason.INTERNAL),
        (Code.CANCELLED, Reason.CALL_CANCELLED),
        (99, Reason.INTERNAL),
    ],
)
def test_foreign_status_maps_by_its_code(code: int, reason: Reason) -> None:
    status = status_pb2.Status(code=code, message="x")
    status.details.add().Pack(error_details_pb2.ErrorInfo(domain="elsewhere.example", reason="UNKNOWN_GRAPH"))
    assert status_from_proto(status).reason is reason


def test_details_that_do_not_parse_are_left_out() -> None:
    broken = any_pb2.Any(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff\xff")
    info = status_from_proto(status_pb2.Status(code=5, message="gone", details=[broken]))
    assert (info.reason, info.message) == (Reason.UNKNOWN_RESOURCE, "gone")


def test_rpc_error_with_our_details_is_stated() -> None:
    info = ErrorInfo(reason=Reason.UNKNOWN_GRAPH, message="no graph 'x'", metadata={"graph": "x"})
    error = error_from_rpc(rpc_error(grpc.StatusCode.NOT_FOUND, "no graph 'x'", status_to_trailers(info)))
    assert error.info == info
    assert error.is_stated


@pytest.mark.parametrize(
    ("code", "details", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", Reason.CONNECTION_LOST),
        (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2", Reason.CONNECTION_LOST),
        (grpc.StatusCode.CANCELLED, "Received RST_STREAM with error code 8", Reason.CONNECTION_LOST),
        (grpc.StatusCode.UNKNOWN, "Stream removed", Reason.CONNECTION_LOST),
        (grpc.StatusCode.INTERNAL, "bug", Reason.INTERNAL),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "CLIENT: Received message larger than max (5 vs. 4)",
            Reason.MESSAGE_TOO_LARGE,
        ),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "slow down", Reason.QUOTA_EXCEEDED),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", Reason.UNIMPLEMENTED),
        (grpc.StatusCode.UNKNOWN, "", Reason.INTERNAL),
    ],
)
def test_rpc_error_without_details_is_inferred(code: grpc.StatusCode, details: str, reason: Reason) -> None:
    error = error_from_rpc(rpc_error(code, details))
    assert error.reason is reason
    assert not error.is_stated
    assert error.info.metadata["grpc_code"] == code.name


def test_rpc_error_with_broken_details_is_inferred() -> None:
    error = error_from_rpc(rpc_error(grpc.StatusCode.NOT_FOUND, "x", ((STATUS_DETAILS_KEY, b"\xff\xff"),)))
    assert (error.reason, error.is_stated) == (Reason.UNKNOWN_RESOURCE, False)


def test_rpc_error_that_never_was_a_call_is_inferred() -> None:
    assert error_from_rpc(grpc.RpcError()).reason is Reason.INTERNAL


def test_trailers_with_many_violations_stay_small_and_keep_the_reason() -> None:
    many = tuple(Violation(field=f"edges[{index}]", description="x" * 50) for index in range(1000))
    ((key, data),) = status_to_trailers(
        ErrorInfo(reason=Reason.INVALID_GRAPH, message="1000 findings", violations=many)
    )
    assert key == STATUS_DETAILS_KEY
    assert len(data) <= MAX_DETAILS_BYTES
    info = status_from_proto(status_pb2.Status.FromString(data))
    assert info.reason is Reason.INVALID_GRAPH
    assert info.violations == many[: len(info.violations)]
    assert info.violations
