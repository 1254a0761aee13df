"""Rules beside the fields of the contract, each kind of them, wherever it stands."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory
from google.protobuf.message import Message

from omniflow.common.v1 import rules_pb2
from omniflow.graph.v1 import graph_service_pb2
from omniflow.role.v1 import role_execution_service_pb2, role_registry_service_pb2
from omniflow.workflow.v1 import graph_spec_pb2, workflow_service_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.rpc.validate import validate

GRAPH = "graphs/demo"
F = descriptor_pb2.FieldDescriptorProto


def faults(message: Message, path: str = "") -> list[tuple[str, str]]:
    try:
        validate(message, path)
    except OmniFlowError as error:
        assert error.reason is Reason.INVALID_FIELD
        first = error.violations[0]
        assert error.message == f"{first.field}: {first.description}"
        return [(v.field, v.description) for v in error.violations]
    return []


# --- every kind of rule on a message of our own ------------------------------------------------------------------------


def _field(name: str, number: int, kind: Any, *, label: Any = F.LABEL_OPTIONAL, **rules: Any) -> Any:
    """A field; `type_name` and `optional` beside the rules."""
    type_name, is_optional = rules.pop("type_name", ""), rules.pop("optional", False)
    field = F(name=name, number=number, type=kind, label=label, type_name=type_name or None)
    if is_optional:
        field.proto3_optional = True
        field.oneof_index = 0
    if rules:
        rules_extension: Any = rules_pb2.rules
        field.options.Extensions[rules_extension].CopyFrom(rules_pb2.FieldRules(**rules))
    return field


@functools.cache
def everything() -> Any:
    """A message type with each kind of rule."""
    many, string, message = F.LABEL_REPEATED, F.TYPE_STRING, F.TYPE_MESSAGE
    leaf = descriptor_pb2.DescriptorProto(name="Leaf", field=[_field("word", 1, string, max_bytes=4)])
    tree = descriptor_pb2.DescriptorProto(
        name="Tree",
        field=[
            _field("text", 1, string, required=True, max_bytes=8),
            _field("data", 2, F.TYPE_BYTES, max_bytes=4),
            _field("name", 3, string, pattern="[a-z]+"),
            _field("words", 4, string, label=many, max_items=2, max_bytes=4, pattern="[a-z]*"),
            _field("whole", 5, F.TYPE_INT64, minimum=-1, maximum=2**40),
            _field("ratio", 6, F.TYPE_DOUBLE, minimum=0, maximum=1),
            _field("low", 7, F.TYPE_FLOAT, minimum=0),
            _field("high", 8, F.TYPE_UINT32, maximum=9),
            _field("maybe", 9, F.TYPE_DOUBLE, minimum=1, optional=True),
            _field("time", 10, message, type_name=".google.protobuf.Duration", minimum=0.5, maximum=2),
            _field("leaf", 11, message, type_name=".test.validate.Leaf", required=True),
            _field("leaves", 12, message, label=many, type_name=".test.validate.Leaf", max_items=2),
            _field("shape", 13, F.TYPE_INT64, label=many, minimum=0),
            _field(
                "keyed",
                14,
                message,
                label=many,
                type_name=".test.validate.Tree.KeyedEntry",
                pattern="[a-z]+",
                max_items=2,
            ),
            _field("tree", 15, message, type_name=".test.validate.Tree"),
            _field("kind", 16, F.TYPE_ENUM, type_name=".test.validate.Kind", required=True),
            _field("count", 17, F.TYPE_UINT32, required=True),
            _field("some", 18, string, label=many, required=True),
        ],
    )
    entry = tree.nested_type.add(name="KeyedEntry")
    entry.field.extend([_field("key", 1, string), _field("value", 2, message, type_name=".test.validate.Leaf")])
    entry.options.map_entry = True
    tree.oneof_decl.add(name="_maybe")
    file = descriptor_pb2.FileDescriptorProto(
        name="test/validate.proto",
        package="test.validate",
        syntax="proto3",
        dependency=["google/protobuf/duration.proto", "omniflow/common/v1/rules.proto"],
        message_type=[leaf, tree],
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="KIND_UNSPECIFIED", number=0)
    kind.value.add(name="KIND_SET", number=1)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.validate.Tree"))


def tree(**fields: Any) -> Any:
    """A valid one with some fields changed."""
    made = everything()(text="t", kind=1, count=1, some=["x"], leaf={})
    for name, value in fields.items():
        made.ClearField(name)
        made.MergeFrom(everything()(**{name: value}))
    return made


def test_valid_message_passes() -> None:
    assert faults(tree()) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"text": ""}, ("text", "it is required")),
        ({"leaf": None}, ("leaf", "it is required")),
        ({"kind": 0}, ("kind", "it is required")),
        ({"count": 0}, ("count", "it is required")),
        ({"some": []}, ("some", "it is required")),
        ({"text": "123456789"}, ("text", "9 bytes, the limit is 8")),
        ({"text": "€€€"}, ("text", "9 bytes, the limit is 8")),
        ({"data": b"12345"}, ("data", "5 bytes, the limit is 4")),
        ({"name": "aB"}, ("name", "it must match [a-z]+")),
        ({"name": "ab\n"}, ("name", "it must match [a-z]+")),
        ({"words": ["a", "b", "c"]}, ("words", "3 items, the limit is 2")),
        ({"words": ["a", "abcde"]}, ("words[1]", "5 bytes, the limit is 4")),
        ({"words": ["A"]}, ("words[0]", "it must match [a-z]*")),
        ({"whole": -2}, ("whole", "-2 is not between -1 and 1099511627776")),
        ({"whole": 2**40 + 1}, ("whole", "1099511627777 is not between -1 and 1099511627776")),
        ({"ratio": 1.5}, ("ratio", "1.5 is not between 0 and 1")),
        ({"ratio": math.nan}, ("ratio", "nan is not between 0 and 1")),
        ({"ratio": math.inf}, ("ratio", "inf is not between 0 and 1")),
        ({"low": -0.5}, ("low", "-0.5 is below 0")),
        ({"low": math.nan}, ("low", "nan is no number")),
        ({"high": 10}, ("high", "10 is above 9")),
        ({"maybe": 0.0}, ("maybe", "0 is below 1")),
        ({"time": duration_pb2.Duration(nanos=400_000_000)}, ("time", "0.4 s is not between 0.5 and 2 s")),
        ({"time": duration_pb2.Duration(seconds=2, nanos=1)}, ("time", "2.000000001 s is not between 0.5 and 2 s")),
        ({"leaf": {"word": "12345"}}, ("leaf.word", "5 bytes, the limit is 4")),
        ({"leaves": [{}, {"word": "12345"}]}, ("leaves[1].word", "5 bytes, the limit is 4")),
        ({"leaves": [{}, {}, {}]}, ("leaves", "3 items, the limit is 2")),
        ({"shape": [1, -1]}, ("shape[1]", "-1 is below 0")),
        ({"keyed": {"A1": {}}}, ("keyed[A1]", "it must match [a-z]+")),
        ({"keyed": {"a": {"word": "12345"}}}, ("keyed[a].word", "5 bytes, the limit is 4")),
        ({"keyed": {"a": {}, "b": {}, "c": {}}}, ("keyed", "3 items, the limit is 2")),
        ({"tree": tree(text="123456789")}, ("tree.text", "9 bytes, the limit is 8")),
        ({"tree": tree(tree=tree(shape=[-1]))}, ("tree.tree.shape[0]", "-1 is below 0")),
    ],
)
def test_broken_rule_is_named_by_its_path(fields: dict[str, Any], expected: tuple[str, str]) -> None:
    assert faults(tree(**fields)) == [expected]


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "12345678"},
        {"data": b"1234"},
        {"name": ""},
        {"words": ["abcd", ""]},
        {"whole": -1},
        {"whole": 2**40},
        {"ratio": 1.0},
        {"high": 9},
        {"time": duration_pb2.Duration(seconds=2)},
        {"maybe": 1.0},
        {"keyed": {"a": {"word": "1234"}}},
    ],
)
def test_value_at_its_limit_passes(fields: dict[str, Any]) -> None:
    assert faults(tree(**fields)) == []


def test_every_violation_is_told() -> None:
    found = faults(tree(text="", ratio=-1.0, words=["A", "B"]))
    assert [field for field, _ in found] == ["text", "words[0]", "words[1]", "ratio"]


def test_path_stands_in_front() -> None:
    assert faults(tree(text=""), "messages[3].") == [("messages[3].text", "it is required")]


# --- the contract ------------------------------------------------------------------------------------------------------


def stream_call(**call: Any) -> graph_service_pb2.StreamCallRequest:
    return graph_service_pb2.StreamCallRequest(graph=GRAPH, call=graph_service_pb2.CallSpec(**call))


@pytest.mark.parametrize(
    ("request_message", "field"),
    [
        (graph_service_pb2.StreamCallRequest(), "graph"),
        (graph_service_pb2.StreamCallRequest(graph="demo"), "graph"),
        (graph_service_pb2.RunCallRequest(graph="graphs/" + "x" * 200), "graph"),
        (stream_call(request_id="r" * 129), "call.request_id"),
        (stream_call(session="s"), "call.session"),
        (stream_call(session="sessions/a b"), "call.session"),
        (stream_call(priority=101), "call.priority"),
        (stream_call(heartbeat_interval=duration_pb2.Duration(nanos=1)), "call.heartbeat_interval"),
        (stream_call(detach_grace=duration_pb2.Duration(seconds=-1)), "call.detach_grace"),
        (stream_call(detach_grace=duration_pb2.Duration(seconds=301)), "call.detach_grace"),
        (stream_call(open_inputs=["x"] * 257), "call.open_inputs"),
        (stream_call(sampling={"temperature": -1}), "call.sampling.temperature"),
        (stream_call(sampling={"temperature": math.nan}), "call.sampling.temperature"),
        (stream_call(sampling={"top_p": math.inf}), "call.sampling.top_p"),
        (stream_call(sampling={"max_tokens": 0}), "call.sampling.max_tokens"),
        (stream_call(sampling={"stop": ["ok", "x" * 257]}), "call.sampling.stop[1]"),
        (stream_call(sampling={"regex": "x" * 5000}), "call.sampling.regex"),
        (stream_call(inputs={"a": {"text": "x" * (2**20 + 1)}}), "call.inputs[a].text"),
        (stream_call(inputs={"a": {"tensor": {}}}), "call.inputs[a].tensor.spec"),
        (
            stream_call(inputs={"a": {"tensor": {"spec": {"element_type": 7, "shape": [-1]}}}}),
            "call.inputs[a].tensor.spec.shape[0]",
        ),
        (graph_service_pb2.PushInputRequest(call_id="c"), "ordinal"),
        (graph_service_pb2.PushInputRequest(call_id="c", ordinal=1, chunk={"data": bytes(2**20 + 1)}), "chunk.data"),
        (graph_service_pb2.GetCallRequest(), "call_id"),
        (graph_service_pb2.CancelCallRequest(reason="x" * 1025), "reason"),
        (graph_service_pb2.ResumeCallRequest(), "resume_token"),
        (role_registry_service_pb2.RegisterReplicaRequest(), "replica"),
        (role_registry_service_pb2.ListReplicasRequest(page_size=-1), "page_size"),
        (role_execution_service_pb2.ReleaseCallRequest(), "call_ids"),
        (workflow_service_pb2.ApplyGraphRequest(graph=graph_spec_pb2.GraphSpec(name="x")), "graph.name"),
        (
            workflow_service_pb2.ApplyGraphRequest(
                graph=graph_spec_pb2.GraphSpec(name=GRAPH, nodes=[{"name": "a b", "interface": "i"}])
            ),
            "graph.nodes[0].name",
        ),
        (
            workflow_service_pb2.ApplyGraphRequest(
                graph=graph_spec_pb2.GraphSpec(
                    name=GRAPH, nodes=[{"name": "a", "interface": "i", "timeout": duration_pb2.Duration()}]
                )
            ),
            "graph.nodes[0].timeout",
        ),
    ],
)
def test_request_of_the_contract_is_held_to_its_rules(request_message: Message, field: str) -> None:
    assert [found for found, _ in faults(request_message)] == [field]


def test_requests_of_the_contract_pass() -> None:
    assert faults(stream_call(session="sessions/a.b~c-1", sampling={"temperature": 0, "top_p": 1})) == []
    assert faults(stream_call(inputs={"a": {"json": {"struct_value": {}}}})) == []
