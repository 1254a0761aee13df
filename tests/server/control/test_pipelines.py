"""Pipelines over two replicas by script: what the first is told, what the last gives, what is left when one breaks off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from omniflow.codec.common import value_to_proto
from omniflow.dsl import Graph
from omniflow.graph.v1 import graph_event_pb2
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.values import ValueType
from omniflow_core.errors import Reason
from omniflow_server.compose import ControlPlane
from omniflow_server.control.call import Call
from omniflow_server.control.link import ReplicaLink
from tests.roles.running import eventually
from tests.server.control.planes import ended, events, plane, register, start
from tests.server.control.scripted_role import ScriptedRole, Work
from tests.server.control.table import kinds
from tests.server.control.test_segments import NAME, Stage


def chain(*, window: int = 2) -> Graph:
    """x -> a -> b -> text: a of role `first`, b of role `last`."""
    graph = Graph("chain")
    a = graph.node("a", Stage, role="first", yield_window=window)
    b = graph.node("b", Stage, role="last", yield_window=5)
    graph.input("x", ValueType.TEXT) >> a.inputs.field("x")
    a.y >> b.inputs.field("x")
    b.y >> graph.output("text", ValueType.TEXT)
    return graph


class Roles:
    """A control plane with both roles connected."""

    def __init__(self, made: ControlPlane, first: ScriptedRole, last: ScriptedRole) -> None:
        self.made = made
        self.first = first
        self.last = last

    def link_of(self, role: ScriptedRole) -> ReplicaLink:
        return next(link for link in self.made.dispatcher.links.all() if link.name.startswith(f"{role.replica.role}/"))

    async def started(self) -> tuple[Call, Work]:
        """A call whose first node has been started."""
        call = start(self.made, "chain", x="v")
        (work,) = await self.first.next_work(1)
        return call, work

    async def give(self, handle: int, ordinal: int, path: tuple[int, ...], **fields: str) -> None:
        """A yield of the last node."""
        message = pb.ActivationYield(ordinal=ordinal, origin_path=path)
        for name, value in fields.items():
            message.fields[name].CopyFrom(value_to_proto(value))
        await self.last.streams[-1].send(pb.ExecuteResult(handle=handle, **{"yield": message}))


@asynccontextmanager
async def running(graph: Graph | None = None, *, runs: bool = True, **settings: Any) -> AsyncIterator[Roles]:
    async with (
        plane(Stage, graphs=(graph or chain(),), **({"pipelines": True} | settings)) as made,
        ScriptedRole(NAME, role="first", replica_id="first-0") as first,
        ScriptedRole(NAME, role="last", replica_id="last-0") as last,
    ):
        for role in (first, last):
            role.replica.runs_pipelines = runs or role is first
            register(made, role.replica)
        await eventually(lambda: sum(link.is_connected for link in made.dispatcher.links.all()) == 2)
        yield Roles(made, first, last)


def outputs(call: Call) -> list[tuple[str, str, tuple[int, ...]]]:
    return [
        (event.node, event.value.text, tuple(event.origin_path))
        for event in events(call)
        if event.WhichOneof("event") == "value"
    ]


async def test_start_of_the_first_node_takes_the_rest_along() -> None:
    async with running() as roles:
        _, work = await roles.started()
        pipeline = work.start.pipeline
        (stage,) = pipeline.stages
        assert (stage.node, stage.interface, stage.input_group) == ("b", NAME, "main")
        assert [(route.output_field, route.input_field) for route in stage.routes] == [("y", "x")]
        assert (list(stage.required_fields), stage.fails_when_partial) == (["x"], True)
        assert (stage.yield_window, stage.activation_window) == (5, 64)
        assert stage.replica == roles.last.replica
        assert pipeline.exit.incarnation_id == roles.last.streams[0].hello.incarnation_id
        assert list(pipeline.exit.fields) == ["y"]
        assert pipeline.exit.yield_window == 2, "that of the first node"
        assert (pipeline.entry_activation_id, pipeline.stage) == (work.start.activation.activation_id, 0)


@pytest.mark.parametrize(("settings", "runs"), [({"pipelines": False}, True), ({}, False)])
async def test_node_is_started_alone_unless_all_take_part(settings: dict[str, Any], runs: bool) -> None:
    async with running(runs=runs, **settings) as roles:
        call, work = await roles.started()
        assert not work.start.HasField("pipeline")
        await work.give(0, y="one")
        await work.complete(1)
        (below,) = await roles.last.next_work(1)
        await below.give(0, y="ONE")
        await below.complete(1)
        await ended(call)
        assert outputs(call) == [("b", "ONE", (0, 0, 0))]


async def test_node_is_started_alone_while_a_later_role_has_no_replica() -> None:
    async with running() as roles:
        await roles.last.stop()
        await eventually(lambda: not roles.link_of(roles.last).is_connected)
        _, work = await roles.started()
        assert not work.start.HasField("pipeline")


async def test_yields_of_the_last_node_are_outputs_with_their_paths() -> None:
    async with running() as roles:
        call, work = await roles.started()
        handle = work.start.pipeline.exit.handle
        await work.accept()
        await roles.give(handle, 0, (0, 0, 0), y="one")
        await roles.give(handle, 1, (0, 3, 0), y="two")
        await eventually(lambda: len(outputs(call)) == 2)
        assert not call.has_ended
        usage = graph_event_pb2.Usage(output_tokens=7)
        await work.complete(2, started_activations=4, usage=usage)
        await ended(call)
        assert outputs(call) == [("b", "one", (0, 0, 0)), ("b", "two", (0, 3, 0))]
        finished = events(call)[-1].finished
        assert (finished.usage.output_tokens, finished.usage.activations) == (7, 5)


async def test_end_waits_for_yields_that_come_over_the_other_link() -> None:
    async with running() as roles:
        call, work = await roles.started()
        handle = work.start.pipeline.exit.handle
        await roles.give(handle, 0, (0, 0, 0), y="one")
        await work.complete(2, started_activations=2)
        await eventually(lambda: not roles.link_of(roles.first).in_flight)
        assert not call.has_ended
        await roles.give(handle, 1, (0, 1, 0), y="two")
        await ended(call)
        assert [text for _, text, _ in outputs(call)] == ["one", "two"]
        assert kinds(events(call))[-1] == "finished"


async def test_yields_are_acknowledged_at_the_last_node() -> None:
    async with running() as roles:
        _, work = await roles.started()
        handle = work.start.pipeline.exit.handle
        stream = roles.last.streams[0]
        for ordinal in range(3):
            await roles.give(handle, ordinal, (0, ordinal, 0), y="v")
        await eventually(lambda: stream.told(handle).acked >= 2)
        assert work.acked == 0, "the first node hears from the second"


async def test_end_of_the_run_closes_the_exit() -> None:
    async with running() as roles:
        call, work = await roles.started()
        handle = work.start.pipeline.exit.handle
        stream = roles.last.streams[0]
        await work.complete(0)
        await ended(call)
        await eventually(lambda: stream.told(handle).cancelled is not None)
        await roles.give(handle, 0, (0, 0, 0), y="late")  # changes nothing
        assert not roles.link_of(roles.last)._exits


async def test_failure_of_the_run_fails_the_call() -> None:
    async with running() as roles:
        call, work = await roles.started()
        await roles.give(work.start.pipeline.exit.handle, 0, (0, 0, 0), y="one")
        await eventually(lambda: len(outputs(call)) == 1)
        await work.fail(Reason.INTERFACE_FAILED)
        await ended(call)
        assert call.error is not None
        assert call.error.reason is Reason.INTERFACE_FAILED
        assert not roles.link_of(roles.last)._exits


async def test_cancel_reaches_the_first_node_and_every_replica() -> None:
    async with running() as roles:
        call, work = await roles.started()
        await work.accept()
        call.cancel(Reason.CALL_CANCELLED, "enough")
        await eventually(lambda: work.cancelled is not None)
        await eventually(lambda: roles.first.cancelled_calls == roles.last.cancelled_calls == [call.call_id])
        await work.fail(Reason.CALL_CANCELLED)
        await eventually(lambda: roles.first.released_calls == roles.last.released_calls == [call.call_id])
        assert not roles.link_of(roles.last)._exits


async def test_loss_of_the_last_replica_fails_the_call_and_stops_the_first() -> None:
    async with running() as roles:
        call, work = await roles.started()
        await work.accept()
        await roles.last.stop()
        await ended(call)
        assert call.error is not None
        assert (call.error.reason, call.error.metadata["replica"]) == (Reason.REPLICA_LOST, "last/last-0")
        await eventually(lambda: work.cancelled is not None)


async def test_loss_of_the_last_replica_fails_a_call_that_waits_for_its_yields() -> None:
    async with running() as roles:
        call, work = await roles.started()
        await work.complete(1)
        await eventually(lambda: not roles.link_of(roles.first).in_flight)
        await roles.last.stop()
        await ended(call)
        assert call.error is not None
        assert call.error.reason is Reason.REPLICA_LOST


async def test_loss_of_the_first_replica_fails_the_call() -> None:
    async with running() as roles:
        call, work = await roles.started()
        await work.accept()
        await roles.first.stop()
        await ended(call)
        assert call.error is not None
        assert (call.error.reason, call.error.metadata["replica"]) == (Reason.REPLICA_LOST, "first/first-0")
        assert not roles.link_of(roles.last)._exits


async def test_yield_that_skips_a_number_fails_the_call() -> None:
    async with running() as roles:
        call, work = await roles.started()
        await roles.give(work.start.pipeline.exit.handle, 1, (0, 0, 0), y="second")
        await ended(call)
        assert call.error is not None
        assert call.error.reason is Reason.INTERNAL
