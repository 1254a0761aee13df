"""What dispatch does for control flow: gates between the calls of a session, second attempts, facets on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from omniflow.codec.error import status_to_proto
from omniflow.dsl import Graph
from omniflow.interface import Context, Field, Inputs, Interface, groups
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.values import Json, ValueType
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_server.compose import ControlPlane
from omniflow_server.control.call import Call
from tests.roles.running import eventually
from tests.server.control.planes import ended, plane, spec_of
from tests.server.control.scripted_role import ScriptedRole, upper
from tests.server.control.test_dispatch import NAME, Remote, connected, failure, one_node, texts

JOINT = "test.joint"


class Joint(Interface):
    """Served by scripted roles; two groups that a count join completes."""

    name = JOINT
    inputs = groups(
        ("parts", {"part": Field(ValueType.TEXT)}),
        ("done", {"count": Field(ValueType.JSON), "end": Field(ValueType.TEXT)}),
    )
    outputs: ClassVar = {"y": Field(ValueType.TEXT)}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        return {}


class Parser(Interface):
    """Inline: a part for each letter, then how many there were."""

    name = "test.parser"
    inputs = groups(x=Field(ValueType.TEXT))
    outputs: ClassVar = {
        "part": Field(ValueType.TEXT),
        "count": Field(ValueType.JSON),
        "end": Field(ValueType.TEXT),
    }

    async def run(self, inputs: Inputs, context: Context) -> Any:
        letters = str(inputs["x"])
        for letter in letters:
            yield {"part": letter}
        yield {"count": Json(float(len(letters))), "end": "."}


def counted() -> Graph:
    graph = Graph("counted")
    parser = graph.node("parser", Parser, inline=True)
    joint = graph.node("joint", Joint, role="worker", activate_by_count={"part": "count", "end": 1})
    graph.input("x", ValueType.TEXT) >> parser.inputs.field("x")
    parser.part >> joint.inputs.group("parts").part
    parser.count >> joint.inputs.group("done").count
    parser.end >> joint.inputs.group("done").end
    joint.y >> graph.output("text", ValueType.TEXT)
    return graph


@pytest.fixture
async def made() -> AsyncIterator[ControlPlane]:
    graphs = (
        one_node("ordered", session_ordered=True),
        one_node("restarted", replay="restart"),
        one_node("continued", replay="continue"),
        counted(),
    )
    async with plane(Remote, Joint, Parser, graphs=graphs, replica_wait_s=30.0) as control:
        yield control


@pytest.fixture
async def role() -> AsyncIterator[ScriptedRole]:
    async with ScriptedRole(NAME, JOINT) as scripted:
        yield scripted


def start(made: ControlPlane, graph: str, session: str = "", **inputs: Any) -> Call:
    spec = spec_of(inputs=inputs, session=session)
    return made.calls.accept(f"graphs/{graph}", spec, tenant="default")[0]


async def test_session_gate_holds_the_next_call_until_the_cancelled_one_has_wound_down(
    made: ControlPlane, role: ScriptedRole
) -> None:
    await connected(made, role)
    first, second = start(made, "ordered", "sessions/s", x="1"), start(made, "ordered", "sessions/s", x="2")
    other = start(made, "ordered", "sessions/t", x="3")
    (one, three) = await role.next_work(2)
    assert (one.input("x"), three.input("x")) == ("1", "3"), "sessions do not wait for each other"
    first.cancel(Reason.CALL_CANCELLED, "stop")
    await eventually(lambda: one.cancelled == "stop")
    assert second.takes_input
    assert len(role.work) == 2, "the second call was admitted, but its node waits for the first call's"
    await one.fail()
    two = (await role.next_work(3))[2]
    assert two.input("x") == "2"
    ordinals = [work.start.session_ordinal for work in (one, three, two)]
    assert ordinals[0] < ordinals[2]
    assert ordinals[1] > 0
    for work in (two, three):
        await work.complete()
    for call in (second, other):
        assert (await ended(call)).error is None
    await eventually(lambda: len(made.dispatcher._gates) == 0)


async def test_session_gate_forgets_a_call_that_is_cancelled_while_it_waits(
    made: ControlPlane, role: ScriptedRole
) -> None:
    await connected(made, role)
    first, second = start(made, "ordered", "sessions/s", x="1"), start(made, "ordered", "sessions/s", x="2")
    (one,) = await role.next_work(1)
    first.cancel(Reason.CALL_CANCELLED, "stop")
    await ended(first)
    second.cancel(Reason.CALL_CANCELLED, "stop too")
    await ended(second)
    await one.fail()
    await eventually(lambda: len(made.dispatcher._gates) == 0)
    assert len(role.work) == 1
    assert made.dispatcher._gated == {}


async def test_activation_of_a_lost_replica_is_restarted_elsewhere(made: ControlPlane, role: ScriptedRole) -> None:
    async with ScriptedRole(NAME, replica_id="worker-1") as other:
        other.on_work = upper
        await connected(made, role)
        call = start(made, "restarted", x="hi")
        (work,) = await role.next_work(1)
        await connected(made, other)
        await work.accept()
        await role.stop()
        (again,) = await other.next_work(1)
        assert again.start.activation.attempt == 2
        assert again.start.activation.activation_id == work.start.activation.activation_id
        await eventually(lambda: texts(call) == ["HI"])
        await again.complete(1)
        assert (await ended(call)).error is None


async def test_next_life_of_a_replica_hears_of_the_end_of_the_call(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    call = start(made, "restarted", x="hi")
    await role.next_work(1)
    await role.stop()
    async with ScriptedRole(NAME, replica_id=role.replica.replica_id, life="2") as again:
        await connected(made, again)
        (work,) = await again.next_work(1)
        assert work.start.activation.attempt == 2
        await work.complete()
        assert (await ended(call)).error is None
        await eventually(lambda: again.released_calls == [call.call_id])


async def test_start_that_fails_behind_a_gate_fails_its_own_call(
    made: ControlPlane, role: ScriptedRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    await connected(made, role)
    first, second = start(made, "ordered", "sessions/s", x="1"), start(made, "ordered", "sessions/s", x="2")
    (one,) = await role.next_work(1)
    first.cancel(Reason.CALL_CANCELLED, "stop")
    await ended(first)

    def refuse(call: Call, command: object) -> None:
        raise OmniFlowError(Reason.BUFFER_FULL, "no room")

    monkeypatch.setattr(made.dispatcher, "_find_replica", refuse)
    await one.fail()
    await ended(second)
    assert second.error is not None
    assert second.error.reason is Reason.BUFFER_FULL
    await eventually(lambda: len(made.dispatcher._gates) == 0)


@pytest.mark.parametrize("is_shut_down", [False, True])
async def test_activation_goes_on_elsewhere_with_the_yields_that_came(
    made: ControlPlane, role: ScriptedRole, is_shut_down: bool
) -> None:
    """Also when its replica ends it because it is shut down."""
    async with ScriptedRole(NAME, replica_id="worker-1") as other:
        await connected(made, role)
        call = start(made, "continued", x="hi")
        (work,) = await role.next_work(1)
        await work.give(0, y="a")
        await work.give(1, y="b")
        await eventually(lambda: texts(call) == ["a", "b"])
        await connected(made, other)
        if is_shut_down:
            made.registry.drain("worker", "worker-0", 0)
            status = pb.ActivationFailed(is_retryable=True)
            status.status.CopyFrom(_draining())
            await work.send(failed=status)
            await eventually(lambda: len(role.work) + len(other.work) == 2)
        else:
            await role.stop()
        again = (await other.next_work(1))[0] if not is_shut_down else (role.work[1:] + other.work)[0]
        delivered = [(one.ordinal, one.fields["y"].text) for one in again.start.delivered_yields]
        assert delivered == [(0, "a"), (1, "b")]
        await again.give(2, y="c")
        await again.complete(3)
        assert (await ended(call)).error is None
        assert texts(call) == ["a", "b", "c"]


def _draining() -> Any:
    return status_to_proto(ErrorInfo(reason=Reason.DRAINING, message="the replica has stopped"))


async def test_activation_without_replay_fails_when_its_replica_is_shut_down(
    made: ControlPlane, role: ScriptedRole
) -> None:
    await connected(made, role)
    call = start(made, "ordered", x="hi")
    (work,) = await role.next_work(1)
    failed = pb.ActivationFailed(is_retryable=True)
    failed.status.CopyFrom(_draining())
    await work.send(failed=failed)
    await ended(call)
    assert failure(call) == (Reason.REPLICA_LOST, {"node": "a", "replica": "worker/worker-0"})


async def test_count_join_reaches_its_role_with_a_facet_for_each_group(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    call = start(made, "counted", x="abc")
    (work,) = await role.next_work(1)
    parts, done = work.start.facets
    assert (parts.input_group, done.input_group) == ("parts", "done")
    values = [(item.value.text, tuple(item.origin_path)) for item in parts.fields["part"].values]
    assert values == [("a", (0, 0)), ("b", (0, 1)), ("c", (0, 2))]
    assert [item.value.text for item in done.fields["end"].values] == ["."]
    assert "count" not in done.fields
    await work.give(0, y="abc")
    await work.complete(1)
    assert (await ended(call)).error is None
    assert texts(call) == ["abc"]
