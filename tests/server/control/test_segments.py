"""Segments on a replica by script: what it is told, what its steps bring about, and what is left when it breaks off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from omniflow.codec.common import value_to_proto
from omniflow.codec.error import status_to_proto
from omniflow.dsl import Graph
from omniflow.interface import Context, Field, Inputs, Interface, groups
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.values import ValueType
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_server.compose import ControlPlane
from omniflow_server.control.call import Call
from tests.roles.running import eventually
from tests.server.control.planes import ended, events, plane, register, start
from tests.server.control.scripted_role import ScriptedRole, Work
from tests.server.control.table import kinds

NAME = "test.stage"


class Stage(Interface):
    """Served by scripted roles."""

    name = NAME
    inputs = groups(x=Field(ValueType.TEXT))
    outputs: ClassVar = {"y": Field(ValueType.TEXT), "z": Field(ValueType.TEXT)}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        yield {}


def chain() -> Graph:
    """x -> a -> b -> text, both of one role; a's z leaves as `side`."""
    graph = Graph("chain")
    a, b = graph.node("a", Stage, role="worker", yield_window=2), graph.node("b", Stage, role="worker")
    graph.input("x", ValueType.TEXT) >> a.inputs.field("x")
    a.y >> b.inputs.field("x")
    a.z >> graph.output("side", ValueType.TEXT)
    b.y >> graph.output("text", ValueType.TEXT)
    return graph


@pytest.fixture
async def made() -> AsyncIterator[ControlPlane]:
    async with plane(Stage, graphs=(chain(),)) as control:
        yield control


@pytest.fixture
async def role() -> AsyncIterator[ScriptedRole]:
    async with ScriptedRole(NAME) as scripted:
        scripted.replica.runs_segments = True
        yield scripted


async def connected(made: ControlPlane, role: ScriptedRole) -> None:
    register(made, role.replica)
    await eventually(lambda: any(link.is_connected for link in made.dispatcher.links.all()))


async def started(made: ControlPlane, role: ScriptedRole) -> tuple[Call, Work]:
    """A call whose segment has been accepted."""
    await connected(made, role)
    call = start(made, "chain", x="v")
    (work,) = await role.next_work(1)
    await work.accept()
    return call, work


def inner(inner_id: int = 0, **event: Any) -> pb.InnerEvent:
    return pb.InnerEvent(inner_activation_id=inner_id, **event)


def gave(ordinal: int, *inside: str, **fields: str) -> dict[str, pb.ActivationYield]:
    message = pb.ActivationYield(ordinal=ordinal, inside_fields=inside, inside_bytes=len(inside))
    for name, value in fields.items():
        message.fields[name].CopyFrom(value_to_proto(value))
    return {"yield": message}


def began(node: str, parent: int, ordinal: int) -> dict[str, pb.InnerStart]:
    return {
        "started": pb.InnerStart(node=node, input_group="main", parent_activation_id=parent, parent_ordinal=ordinal)
    }


def over(yields: int) -> dict[str, pb.ActivationCompleted]:
    return {"completed": pb.ActivationCompleted(yield_count=yields)}


async def step(work: Work, *happened: pb.InnerEvent) -> None:
    await work.send(segment_step=pb.SegmentStep(events=happened))


def outputs(call: Call) -> list[tuple[str, str, tuple[int, ...]]]:
    return [
        (event.field, event.value.text, tuple(event.origin_path))
        for event in events(call)
        if event.WhichOneof("event") == "value"
    ]


