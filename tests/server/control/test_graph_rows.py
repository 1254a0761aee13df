"""Rows of graphs in the store: written, read, and those that this version leaves alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_server.control.graph_rows import UnreadableRowError, decode, encode
from omniflow_server.control.graph_versions import GraphVersions, Revision

NAME = "graphs/demo"


def versions() -> GraphVersions:
    first, second = (
        Revision(message=graph_spec_pb2.GraphSpec(name=NAME, revision=name, description=text), create_time_ms=time_ms)
        for name, text, time_ms in (("v1", "é", 1_700_000_000_123), ("v2", "", 0))
    )
    return GraphVersions.first(first).adding(second, 10)


def test_row_is_read_as_it_was_written() -> None:
    assert decode(NAME, encode(versions())) == versions()


def test_row_says_its_format_and_whose_each_place_is() -> None:
    row = json.loads(encode(versions()))
    assert (row["format"], row["places"]) == (1, "0" * 90 + "1" * 10)
    assert [revision["create_time_ms"] for revision in row["revisions"]] == [1_700_000_000_123, 0]


def test_row_of_a_newer_format_is_not_read() -> None:
    with pytest.raises(UnreadableRowError, match="its row has format 2, and this version reads 1; update this process"):
        decode(NAME, json.dumps({"format": 2, "graphs": "otherwise"}).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"places": "0" * 99},
        {"places": "0" * 99 + "2"},
        {"places": "0" * 99 + "x"},
        {"places": None},
        {"revisions": []},
        {"revisions": [{}]},
        {"revisions": [{"create_time_ms": 0, "graph": "not base64!"}]},
        {"revisions": [{"create_time_ms": 0, "graph": "/////w=="}]},
    ],
)
def test_broken_row_is_not_read(change: dict[str, Any]) -> None:
    row = json.loads(encode(versions())) | change
    with pytest.raises(UnreadableRowError, match="its row is broken"):
        decode(NAME, json.dumps(row).encode())


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b"\xff", b"null"])
def test_payload_that_is_no_row_is_not_read(payload: bytes) -> None:
    with pytest.raises(UnreadableRowError, match="its row is broken"):
        decode(NAME, payload)


def test_row_of_another_graph_or_with_a_revision_twice_is_not_read() -> None:
    with pytest.raises(UnreadableRowError, match="not of this graph"):
        decode("graphs/other", encode(versions()))
    row = json.loads(encode(versions()))
    row["revisions"][1] = row["revisions"][0]
    with pytest.raises(UnreadableRowError, match="no names of their own"):
        decode(NAME, json.dumps(row).encode())
