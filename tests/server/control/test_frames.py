"""Frames of events are what protobuf itself would have written."""

from __future__ import annotations

import random

import pytest
from google.protobuf import struct_pb2

from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow_server.control.frames import ValueFrames, fragment

RESPONSES = (
    graph_service_pb2.StreamCallResponse,
    graph_service_pb2.ConverseCallResponse,
    graph_service_pb2.ResumeCallResponse,
)


def random_text(chance: random.Random, most: int = 20) -> str:
    return "".join(chance.choice("abc äß€😀\n\0") for _ in range(chance.randint(0, most)))


def random_payload(chance: random.Random) -> tensor_pb2.Payload:
    payload = tensor_pb2.Payload()
    match chance.randint(0, 3):
        case 0:
            payload.inline = chance.randbytes(chance.choice([0, 1, 127, 128, 300, 20_000]))
        case 1:
            payload.chunked.transfer_id = chance.randint(0, 2**32 - 1)
            payload.chunked.total_bytes = chance.randint(0, 2**63)
        case 2:
            payload.remote.value_id = random_text(chance)
    return payload


def random_value(chance: random.Random) -> value_pb2.Value:
    value = value_pb2.Value()
    kind = chance.choice([field.name for field in value_pb2.Value.DESCRIPTOR.oneofs_by_name["kind"].fields])
    if kind == "text":
        value.text = random_text(chance, 200)
    elif kind == "tokens":
        value.tokens.ids.extend(chance.randint(0, 2**32 - 1) for _ in range(chance.randint(0, 9)))
        value.tokens.text = random_text(chance)
        value.tokens.logprobs.extend(-chance.random() for _ in value.tokens.ids)
    elif kind in ("image", "audio", "video"):
        media = getattr(value, kind)
        media.payload.CopyFrom(random_payload(chance))
        media.mime_type, media.item, media.is_partial = random_text(chance), chance.randint(0, 9), chance.random() < 0.5
        media.timestamp.nanos = chance.randint(0, 999_999_999)
    elif kind == "tensor":
        value.tensor.spec.shape.extend(chance.randint(0, 2**40) for _ in range(chance.randint(0, 16)))
        value.tensor.payload.CopyFrom(random_payload(chance))
    elif kind == "data":
        value.data.CopyFrom(random_payload(chance))
    elif kind == "json":
        value.json.list_value.values.add(number_value=chance.random())
        value.json.list_value.values.add().struct_value.fields[random_text(chance)].null_value = struct_pb2.NULL_VALUE
    else:
        getattr(value, kind).SetInParent()
    return value


@pytest.mark.parametrize("seed", range(300))
def test_value_frame_is_what_protobuf_writes(seed: int) -> None:
    chance = random.Random(seed)
    value = random_value(chance)
    node, field, key = random_text(chance), random_text(chance, 300), random_text(chance)
    path = tuple(chance.choice([0, 1, 127, 128, 2**32 - 1]) for _ in range(chance.choice([0, 1, 2, 40, 200])))
    sequence = chance.choice([1, 127, 128, 2**32, 2**63])
    frame = ValueFrames(node=node, field=field, call_key=key).fragment(sequence, path, value)
    event = graph_event_pb2.GraphEvent(
        sequence=sequence, node=node, origin_path=path, field=field, call_key=key, value=value
    )
    expected = graph_service_pb2.StreamCallResponse(events=[event]).SerializeToString(deterministic=True)
    assert frame == expected
    for response in RESPONSES:
        assert response.FromString(frame).events[0] == event


def test_fragments_join_to_one_response_in_order() -> None:
    chance = random.Random(7)
    frames = ValueFrames(node="n", field="f", call_key="k")
    values = [random_value(chance) for _ in range(50)]
    parts = [frames.fragment(i + 1, (i,), value) for i, value in enumerate(values)]
    parts.append(fragment(graph_event_pb2.GraphEvent(sequence=51, finished=graph_event_pb2.CallFinished())))
    events = graph_service_pb2.ConverseCallResponse.FromString(b"".join(parts)).events
    assert [event.sequence for event in events] == list(range(1, 52))
    assert [event.value for event in events[:-1]] == values
    assert events[-1].WhichOneof("event") == "finished"


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_fragment_of_any_length_parses(size: int) -> None:
    event = graph_event_pb2.GraphEvent(node="x" * size)
    (parsed,) = graph_service_pb2.StreamCallResponse.FromString(fragment(event)).events
    assert parsed == event
