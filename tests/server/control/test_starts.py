"""Starts that are put together by hand are those that protobuf would write."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow.codec.common import value_to_proto
from omniflow.graph.v1 import graph_service_pb2
from omniflow.large_values import INLINE_LIMIT, ValueStore
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow_core.control.commands import Facet, StartActivation
from omniflow_core.graph.plan import plan_graph
from omniflow_server.control.carried import CarriedValue
from omniflow_server.control.starts import StartMessages
from tests.support.graphs import graph, node

PLAN = plan_graph(graph((node("a"), node("b", yield_window=3)), "x>a.x a.y>b.x b.y>out"))
ordinals = st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple)
texts = st.text(max_size=200)


def starts() -> tuple[StartMessages, ValueStore]:
    store = ValueStore(endpoint="unix:/here", incarnation_id="1", budget_bytes=1 << 30)
    return StartMessages(yield_window=64, byte_credit=1000, store=store), store


def call_of(*, fence: int = 0, **fields: Any) -> Any:
    spec = graph_service_pb2.CallSpec(**fields)
    return SimpleNamespace(
        call_id="c1",
        tenant="t",
        session=spec.session,
        priority=spec.priority,
        spec=spec,
        start_head=None,
        fence=fence,
    )


def carried(values: list[str]) -> tuple[CarriedValue, ...]:
    return tuple(CarriedValue(native=value) for value in values)


def made(call: Any, command: StartActivation, **more: Any) -> pb.StartActivation:
    options: dict[str, Any] = {"session_ordinal": 0, "segment": None, **more}
    return pb.StartActivation.FromString(starts()[0].serialized(cast("Any", call), command, **options))


@given(st.data())
def test_start_is_what_protobuf_writes(data: st.DataObject) -> None:
    path = data.draw(ordinals)
    fields = data.draw(st.dictionaries(texts, st.lists(texts, min_size=1, max_size=3), max_size=3))
    has_paths = data.draw(st.booleans())
    paths = {name: tuple(data.draw(ordinals) for _ in values) for name, values in fields.items()} if has_paths else None
    context = {name: 1 for name in fields if data.draw(st.booleans())}
    facet = Facet("group", {name: carried(values) for name, values in fields.items()}, paths, context)
    number, attempt = data.draw(st.integers(1, 2**63)), data.draw(st.integers(1, 300))
    command = StartActivation(number, PLAN.nodes["b"], (facet, facet), path, attempt)

    expected = pb.StartActivation(
        activation=pb.ActivationRef(call_id="c1", node="b", interface="test.b", activation_id=number, attempt=attempt),
        tenant="t",
        session="s",
        session_fence=1_764_000_000_000_000,
        priority=-2,
        yield_window=3,
        byte_credit=1000,
    )
    expected.sampling.seed = 7
    expected.deadline.seconds = 12
    for _ in range(2):
        added = expected.facets.add(input_group="group")
        for name, values in fields.items():
            field = added.fields[name]
            for index, value in enumerate(values):
                origin = paths[name][index] if paths is not None else path
                field.values.add(value=value_to_proto(value), origin_path=origin)
            field.context_count = context.get(name, 0)
    call = call_of(
        fence=1_764_000_000_000_000, session="s", priority=-2, sampling={"seed": 7}, deadline={"seconds": 12}
    )
    assert made(call, command) == expected
    assert made(call, command) == expected, "what was kept of the call is the same"


def test_start_without_facets_is_told_so() -> None:
    message = made(call_of(), StartActivation(1, PLAN.nodes["a"], (), ()))
    assert not message.facets
    assert message.yield_window == 64


def test_rare_parts_are_there_when_wanted() -> None:
    segment = pb.Segment(segment_id="s")
    command = StartActivation(1, PLAN.nodes["a"], (), (), 2, ({"y": CarriedValue(native="v")},))
    message = made(call_of(), command, session_ordinal=9, segment=segment)
    assert (message.session_ordinal, message.segment) == (9, segment)
    assert message.delivered_yields[0].fields["y"].text == "v"


@pytest.mark.parametrize("excess", [0, 1])
def test_large_payload_stays_here(excess: int) -> None:
    messages, store = starts()
    value = CarriedValue(message=value_to_proto(bytes(INLINE_LIMIT + excess)))
    command = StartActivation(1, PLAN.nodes["a"], (Facet("main", {"x": (value,)}),), (0,))
    data = messages.serialized(cast("Any", call_of()), command, session_ordinal=0, segment=None)
    assert (len(data) < 1000) is bool(excess)
    assert store.used_bytes == (INLINE_LIMIT + 1) * excess


def test_what_is_kept_of_a_node_goes_with_its_plan() -> None:
    messages, _ = starts()
    plan = plan_graph(graph((node("a"),), "x>a.x a.y>out"))
    command = StartActivation(1, plan.nodes["a"], (), ())
    messages.serialized(cast("Any", call_of()), command, session_ordinal=0, segment=None)
    assert len(messages._nodes) == 1
    del plan, command
    gc.collect()
    assert len(messages._nodes) == 0
