"""Pieces of messages as bytes, against what protobuf makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.wire import packed, sized, varint


@given(st.integers(0, 2**64 - 1))
def test_number_is_read_back(number: int) -> None:
    assert messages.ActivationRef.FromString(b"\x20" + varint(number)).activation_id == number


@given(st.lists(st.integers(0, 2**32 - 1)), st.text(max_size=300))
def test_sized_and_packed_fields_are_read_back(numbers: list[int], text: str) -> None:
    data = sized(b"\x22", packed(numbers)) + sized(b"\x0a", sized(b"\x0a", text.encode()))
    message = messages.Pipeline.FromString(data)
    assert list(message.origin_path) == numbers
    assert [stage.node for stage in message.stages] == [text]


def test_message_that_comes_twice_is_merged() -> None:
    whole = messages.StartActivation(activation=messages.ActivationRef(call_id="c", node="n"), tenant="t")
    more = messages.StartActivation(activation=messages.ActivationRef(activation_id=7))
    read = messages.StartActivation.FromString(whole.SerializeToString() + more.SerializeToString())
    whole.activation.activation_id = 7
    assert read == whole


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (2**32, "8080808010"),
        (2**64 - 1, "ff" * 9 + "01"),
    ],
)
def test_varint_is_base_128(number: int, encoded: str) -> None:
    assert varint(number).hex() == encoded
