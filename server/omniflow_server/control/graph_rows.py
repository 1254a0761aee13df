"""How the revisions of a graph are written into a row of the metadata store, and read by this and other versions.

    {"format": 1, "revisions": [{"create_time_ms": 1700000000000, "graph": "<GraphSpec, base64>"}], "places": "00...011"}

Revisions stand from the oldest to the newest; `places` has one digit for each of the 100 places, the index of its revision.
A version that writes something that this one would misread counts `ROW_FORMAT` up, and this one leaves such rows out.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf.message import DecodeError

from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_server.control.graph_versions import PLACES, GraphVersions, Revision
from omniflow_server.data.metadata.port import ROW_FORMAT


class UnreadableRowError(Exception):
    """The row is of another format, or broken; the text says which."""


def encode(versions: GraphVersions) -> bytes:
    """The payload of a row."""
    index = {name: str(i) for i, name in enumerate(versions.names)}
    row = {
        "format": ROW_FORMAT,
        "revisions": [
            {"create_time_ms": r.create_time_ms, "graph": base64.b64encode(r.message.SerializeToString()).decode()}
            for r in versions.revisions
        ],
        "places": "".join(index[name] for name in versions.places),
    }
    return json.dumps(row, separators=(",", ":")).encode()


def decode(name: str, payload: bytes) -> GraphVersions:
    """What `encode` wrote of the graph `name`. Raises UnreadableRowError."""
    try:
        row = json.loads(payload)
        row_format = row["format"]
        if row_format == ROW_FORMAT:
            return _checked(name, _versions(row))
    except (ValueError, KeyError, TypeError, IndexError, DecodeError) as problem:
        raise UnreadableRowError(f"its row is broken: {problem!r}") from None
    raise UnreadableRowError(
        f"its row has format {row_format!r}, and this version reads {ROW_FORMAT}; update this process"
    )


def _versions(row: dict[str, Any]) -> GraphVersions:
    revisions = tuple(_revision(item) for item in row["revisions"])
    return GraphVersions(revisions=revisions, places=tuple(revisions[int(digit)].name for digit in row["places"]))


def _revision(item: dict[str, Any]) -> Revision:
    message = graph_spec_pb2.GraphSpec.FromString(base64.b64decode(item["graph"], validate=True))
    return Revision(message=message, create_time_ms=int(item["create_time_ms"]))


def _checked(name: str, versions: GraphVersions) -> GraphVersions:
    if {revision.message.name for revision in versions.revisions} != {name}:
        raise ValueError("its revisions are not of this graph")
    if len(set(versions.names)) != len(versions.names) or "" in versions.names:
        raise ValueError("its revisions have no names of their own")
    if len(versions.places) != PLACES:
        raise ValueError(f"it has {len(versions.places)} places")
    return versions
