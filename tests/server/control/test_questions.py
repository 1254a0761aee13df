"""What a scheduler may ask of a value."""

from __future__ import annotations

import math
from typing import Any

import pytest

from omniflow.codec.common import value_to_proto
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.values import Json, Value
from omniflow_server.control.carried import CarriedValue
from omniflow_server.control.questions import count_of, digest_of


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (Json(3), 3),
        (Json(3.0), 3),
        (Json(0), 0),
        (Json(-1), -1),
        (Json(2.5), None),
        (Json(True), None),
        (Json("3"), None),
        (Json([3]), None),
        (Json(None), None),
        (Json(math.nan), None),
        (Json(math.inf), None),
        ("3", None),
    ],
)
def test_count_is_a_whole_json_number(value: Any, count: int | None) -> None:
    assert count_of(CarriedValue(native=value)) == count


def test_count_is_read_from_a_message_too() -> None:
    assert count_of(CarriedValue(message=value_to_proto(Json(4)))) == 4


def test_what_is_no_carried_value_is_no_count() -> None:
    assert count_of(3) is None


def carried(**fields: Any) -> dict[str, CarriedValue]:
    return {name: CarriedValue(native=value) for name, value in fields.items()}


def test_digest_tells_yields_apart() -> None:
    values: dict[str, Value] = {"a": "x", "b": b"y"}
    same = digest_of(carried(**values))
    assert same == digest_of(carried(b=b"y", a="x"))
    assert same == digest_of({name: CarriedValue(message=value_to_proto(value)) for name, value in values.items()})
    others = [carried(a="x"), carried(a="x", b=b"z"), carried(a="xb", b=b"y"), carried(a=b"y", b="x"), {}]
    assert len({same, *map(digest_of, others)}) == len(others) + 1


def test_digest_of_a_payload_kept_elsewhere_is_of_its_size() -> None:
    """The same bytes have another name at each replica."""

    def kept(value_id: str, size_bytes: int) -> dict[str, CarriedValue]:
        ref = tensor_pb2.RemoteRef(endpoint=f"unix:/{value_id}", value_id=value_id, size_bytes=size_bytes)
        return {"b": CarriedValue(message=value_pb2.Value(data=tensor_pb2.Payload(remote=ref)))}

    assert digest_of(kept("one", 10)) == digest_of(kept("two", 10))
    assert digest_of(kept("one", 10)) != digest_of(kept("one", 11))
