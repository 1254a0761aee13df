"""Costs of activations: what a value says, and what was measured."""

from __future__ import annotations

import pytest

from omniflow.codec.common import value_to_proto
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.values import Action, Audio, ElementType, Image, Json, Signal, Tensor, Tokens, Value, Video
from omniflow_server.control import costs
from omniflow_server.control.carried import INSIDE, CarriedValue
from omniflow_server.control.costs import Costs, cost_of

TENSOR = Tensor(ElementType.FLOAT32, (2, 3), bytes(24))


@pytest.mark.parametrize(
    ("value", "cost"),
    [
        (Json(4), 4.0),
        (Json(0.25), 0.25),
        (Json(0), 1.0),
        (Json(-3), 1.0),
        (Json(True), 1.0),
        (Json("4"), 1.0),
        (Json([4]), 1.0),
        (Json(None), 1.0),
        (Tokens((7, 8, 9), "text of them"), 3.0),
        (Tokens((), "four"), 4.0),
        (Tokens(), 1.0),
        ("hällo", 5.0),
        ("", 1.0),
        (b"12345678", 8.0),
        (b"", 1.0),
        (memoryview(bytes(12)).cast("i"), 12.0),
        (TENSOR, 24.0),
        (Action("joints", TENSOR), 24.0),
        (Image(b"123", "image/png"), 3.0),
        (Audio(b"1234", "audio/wav"), 4.0),
        (Video(b"", "video/mp4"), 1.0),
        (Signal(), 1.0),
    ],
)
def test_cost_of_a_value_is_the_same_as_a_message_and_as_a_python_value(value: Value, cost: float) -> None:
    assert cost_of(CarriedValue(native=value)) == cost
    assert cost_of(CarriedValue(message=value_to_proto(value))) == cost


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_cost_that_is_not_finite_says_nothing(number: float) -> None:
    message = value_pb2.Value()
    message.json.number_value = number
    assert cost_of(CarriedValue(message=message)) == 1.0


def test_cost_of_a_payload_that_another_process_keeps_is_its_size() -> None:
    message = value_pb2.Value()
    message.audio.payload.remote.CopyFrom(tensor_pb2.RemoteRef(value_id="v", size_bytes=123_456))
    assert cost_of(CarriedValue(message=message)) == 123_456.0


def test_cost_of_a_payload_copies_nothing_into_the_value() -> None:
    value = CarriedValue(native=b"1234")
    cost_of(value)
    assert value.split()[1].obj == b"1234"  # type: ignore[union-attr]
    assert value.stored_bytes == 0


@pytest.mark.parametrize(
    "value",
    [
        None,
        INSIDE,
        "text",
        CarriedValue(native=Json(2**60)),
        CarriedValue(native="\ud800"),
        CarriedValue(message=value_pb2.Value()),
    ],
)
def test_cost_of_what_is_no_value_or_cannot_be_sent_is_one(value: object) -> None:
    assert cost_of(value) == 1.0


def test_first_measurement_counts_and_later_ones_move_the_mean_by_a_fifth() -> None:
    measured = Costs()
    assert measured.expected("llm", "r0") == measured.expected("llm") == 0.0
    measured.observe("llm", "r0", 100.0, 10.0)
    assert measured.expected("llm", "r0") == pytest.approx(0.1)
    measured.observe("llm", "r0", 10.0, 2.0)
    assert measured.expected("llm", "r0") == pytest.approx(0.12)
    for _ in range(20):
        measured.observe("llm", "r0", 1.0, 0.2)
    assert measured.expected("llm", "r0") == pytest.approx(0.2, rel=0.01)


def test_nodes_and_replicas_are_measured_apart_and_a_node_has_a_mean() -> None:
    measured = Costs()
    measured.observe("llm", "r0", 1.0, 1.0)
    measured.observe("llm", "r1", 1.0, 4.0)
    measured.observe("asr", "r0", 1.0, 9.0)
    assert [measured.expected("llm", replica) for replica in ("r0", "r1", "r2", "")] == [1.0, 4.0, 0.0, 2.5]
    assert [measured.expected("asr", replica) for replica in ("r0", "r1", "")] == [9.0, 0.0, 9.0]


@pytest.mark.parametrize(
    ("cost", "seconds"),
    [(0.0, 1.0), (-1.0, 1.0), (1.0, -0.1), (1.0, float("nan")), (1.0, float("inf")), (1e-300, 1e300)],
)
def test_measurement_that_cannot_be_is_left_out(cost: float, seconds: float) -> None:
    measured = Costs()
    measured.observe("llm", "r0", cost, seconds)
    assert measured.expected("llm") == 0.0


def test_forgotten_replica_is_unknown_everywhere() -> None:
    measured = Costs()
    for node in ("llm", "asr"):
        measured.observe(node, "r0", 1.0, 1.0)
    measured.observe("llm", "r1", 1.0, 3.0)
    measured.forget("r0")
    measured.forget("r0")
    assert [measured.expected("llm", "r0"), measured.expected("llm"), measured.expected("asr")] == [0.0, 3.0, 0.0]


def test_nodes_that_have_not_run_for_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "MAX_NODES", 3)
    measured = Costs()
    for node in ("a", "b", "c", "a", "d"):
        measured.observe(node, "r0", 1.0, 1.0)
    assert [measured.expected(node) for node in "abcd"] == [1.0, 0.0, 1.0, 1.0]
