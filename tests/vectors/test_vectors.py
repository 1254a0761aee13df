"""The golden wire fixtures, read by the generated Python code."""

import json
from pathlib import Path

import pytest
from google.protobuf import json_format, symbol_database
from google.protobuf.message import Message

# Imported for what they register: the fixtures name their types by text.
from google.rpc import error_details_pb2

from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.kv.v1 import kv_directory_service_pb2, kv_layout_pb2, transfer_service_pb2
from omniflow.memory.v1 import memory_session_service_pb2
from omniflow.role.v1 import role_execution_service_pb2
from omniflow.session.v1 import session_pb2
from omniflow.workflow.v1 import graph_spec_pb2

DATA = Path(__file__).parent / "data"
TYPES: dict[str, str] = json.loads((DATA / "index.json").read_text(encoding="utf-8"))


def empty(name: str) -> Message:
    """A new message of the fixture's type."""
    return symbol_database.Default().GetSymbol(TYPES[name])()


def decoded(name: str) -> Message:
    """The message of the binary file."""
    message = empty(name)
    message.ParseFromString((DATA / f"{name}.binpb").read_bytes())
    return message


def test_index_names_every_file() -> None:
    assert {path.name for path in DATA.iterdir()} == {
        "index.json",
        *(f"{name}.binpb" for name in TYPES),
        *(f"{name}.json" for name in TYPES),
    }


@pytest.mark.parametrize("name", sorted(TYPES))
def test_binary_equals_json(name: str) -> None:
    from_json = json_format.Parse((DATA / f"{name}.json").read_text(encoding="utf-8"), empty(name))
    assert decoded(name) == from_json


@pytest.mark.parametrize("name", sorted(TYPES))
def test_binary_is_stable(name: str) -> None:
    assert decoded(name).SerializeToString(deterministic=True) == (DATA / f"{name}.binpb").read_bytes()


@pytest.mark.parametrize("name", sorted(TYPES))
def test_binary_has_no_unknown_field(name: str) -> None:
    """A field that the contracts have lost would otherwise be carried along unseen."""
    message = decoded(name)
    before = message.SerializeToString(deterministic=True)
    message.DiscardUnknownFields()
    assert message.SerializeToString(deterministic=True) == before
