"""Values survive their messages, and messages that break a rule name the field."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow.codec.common import (
    MAX_JSON_DEPTH,
    crc32c,
    header_of,
    payload_of,
    split_value,
    value_from_proto,
    value_to_proto,
    value_with_payload,
)
from omniflow.common.v1 import value_pb2
from omniflow.values import Action, Audio, ElementType, Image, Json, Signal, Tensor, Tokens, Value, ValueType, Video
from omniflow_core.errors import OmniFlowError, Reason

TENSOR = Tensor(ElementType.INT16, (2, 3), bytes(range(12)))

VALUES: list[Value] = [
    "",
    "grüße",
    b"",
    b"\x00\xff",
    Tokens(),
    Tokens((1, 4_000_000_000), "ab", (-0.5, -0.25)),
    Tokens((7,), "c", (-0.5,), completion=3, alternatives=(((7, -0.5), (9, -1.0)),)),
    TENSOR,
    Tensor(ElementType.FLOAT32, (), b"\x00\x00\x80\x3f"),
    Tensor(ElementType.BOOL, (0, 4), b""),
    Image(b"\x89PNG", "image/png", item=3),
    Audio(b"\x01\x02", "audio/L16;rate=16000;channels=1", timestamp_s=1.5, is_partial=True),
    Video(b"", timestamp_s=-0.25),
    Action("joints", TENSOR),
    Json(None),
    Json({"a": [1, 2.5, "x", True, None, {}], "": []}),
    Signal(),
]


def through_the_wire(value: Value) -> Value:
    return value_from_proto(value_pb2.Value.FromString(value_to_proto(value).SerializeToString()))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_value_of_every_kind_survives(value: Value) -> None:
    back = through_the_wire(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_value_split_from_its_payload_survives(value: Value) -> None:
    message, data = split_value(value)
    payload = payload_of(message)
    assert (payload is None) == (data is None)
    if data is not None:
        assert payload is not None and payload.WhichOneof("place") is None
        assert value_with_payload(message, data) == value


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(json_values)
def test_json_value_survives(value: object) -> None:
    assert through_the_wire(Json(value)) == Json(value)


def test_json_whole_number_comes_back_as_int() -> None:
    back = through_the_wire(Json([3, 3.0, 0.5]))
    assert isinstance(back, Json)
    assert [type(item) for item in back.value] == [int, int, float]


def test_alternatives_without_their_probabilities_are_refused() -> None:
    message = value_to_proto(Tokens((7,), alternatives=(((7, -0.5),),)))
    message.tokens.alternatives[0].ids.append(8)
    with pytest.raises(OmniFlowError) as caught:
        value_from_proto(message, path="input")
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.violations[0].field == "input.tokens.alternatives[0]"


@pytest.mark.parametrize("value", [2**53 + 1, math.nan, math.inf, {1: 2}, {1, 2}, {"a": {1, 2}}], ids=repr)
def test_json_value_that_the_wire_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(OmniFlowError) as caught:
        value_to_proto(Json(value))
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.violations[0].field == "json"


def test_json_value_at_the_depth_limit_survives_and_one_deeper_is_refused() -> None:
    nested: object = 1
    for _ in range(MAX_JSON_DEPTH):
        nested = {"a": nested}
    assert through_the_wire(Json(nested)) == Json(nested)
    with pytest.raises(OmniFlowError, match="deep"):
        value_to_proto(Json([nested]))


def test_message_without_a_kind_is_refused_by_its_path() -> None:
    with pytest.raises(OmniFlowError) as caught:
        value_from_proto(value_pb2.Value(), path="inputs[text]")
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.violations[0].field == "inputs[text]"


def test_tensor_whose_bytes_do_not_match_its_shape_is_refused() -> None:
    message = value_to_proto(TENSOR)
    message.tensor.spec.shape[0] = 3
    with pytest.raises(OmniFlowError) as caught:
        value_from_proto(message)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert "18 bytes" in caught.value.message


def test_tensor_with_an_unknown_element_type_is_refused() -> None:
    message = value_to_proto(TENSOR)
    message.tensor.spec.element_type = 99  # type: ignore[assignment]
    with pytest.raises(OmniFlowError) as caught:
        value_from_proto(message)
    assert caught.value.violations[0].field == "value.spec.element_type"


@pytest.mark.parametrize("place", ["buffer", "chunked", "remote"])
def test_payload_that_was_not_fetched_is_a_protocol_violation(place: str) -> None:
    message = value_pb2.Value()
    getattr(message.audio.payload, place).SetInParent()
    with pytest.raises(OmniFlowError) as caught:
        value_from_proto(message)
    assert caught.value.reason is Reason.PROTOCOL_VIOLATION
    assert caught.value.info.metadata["place"] == place


def test_object_that_is_no_value_is_refused() -> None:
    with pytest.raises(TypeError, match="Json"):
        value_to_proto({"a": 1})  # type: ignore[arg-type]


def test_header_describes_a_value_without_its_bytes() -> None:
    audio = header_of(split_value(Audio(b"xx", "audio/wav"))[0])
    assert (audio.type, audio.mime_type) == (ValueType.AUDIO, "audio/wav")
    tensor = header_of(split_value(TENSOR)[0])
    assert (tensor.type, tensor.element_type, tensor.shape) == (ValueType.TENSOR, ElementType.INT16, (2, 3))


def test_crc32c_of_the_check_string() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