async def test_start_of_an_entry_takes_its_segment_along(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    start(made, "chain", x="v")
    (work,) = await role.next_work(1)
    segment = work.start.segment
    assert [(node.name, node.interface, node.yield_window) for node in segment.nodes] == [
        ("a", NAME, 2),
        ("b", NAME, 64),
    ]
    assert [(e.source_node, e.source_field, e.target_node, e.target_group) for e in segment.edges] == [
        ("a", "y", "b", "main")
    ]
    assert {leaving.node: list(leaving.fields) for leaving in segment.exits} == {"a": ["z"], "b": ["y"]}
    assert segment.segment_id


async def test_steps_give_what_leaves_with_the_paths_of_the_graph(made: ControlPlane, role: ScriptedRole) -> None:
    call, work = await started(made, role)
    await step(
        work,
        inner(0, **gave(0, "y", z="left")),
        inner(1, **began("b", 0, 0)),
        inner(0, **gave(1, "y")),
        inner(2, **began("b", 0, 1)),
        inner(0, **over(2)),
        inner(2, **gave(0, y="second")),
        inner(2, **over(1)),
        inner(1, **gave(0, y="first")),
        inner(1, **over(1)),
    )
    await work.complete()
    await ended(call)
    assert outputs(call) == [("side", "left", (0, 0)), ("text", "first", (0, 0, 0)), ("text", "second", (0, 1, 0))]
    assert call.finished is not None
    assert call.finished.usage.activations == 3


async def test_yields_that_leave_are_acknowledged_and_others_are_not(made: ControlPlane, role: ScriptedRole) -> None:
    _, work = await started(made, role)
    await step(work, inner(0, **gave(0, "y", z="left")), inner(1, **began("b", 0, 0)))
    await eventually(lambda: work.acked == 1)
    assert len(role.work) == 1, "what follows inside is never commanded"


@pytest.mark.parametrize("how", ["replica", "interfaces", "settings"])
async def test_replica_that_cannot_iterate_is_given_each_activation(how: str, role: ScriptedRole) -> None:
    if how == "replica":
        role.replica.runs_segments = False
    elif how == "interfaces":
        graph = chain()
    async with plane(Stage, graphs=(chain(),), segments=how != "settings") as made:
        if how == "interfaces":
            spec = graph.spec()
            spec.nodes[1].interface = "test.other"
            made.catalog._interfaces |= {"test.other"}
            made.catalog.install(made.catalog.compile(spec))
        await connected(made, role)
        start(made, "chain", x="v")
        (work,) = await role.next_work(1)
        assert not work.start.HasField("segment")


@pytest.mark.parametrize(
    "event",
    [
        inner(1, **began("b", 0, 0)),
        inner(1, **began("nobody", 0, 0)),
        inner(7, **gave(0, y="x")),
        inner(7, **over(0)),
    ],
    ids=["nothing asked for it", "no such node", "yield of nobody", "end of nobody"],
)
async def test_step_that_cannot_be_ends_the_call_alone(
    made: ControlPlane, role: ScriptedRole, event: pb.InnerEvent
) -> None:
    call, work = await started(made, role)
    await step(work, event)
    await ended(call)
    assert call.error is not None
    assert call.error.reason is Reason.PROTOCOL_VIOLATION
    await eventually(lambda: work.cancelled is not None)
    await work.fail(Reason.CALL_CANCELLED)
    await eventually(lambda: not call.running)
    assert next(iter(made.dispatcher.links.all())).is_connected


async def test_segment_that_ends_before_its_activations_fails_the_call(made: ControlPlane, role: ScriptedRole) -> None:
    call, work = await started(made, role)
    await step(work, inner(0, **gave(0, "y")), inner(1, **began("b", 0, 0)), inner(0, **over(1)))
    await work.complete()
    await ended(call)
    assert call.error is not None
    assert (call.error.reason, call.error.metadata["node"]) == (Reason.PROTOCOL_VIOLATION, "b")
    assert not call.running


async def test_failure_inside_names_its_node(made: ControlPlane, role: ScriptedRole) -> None:
    call, work = await started(made, role)
    status = status_to_proto(ErrorInfo(reason=Reason.INTERFACE_FAILED, message="it broke"))
    failed = pb.ActivationFailed(status=status)
    await step(work, inner(0, **gave(0, "y")), inner(1, **began("b", 0, 0)), inner(1, failed=failed))
    await work.fail()
    await ended(call)
    assert call.error is not None
    assert (call.error.reason, call.error.metadata["node"]) == (Reason.INTERFACE_FAILED, "b")
    await eventually(lambda: not call.running)


async def test_lost_replica_takes_the_whole_segment_with_it(made: ControlPlane, role: ScriptedRole) -> None:
    call, work = await started(made, role)
    await step(work, inner(0, **gave(0, "y", z="left")), inner(1, **began("b", 0, 0)), inner(0, **gave(1, "y")))
    await eventually(lambda: ("side", "left", (0, 0)) in outputs(call))
    await role.stop()
    await ended(call)
    assert kinds(events(call))[-1] == "failed"
    assert call.error is not None
    assert call.error.reason is Reason.REPLICA_LOST
    await eventually(lambda: not call.running and made.calls.active_count == 0)


async def test_cancelled_call_tells_the_segment_once(made: ControlPlane, role: ScriptedRole) -> None:
    call, work = await started(made, role)
    await step(work, inner(0, **gave(0, "y", z="left")), inner(1, **began("b", 0, 0)))
    await eventually(lambda: ("side", "left", (0, 0)) in outputs(call))
    call.cancel(Reason.CALL_CANCELLED, "enough")
    await eventually(lambda: work.cancelled == "enough" and role.cancelled_calls == [call.call_id])
    await work.fail(Reason.CALL_CANCELLED)
    await eventually(lambda: call.call_id in role.released_calls)
