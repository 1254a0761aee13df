"""Frames of results."""

from __future__ import annotations

import os

from omniflow.codec.common import value_to_proto
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.values import Tokens
from omniflow_roles.harness.results import YieldFrames
from tests.support.processes import rss_bytes


def test_yield_frames_carry_their_own_fields_only() -> None:
    frames = YieldFrames(7)
    first = frames.frame(0, [("text", value_to_proto("a")), ("more", value_to_proto("b"))])
    second = frames.frame(1, [("text", value_to_proto("c"))])
    results = pb.ExecuteResponse.FromString(first + second).results
    outputs = [getattr(result, "yield") for result in results]
    assert [result.handle for result in results] == [7, 7]
    assert [output.ordinal for output in outputs] == [0, 1]
    assert [{name: value.text for name, value in output.fields.items()} for output in outputs] == [
        {"text": "a", "more": "b"},
        {"text": "c"},
    ]


def test_yield_frames_keep_no_memory_of_what_was_sent() -> None:
    frames, value = YieldFrames(1), value_to_proto(Tokens((1,), "word"))
    before_bytes = rss_bytes(os.getpid())
    for ordinal in range(100_000):
        frames.frame(ordinal, [("tokens", value)])
    assert rss_bytes(os.getpid()) - before_bytes < 4 << 20
