"""Frames that are put together by hand are those that protobuf would write."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow_server.control.link import start_frame


@given(st.integers(1, 2**63 - 1), st.text(max_size=300), st.integers(0, 2**32 - 1))
def test_start_frame_is_what_protobuf_writes(handle: int, call_id: str, window: int) -> None:
    start = pb.StartActivation(activation=pb.ActivationRef(call_id=call_id, node="a"), yield_window=window)
    expected = pb.ExecuteRequest(commands=[pb.ExecuteCommand(handle=handle, start=start)]).SerializeToString()
    assert start_frame(handle, start.SerializeToString()) == expected
