"""Inputs of a call: refused with the field named before anything is allocated, assembled from chunks, handed on in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from omniflow.codec.common import crc32c, value_from_proto, value_to_proto
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_service_pb2
from omniflow.large_values import ValueStore
from omniflow.values import Action, Audio, ElementType, Image, Json, Signal, Tensor, Tokens, Value, Video
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.plan import plan_graph
from omniflow_core.graph.spec import FieldSpec, GraphSpec, OutputSpec, PlaceholderSpec
from omniflow_server.control.inputs import InputLine, check_inputs
from tests.support.graphs import edge

LIMIT = 1024 * 1024 * 1024 - 1
EXAMPLES: dict[str, Value] = {
    "TEXT": "hello",
    "TOKENS": Tokens((1, 2), "he"),
    "TENSOR": Tensor(ElementType.FLOAT32, (2,), bytes(8)),
    "IMAGE": Image(b"png", "image/png"),
    "AUDIO": Audio(b"wav", "audio/wav"),
    "VIDEO": Video(b"mp4", "video/mp4"),
    "ACTION": Action("arm", Tensor(ElementType.FLOAT32, (1, 2), bytes(8))),
    "BYTES": b"bytes",
    "JSON": Json({"a": [1, None]}),
    "SIGNAL": Signal(),
}


def plan(single: str = "", streaming: str = "") -> Any:
    """A plan that hands each input to an output of its own; `single` is like "a:TEXT b:AUDIO?"."""
    placeholders = [_placeholder(text, False) for text in single.split()]
    placeholders += [_placeholder(text, True) for text in streaming.split()]
    return plan_graph(
        GraphSpec(
            name="graphs/test",
            nodes=(),
            edges=tuple(edge(p.field.name, f"{p.field.name}_out") for p in placeholders),
            placeholders=tuple(placeholders),
            outputs=tuple(
                OutputSpec(field=FieldSpec(name=f"{p.field.name}_out", type=p.field.type)) for p in placeholders
            ),
        )
    )


def _placeholder(text: str, is_streaming: bool) -> PlaceholderSpec:
    name, _, kind = text.rstrip("?").partition(":")
    return PlaceholderSpec(
        field=FieldSpec(name=name, type=kind or "TEXT", is_optional=text.endswith("?")), is_streaming=is_streaming
    )


def call_of(open_inputs: str = "", **inputs: Value | value_pb2.Value) -> graph_service_pb2.CallSpec:
    spec = graph_service_pb2.CallSpec(open_inputs=open_inputs.split())
    for name, value in inputs.items():
        message = value if isinstance(value, value_pb2.Value) else value_to_proto(value)
        spec.inputs[name].CopyFrom(message)
    return spec


def chunked(total_bytes: int, transfer_id: int = 1) -> value_pb2.Value:
    place = tensor_pb2.Payload(chunked=tensor_pb2.ChunkedPayload(transfer_id=transfer_id, total_bytes=total_bytes))
    return value_pb2.Value(data=place)


def piece(
    offset: int, data: bytes, *, last: bool = False, transfer_id: int = 1, **more: Any
) -> tensor_pb2.PayloadChunk:
    return tensor_pb2.PayloadChunk(transfer_id=transfer_id, offset_bytes=offset, data=data, last=last, **more)


def refusal(the_plan: Any, spec: graph_service_pb2.CallSpec) -> OmniFlowError:
    with pytest.raises(OmniFlowError) as caught:
        check_inputs(the_plan, spec, max_payload_bytes=LIMIT)
    return caught.value


# --- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", EXAMPLES)
@pytest.mark.parametrize("wanted", EXAMPLES)
def test_input_of_another_type_is_refused_naming_both(given: str, wanted: str) -> None:
    spec, the_plan = call_of(a=EXAMPLES[given]), plan(f"a:{wanted}")
    if given == wanted:
        check_inputs(the_plan, spec, max_payload_bytes=LIMIT)
        return
    error = refusal(the_plan, spec)
    assert error.reason is Reason.TYPE_MISMATCH
    assert [(v.field, v.description) for v in error.violations] == [
        ("call.inputs[a]", f"it takes {wanted}, not {given}")
    ]


def test_input_without_a_kind_is_refused() -> None:
    error = refusal(plan("a"), call_of(a=value_pb2.Value()))
    assert (error.reason, error.violations[0].field) == (Reason.INVALID_FIELD, "call.inputs[a]")


@pytest.mark.parametrize(
    ("name", "hint"), [("txet", "Did you mean 'text'?"), ("zzz", "Known: image, text."), ("", "Known: image, text.")]
)
def test_unknown_input_names_the_nearest(name: str, hint: str) -> None:
    error = refusal(plan("text image"), call_of(text="x", image="y", **{name: "z"}))
    assert error.reason is Reason.UNKNOWN_FIELD
    assert error.violations[0].field == f"call.inputs[{name}]"
    assert error.violations[0].description.endswith(hint)


def test_unknown_open_input_names_the_nearest() -> None:
    error = refusal(plan("text", "audio"), call_of("audo", text="x"))
    assert (error.reason, error.violations[0].field) == (Reason.UNKNOWN_FIELD, "call.open_inputs")
    assert "Did you mean 'audio'?" in error.message


def test_single_input_cannot_be_opened() -> None:
    error = refusal(plan("text"), call_of("text", text="x"))
    assert error.reason is Reason.UNKNOWN_FIELD
    assert "'text' is no streaming input" in error.message


def test_missing_inputs_are_all_named() -> None:
    error = refusal(plan("a b c? d"), call_of(b="x"))
    assert error.reason is Reason.MISSING_INPUT
    assert [v.field for v in error.violations] == ["call.inputs[a]", "call.inputs[d]"]


def test_call_without_any_of_its_optional_inputs_is_refused() -> None:
    error = refusal(plan("a? b?"), call_of())
    assert error.reason is Reason.MISSING_INPUT
    assert [v.field for v in error.violations] == ["call.inputs[a]", "call.inputs[b]"]
    check_inputs(plan("a? b?"), call_of(b="x"), max_payload_bytes=LIMIT)
    check_inputs(plan("a?", "s"), call_of("s"), max_payload_bytes=LIMIT)


@pytest.mark.parametrize("kind", ["TENSOR", "IMAGE", "AUDIO", "VIDEO", "ACTION", "BYTES"])
@pytest.mark.parametrize("place", ["buffer", "remote"])
def test_reference_into_the_platform_is_refused(kind: str, place: str) -> None:
    message = value_to_proto(EXAMPLES[kind])
    payload = _payload(message)
    getattr(payload, place).SetInParent()
    error = refusal(plan(f"a:{kind}"), call_of(a=message))
    assert (error.reason, error.violations[0].field) == (Reason.BUFFER_REF_REFUSED, "call.inputs[a]")


def _payload(message: value_pb2.Value) -> tensor_pb2.Payload:
    kind = message.WhichOneof("kind")
    if kind == "action":
        return message.action.values.payload
    held = getattr(message, kind or "")
    return held if kind == "data" else held.payload  # type: ignore[no-any-return]


@pytest.mark.parametrize("total_bytes", [2**30, 2**40, 2**64 - 1])
def test_payload_over_the_limit_is_refused_before_allocation(total_bytes: int) -> None:
    error = refusal(plan("a:BYTES"), call_of(a=chunked(total_bytes)))
    assert error.reason is Reason.PAYLOAD_TOO_LARGE
    assert error.violations[0].description == f"{total_bytes} bytes are announced, the limit is {LIMIT}"
    check_inputs(plan("a:BYTES"), call_of(a=chunked(2**30 - 1)), max_payload_bytes=LIMIT)


@pytest.mark.parametrize(
    ("element", "shape", "size", "part"),
    [
        (0, [2], 8, "spec.element_type"),
        (99, [2], 8, "spec.element_type"),
        (7, [3], 8, "payload"),
        (7, [], 8, "payload"),
        (7, [2**62, 4], 0, "payload"),
        (7, [-1, -2], 8, "spec.shape"),
        (7, [1] * 17, 4, "spec.shape"),
    ],
)
@pytest.mark.parametrize("kind", ["tensor", "action"])
def test_tensor_at_odds_with_its_description_is_refused(
    kind: str, element: int, shape: list[int], size: int, part: str
) -> None:
    message = value_pb2.Value()
    tensor = message.tensor if kind == "tensor" else message.action.values
    tensor.spec.element_type = element  # type: ignore[assignment]
    tensor.spec.shape.extend(shape)
    tensor.payload.inline = bytes(size)
    error = refusal(plan(f"a:{kind.upper()}"), call_of(a=message))
    assert (error.reason, error.violations[0].field) == (Reason.INVALID_FIELD, f"call.inputs[a].{part}")


# --- chunks and order --------------------------------------------------------------------------------------------------


@dataclass
class Line:
    """An input line whose deliveries are recorded."""

    the_plan: Any
    spec: graph_service_pb2.CallSpec
    budget_bytes: int = 10_000_000
    started: list[dict[str, value_pb2.Value]] = field(default_factory=list)
    delivered: list[tuple[str, Any, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = ValueStore(endpoint="unix:/x", incarnation_id="i", budget_bytes=self.budget_bytes)
        self.line = InputLine(
            plan=self.the_plan,
            call_id="c",
            store=self.store,
            max_payload_bytes=LIMIT,
            on_started=self.started.append,
            deliver=lambda name, value, is_last: self.delivered.append((name, self.read(value), is_last)),
        )
        self.line.start(self.spec)

    def read(self, value: value_pb2.Value | None) -> Any:
        """The Python value; bytes of a stored payload."""
        if value is None:
            return None
        if value.WhichOneof("kind") == "data" and value.data.WhichOneof("place") == "remote":
            return bytes(self.store.open(value.data.remote))
        return value_from_proto(value)

    def push(self, name: str, value: Value | value_pb2.Value | None = None, *, is_last: bool = False) -> None:
        message = graph_service_pb2.StreamInput(field=name, is_last=is_last)
        if value is not None:
            message.value.CopyFrom(value if isinstance(value, value_pb2.Value) else value_to_proto(value))
        self.line.push(message, "input")

    def refuses(self, chunk: tensor_pb2.PayloadChunk) -> tuple[Reason, str]:
        with pytest.raises(OmniFlowError) as caught:
            self.line.add_chunk(chunk, "chunk")
        return caught.value.reason, caught.value.violations[0].field


def test_line_starts_at_once_without_chunks() -> None:
    line = Line(plan("a b?"), call_of(a="x"))
    assert [{n: line.read(v) for n, v in values.items()} for values in line.started] == [{"a": "x"}]


def test_line_starts_when_every_chunked_input_is_whole() -> None:
    line = Line(plan("a:BYTES b:BYTES c"), call_of(a=chunked(3, 1), b=chunked(2, 7), c="x"))
    line.line.add_chunk(piece(0, b"pq", last=True, transfer_id=7), "chunk")
    line.line.add_chunk(piece(0, b"xy"), "chunk")
    assert line.started == []
    line.line.add_chunk(piece(2, b"z", last=True, crc32c=crc32c(b"z")), "chunk")
    (values,) = line.started
    assert {name: line.read(value) for name, value in values.items()} == {"a": b"xyz", "b": b"pq", "c": "x"}
    line.store.check_integrity()


def test_empty_chunked_payload_is_whole_at_once() -> None:
    line = Line(plan("a:BYTES"), call_of(a=chunked(0)))
    assert line.read(line.started[0]["a"]) == b""


def test_large_inline_payload_goes_to_the_store() -> None:
    line = Line(plan("a:BYTES"), call_of(a=bytes(100_000)))
    assert line.started[0]["a"].data.remote.size_bytes == 100_000
    assert line.store.used_bytes == 100_000


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (piece(1, b"xy"), (Reason.INVALID_FIELD, "chunk.offset_bytes")),
        (piece(0, b"123456789"), (Reason.INVALID_FIELD, "chunk.offset_bytes")),
        (piece(2**63, b"x"), (Reason.INVALID_FIELD, "chunk.offset_bytes")),
        (piece(0, b"xy", crc32c=1), (Reason.CHECKSUM_MISMATCH, "chunk.crc32c")),
        (piece(0, b"xy", last=True), (Reason.INVALID_FIELD, "chunk.last")),
        (piece(0, b"12345678", last=False), (Reason.INVALID_FIELD, "chunk.last")),
        (piece(0, b"xy", transfer_id=2), (Reason.INVALID_FIELD, "chunk.transfer_id")),
    ],
)
def test_chunk_that_does_not_fit_is_refused_and_changes_nothing(
    chunk: tensor_pb2.PayloadChunk, expected: tuple[Reason, str]
) -> None:
    line = Line(plan("a:BYTES"), call_of(a=chunked(8)))
    assert line.refuses(chunk) == expected
    line.line.add_chunk(piece(0, b"1234"), "chunk")
    line.line.add_chunk(piece(4, b"5678", last=True), "chunk")
    assert line.read(line.started[0]["a"]) == b"12345678"


def test_repeated_chunk_changes_nothing() -> None:
    line = Line(plan("a:BYTES"), call_of(a=chunked(8)))
    for _ in range(2):
        line.line.add_chunk(piece(0, b"1234"), "chunk")
    for _ in range(2):
        line.line.add_chunk(piece(4, b"5678", last=True), "chunk")
    line.line.add_chunk(piece(0, b"1234"), "chunk")
    assert [line.read(values["a"]) for values in line.started] == [b"12345678"]


def test_transfer_id_in_use_is_refused() -> None:
    with pytest.raises(OmniFlowError, match="1 is in use"):
        Line(plan("a:BYTES b:BYTES"), call_of(a=chunked(8, 1), b=chunked(8, 1)))


def test_announced_bytes_are_charged_before_they_come() -> None:
    line = Line(plan("a:BYTES", "s:BYTES"), call_of("s", a=chunked(60)), budget_bytes=100)
    assert line.store.used_bytes == 60
    with pytest.raises(OmniFlowError) as caught:
        line.push("s", chunked(41, 2))
    assert caught.value.reason is Reason.BUFFER_FULL
    line.push("s", chunked(40, 2))
    assert line.store.used_bytes == 100


def test_values_behind_a_chunked_one_wait_for_it() -> None:
    line = Line(plan("", "s:BYTES t"), call_of("s t"))
    line.line.release()
    line.push("t", "before")
    line.push("s", chunked(2))
    line.push("t", "after")
    line.push("s", b"last", is_last=True)
    assert line.delivered == [("t", "before", False)]
    line.line.add_chunk(piece(0, b"xy", last=True), "chunk")
    assert line.delivered[1:] == [("s", b"xy", False), ("t", "after", False), ("s", b"last", True)]


def test_values_wait_for_the_call_to_run() -> None:
    line = Line(plan("a", "s"), call_of("s", a="x", s="first"))
    line.push("s", "second")
    assert line.delivered == []
    line.line.release()
    assert line.delivered == [("s", "first", False), ("s", "second", False)]


def test_streaming_input_that_was_not_opened_closes_with_its_start() -> None:
    line = Line(plan("", "s t"), call_of("t", s="only"))
    line.line.release()
    assert line.delivered == [("s", "only", True)]


@pytest.mark.parametrize("is_released", [True, False])
def test_input_that_is_closed_takes_nothing_more(is_released: bool) -> None:
    """Refused, and never lost silently: also before the call runs, and behind a value that is still arriving."""
    line = Line(plan("", "s:BYTES t u"), call_of("s t"))
    if is_released:
        line.line.release()
    line.push("s", chunked(2), is_last=True)
    line.push("t", "x", is_last=True)
    for name, value in (("s", b"late"), ("t", "late"), ("u", "was never opened")):
        with pytest.raises(OmniFlowError) as caught:
            line.push(name, value)
        assert caught.value.reason is Reason.CALL_ENDED
        assert caught.value.violations[0].field == "input.field"
    with pytest.raises(OmniFlowError):
        line.push("t", is_last=True)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("x", "v", (Reason.UNKNOWN_FIELD, "input.field")),
        ("a", "v", (Reason.UNKNOWN_FIELD, "input.field")),
        ("s", b"v", (Reason.TYPE_MISMATCH, "input.value")),
        ("s", None, (Reason.INVALID_FIELD, "input.value")),
    ],
)
def test_pushed_input_that_cannot_be_taken_is_refused(name: str, value: Any, expected: tuple[Reason, str]) -> None:
    line = Line(plan("a", "s"), call_of("s", a="x"))
    with pytest.raises(OmniFlowError) as caught:
        line.push(name, value)
    assert (caught.value.reason, caught.value.violations[0].field) == expected


def test_closed_line_keeps_no_memory_of_what_was_arriving() -> None:
    line = Line(plan("a:BYTES", "s:BYTES"), call_of("s", a=chunked(8), s=chunked(8, 2)))
    line.line.close()
    line.store.release_call("c")
    assert line.store.used_bytes == 0
    assert not (line.line._start or line.line._line or line.line._transfers)
