"""From keyword arguments to requests."""

from __future__ import annotations

import inspect

import pytest

import omniflow
from omniflow import Action, Audio, ElementType, Json, Tensor
from omniflow.requests import CHUNK_BYTES, INLINE_LIMIT_BYTES, as_value, prepare_call


def test_signature_of_stream_lists_the_options() -> None:
    parameters = inspect.signature(omniflow.Client.stream).parameters
    assert list(parameters)[:3] == ["self", "graph", "inputs"]
    assert {"session", "sampling", "request_id", "fields"} <= set(parameters)
    assert inspect.signature(omniflow.Client.run).parameters.keys() == parameters.keys()
    assert inspect.signature(omniflow.Conversation.start).parameters.keys() == parameters.keys()


def test_inputs_may_be_called_like_our_own_arguments() -> None:
    prepared = prepare_call("g", inputs={"graph": "a", "inputs": "b", "key": "c"}, self="d")
    assert set(prepared.spec.inputs) == {"graph", "inputs", "key", "self"}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("text", "text"),
        (True, Json(True)),
        (3, Json(3)),
        (0.5, Json(0.5)),
        ([1, {"a": None}], Json([1, {"a": None}])),
        ((1, 2), Json((1, 2))),
        ({"a": 1}, Json({"a": 1})),
        (b"x", b"x"),
    ],
)
def test_python_value_becomes_a_field_value(given: omniflow.requests.InputValue, value: object) -> None:
    assert as_value(given) == value


def test_upload_is_cut_without_a_gap() -> None:
    data = bytes(range(256)) * 2100
    prepared = prepare_call("g", data=data, audio=Audio(memoryview(data), "audio/wav"))
    assert [upload.transfer_id for upload in prepared.uploads] == [1, 2]
    start, *chunks = [getattr(message, message.WhichOneof("message") or "") for message in prepared.messages("k")]
    assert start.graph == "graphs/g"
    assert start.call.inputs["data"].data.chunked.total_bytes == len(data)
    assert start.call.inputs["audio"].audio.mime_type == "audio/wav"
    for transfer_id in (1, 2):
        pieces = [chunk for chunk in chunks if chunk.transfer_id == transfer_id]
        assert b"".join(chunk.data for chunk in pieces) == data
        assert [chunk.offset_bytes for chunk in pieces] == list(range(0, len(data), CHUNK_BYTES))
        assert [chunk.last for chunk in pieces] == [False, False, True]


def test_upload_of_a_tensor_and_an_action_is_announced_inside_them() -> None:
    tensor = Tensor(ElementType.UINT8, (INLINE_LIMIT_BYTES + 1,), bytes(INLINE_LIMIT_BYTES + 1))
    prepared = prepare_call("g", tensor=tensor, action=Action("joints", tensor))
    inputs = prepared.spec.inputs
    assert inputs["tensor"].tensor.payload.chunked.total_bytes == INLINE_LIMIT_BYTES + 1
    assert inputs["action"].action.values.payload.chunked.transfer_id == 2
    assert list(inputs["action"].action.values.spec.shape) == [INLINE_LIMIT_BYTES + 1]


def test_repeated_start_is_the_same_request() -> None:
    prepared = prepare_call("g", text="a", timeout_s=5)
    assert prepared.request().SerializeToString(deterministic=True) == prepared.request().SerializeToString(
        deterministic=True
    )
