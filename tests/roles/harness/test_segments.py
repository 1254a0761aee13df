"""Segments over a real Execute stream: what runs inside, and what is told of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from omniflow.codec.common import value_from_proto
from omniflow.dsl import Graph
from omniflow.graph.v1 import graph_event_pb2, sampling_pb2
from omniflow.interface import Context, Field, Inputs, Interface, Outputs, groups
from omniflow.large_values import ValueFetcher, decode
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import ElementType, Json, Tensor, Value, ValueType
from omniflow_roles.noop import BeginStep, Burst, Gather, Guide, PredictNoise, PrepareLatents, Step
from omniflow_roles.noop.graphs import denoise
from tests.roles.driver import Result, kinds
from tests.roles.running import driving
from tests.roles.segments import Holds, chain, inner_events, item, segment_command, story, yields_of
from tests.support.denoising import denoised

pytestmark = pytest.mark.usefixtures("transport")

JSON = ValueType.JSON
DENOISER = (PrepareLatents, BeginStep, PredictNoise, Guide)


def diamond() -> Graph:
    """a -> {b, c} -> j, whose item leaves."""
    graph = Graph("test-diamond")
    a, b, c = (graph.node(name, Step, role="test") for name in "abc")
    j = graph.node("j", Gather, role="test")
    graph.input("item", JSON) >> a.item
    a.item >> [b.item, c.item]
    b.item >> j.a
    c.item >> j.b
    j.item >> graph.output("item", JSON)
    return graph


def denoising(handle: int, **parameters: Any) -> messages.ExecuteCommand:
    return segment_command(handle, denoise.graph, "prepare", {"parameters": Json(parameters)}, outside={"vae"})


def the_exit(results: list[Result], field: str) -> Any:
    """The one value that left."""
    (message,) = [given.fields[field] for _, given in yields_of(results) if field in given.fields]
    return value_from_proto(message)


async def test_what_happens_inside_is_told_in_its_order(tmp_path: Path) -> None:
    async with driving(tmp_path, Step(), Gather()) as (_, driver):
        await driver.send(segment_command(1, diamond(), "a", item()))
        results = await driver.finish(1)
    assert kinds(results) == ["accepted", *["segment_step"] * (len(results) - 2), "completed"]
    assert story(results) == [
        "entry.0 (item)",
        "!entry",
        "+b1 below entry.0",
        "+c2 below entry.0",
        "b1.0 (item)",
        "!b1",
        "c2.0 (item)",
        "!c2",
        "+j3 below entry.0",
        "j3.0 item",
        "!j3",
    ]
    assert results[-1].completed == messages.ActivationCompleted()
    assert the_exit(results, "item").value["inputs"] == {"a": ["x.a0.b0"], "b": ["x.a0.c0"]}


async def test_start_inside_names_its_input_group(tmp_path: Path) -> None:
    async with driving(tmp_path, *(kind() for kind in DENOISER)) as (_, driver):
        await driver.send(denoising(1, steps=3))
        events = inner_events(await driver.finish(1))
    groups_of_begin = [event.started.input_group for event in events if event.started.node == "begin"]
    assert groups_of_begin == ["first", "next", "next"]


async def test_replica_says_that_it_runs_segments(tmp_path: Path) -> None:
    async with driving(tmp_path, Step()) as (_, driver):
        assert (await driver.stub.DescribeRole(messages.DescribeRoleRequest())).replica.runs_segments


async def test_loop_of_fifty_iterations_takes_three_messages_at_most(tmp_path: Path) -> None:
    """For the acceptance, for what leaves, and for the end; with them goes all that nobody has waited for."""
    async with driving(tmp_path, *(kind() for kind in DENOISER), heartbeat_s=60) as (_, driver):
        before = driver.message_count
        await driver.send(denoising(1, steps=50, size_bytes=64))
        results = await driver.finish(1)
        assert driver.message_count - before <= 3
    events = [event.WhichOneof("event") for event in inner_events(results)]
    activations = 1 + 50 * 5
    assert {kind: events.count(kind) for kind in set(events)} == {
        "started": activations - 1,
        "completed": activations,
    }
    assert len(yields_of(results)) == activations


async def test_loop_makes_what_its_stages_make_one_after_another(tmp_path: Path) -> None:
    async with driving(tmp_path, *(kind() for kind in DENOISER)) as (_, driver):
        await driver.send(denoising(1, steps=5, size_bytes=100))
        result = the_exit(await driver.finish(1), "result")
    assert bytes(result.data) == denoised(steps=5, size_bytes=100)


async def test_quiet_events_leave_after_a_heartbeat_at_most(tmp_path: Path) -> None:
    holds = Holds()
    async with driving(tmp_path, holds, Step(), heartbeat_s=0.1) as (_, driver):
        await driver.send(segment_command(1, chain(Holds, Step, Holds), "a", item()))
        await driver.expect(1, "accepted")
        holds.gates["a"].set()
        told = [await driver.next(1)]
        while "!b1" not in story(told):
            told.append(await driver.next(1))
        assert story(told)[-3:] == ["b1.0 (item)", "!b1", "+c2 below b1.0"]
        holds.gates["c"].set()
        assert kinds(await driver.finish(1))[-1] == "completed"


async def test_what_leaves_is_sent_at_once_with_all_before_it(tmp_path: Path) -> None:
    class Trickles(Holds):
        """Gives an item, then waits."""

        name = "test.trickles"

        async def run(self, inputs: Inputs, context: Context) -> AsyncIterator[Outputs]:  # type: ignore[override]
            yield await Step().run(inputs, context)
            await self.gates[context.node].wait()

    holds, trickles = Holds(), Trickles()
    async with driving(tmp_path, holds, trickles, heartbeat_s=60) as (_, driver):
        await driver.send(segment_command(1, chain(Holds, Trickles), "a", item()))
        await driver.expect(1, "accepted")  # what is queued from now on waits for company
        holds.gates["a"].set()
        told: list[Result] = []
        while not yields_of(told)[1:]:
            told.append(await driver.next(1))
        assert story(told) == ["entry.0 (item)", "!entry", "+b1 below entry.0", "b1.0 item"]
        trickles.gates["b"].set()
        assert kinds(await driver.finish(1))[-1] == "completed"


class Makes(Interface):
    """Tensors, and what else was asked for."""

    name = "test.makes"
    inputs = groups(text=Field(ValueType.TEXT))
    outputs = {"tensor": Field(ValueType.TENSOR), "note": Field(JSON), "spare": Field(ValueType.TEXT)}

    def __init__(self, *, size_bytes: int = 16) -> None:
        self.made: list[Value] = []
        self._size_bytes = size_bytes

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        tensor = Tensor(ElementType.UINT8, (self._size_bytes,), bytes(self._size_bytes))
        note = Json({"nan": float("nan")})  # no message could carry it
        self.made += [tensor, note]
        return {"tensor": tensor, "note": note, "spare": "nobody takes it"}


class Takes(Interface):
    """Keeps what it is given."""

    name = "test.takes"
    inputs = groups(tensor=Field(ValueType.TENSOR), note=Field(JSON, is_optional=True))
    outputs = {"text": Field(ValueType.TEXT)}

    def __init__(self) -> None:
        self.taken: list[Value] = []
        self.contexts: list[Context] = []

    async def run(self, inputs: Inputs, context: Context) -> Outputs:
        self.taken += [value for name in inputs for value in inputs.all(name)]
        self.contexts.append(context)
        return {"text": inputs.group}


def handed_on(*, leaves: bool = False) -> Graph:
    """makes -> takes; the tensor may leave too."""
    graph = Graph("test-handed-on")
    makes, takes = graph.node("makes", Makes, role="test"), graph.node("takes", Takes, role="test")
    graph.input("text", ValueType.TEXT) >> makes.text
    makes.tensor >> takes.tensor
    makes.note >> takes.note
    takes.text >> graph.output("text", ValueType.TEXT)
    if leaves:
        makes.tensor >> graph.output("tensor", ValueType.TENSOR)
    return graph


async def test_values_inside_are_the_objects_that_were_yielded(tmp_path: Path) -> None:
    makes, takes = Makes(), Takes()
    async with driving(tmp_path, makes, takes) as (_, driver):
        await driver.send(segment_command(1, handed_on(), "makes", {"text": "go"}))
        results = await driver.finish(1)
    assert [id(value) for value in takes.taken] == [id(value) for value in makes.made]
    assert the_exit(results, "text") == "main"
    assert story(results)[0] == "entry.0 (note) (tensor)"  # and nothing of what nobody takes


async def test_value_that_leaves_too_is_sent_and_goes_inside_as_it_is(tmp_path: Path) -> None:
    size = 100_000
    makes, takes = Makes(size_bytes=size), Takes()
    async with driving(tmp_path, makes, takes) as (server, driver):
        await driver.send(segment_command(1, handed_on(leaves=True), "makes", {"text": "go"}, call_id="c"))
        results = await driver.finish(1)
        assert story(results)[0] == "entry.0 tensor (note)"
        message = yields_of(results)[0][1].fields["tensor"]
        assert message.tensor.payload.remote.size_bytes == server.store.used_bytes == size
        async with ValueFetcher() as fetcher:
            assert isinstance(await decode(message, fetcher), Tensor)
        assert takes.taken[0] is makes.made[0]
        await driver.stub.ReleaseCall(messages.ReleaseCallRequest(call_ids=["c"]))
        assert server.store.used_bytes == 0


async def test_large_value_that_stays_is_not_kept_for_others(tmp_path: Path) -> None:
    async with driving(tmp_path, Makes(size_bytes=100_000), Takes()) as (server, driver):
        await driver.send(segment_command(1, handed_on(), "makes", {"text": "go"}))
        await driver.finish(1)
        assert server.store.used_bytes == 0


async def test_context_inside_is_that_of_the_entry_but_for_node_and_activation(tmp_path: Path) -> None:
    takes = Takes()
    async with driving(tmp_path, Makes(), takes) as (_, driver):
        command = segment_command(
            5,
            handed_on(),
            "makes",
            {"text": "go"},
            tenant="acme",
            session="s",
            session_ordinal=3,
            priority=7,
            traceparent="00-1-2-01",
            sampling=sampling_pb2.SamplingParameters(max_tokens=7),
        )
        command.start.deadline.FromSeconds(1 << 33)
        await driver.send(command)
        await driver.finish(5)
    (context,) = takes.contexts
    assert (context.call_id, context.activation_id, context.node) == ("call-5", (5 << 32) | 1, "takes")
    assert (context.tenant, context.session, context.priority) == ("acme", "s", 7)
    assert (context.traceparent, context.sampling.max_tokens) == ("00-1-2-01", 7)
    assert context.deadline_unix_s == 1 << 33


async def test_usage_and_finish_reason_are_told_by_the_activation_that_has_them(tmp_path: Path) -> None:
    graph = Graph("test-usage")
    burst = graph.node("burst", Burst, role="test")
    graph.input("parameters", JSON) >> burst.parameters
    burst.tokens >> graph.output("tokens", ValueType.TOKENS)
    async with driving(tmp_path, Burst()) as (_, driver):
        await driver.send(segment_command(1, graph, "burst", {"parameters": Json({"count": 3})}))
        results = await driver.finish(1)
    done = inner_events(results)[-1].completed
    assert (done.yield_count, done.usage.output_tokens) == (3, 3)
    assert done.finish_reason == graph_event_pb2.FINISH_REASON_STOP
    assert results[-1].completed == messages.ActivationCompleted()
