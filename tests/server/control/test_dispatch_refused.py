"""Activations that a replica does not take in, or that cannot be sent: placed anew, in their turn, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import uvloop

from omniflow.dsl import Graph
from omniflow.values import ValueType
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.control.commands import StartActivation
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.compose import ControlPlane
from omniflow_server.control.call import Call
from tests.roles.running import eventually
from tests.server.control.planes import ended, plane, register, spec_of
from tests.server.control.scripted_role import ScriptedRole, Work, upper
from tests.server.control.test_dispatch import NAME, Remote, connected, one_node, texts, two_nodes
from tests.server.control.test_pipelines import running
from tests.server.control.test_segments import Stage

SESSION = "sessions/s"


def start(made: ControlPlane, graph: str, *, session: str = "", tenant: str = "default", **inputs: str) -> Call:
    spec = spec_of(inputs=inputs, session=session)
    return made.calls.accept(f"graphs/{graph}", spec, tenant=tenant)[0]


def branches(name: str = "branches", *, of_a: dict[str, Any] | None = None, **options: Any) -> Graph:
    """xa -> a -> ta, xb -> b -> tb; `of_a` is for the first node alone."""
    graph = Graph(name)
    for node_name, more in (("a", of_a or {}), ("b", {})):
        node = graph.node(node_name, Remote, role="worker", **(options | more))
        graph.input(f"x{node_name}", ValueType.TEXT) >> node.inputs.field("x")
        node.y >> graph.output(f"t{node_name}", ValueType.TEXT)
    return graph


def refusing(times: int, reason: Reason = Reason.TOO_MANY_CALLS, retry_after_s: float = 0.02) -> Callable[[Work], Any]:
    """Refuses so many activations, and then does what is asked."""
    left = [reason] * times

    async def on_work(work: Work) -> None:
        if left:
            await work.refuse(left.pop(), retry_after_s=retry_after_s)
        else:
            await upper(work)

    return on_work


@contextlib.contextmanager
def unsendable(made: ControlPlane, is_meant: Callable[[Call, StartActivation], bool]) -> Iterator[None]:
    """Starts that are meant do not fit into a message."""
    starts = made.dispatcher._starts
    real = starts.serialized

    def serialized(call: Call, command: StartActivation, **options: Any) -> Any:
        if is_meant(call, command):
            raise OmniFlowError(Reason.MESSAGE_TOO_LARGE, "too large")
        return real(call, command, **options)

    with mock.patch.object(starts, "serialized", serialized):
        yield


def check_empty(made: ControlPlane) -> None:
    """The dispatcher holds nothing of calls that have ended."""
    dispatcher = made.dispatcher
    assert (dispatcher._choice._given, dict(dispatcher._choice._work)) == ({}, {})
    assert not any(map(len, dispatcher._queued.values()))
    assert not any(dispatcher._waiting.values())
    assert (dispatcher._gated, dispatcher._inside, dispatcher._unsure, len(dispatcher._gates)) == ({}, {}, [], 0)
    for link in dispatcher.links.all():
        assert (link._in_flight, link._handles) == ({}, {})


async def left_alone(made: ControlPlane) -> None:
    """Returns when no replica is left alone any more, and what waited for that has been sent."""
    await eventually(lambda: all(link.full_timer is None for link in made.dispatcher.links.all()))


# --- refused ----------------------------------------------------------------------------------------------------------


def test_full_replica_is_given_work_again_under_uvloop() -> None:
    """Its clock has whole milliseconds, and a timer may come a little before its time."""

    async def scenario() -> list[str]:
        async with plane(Remote, graphs=(one_node(),)) as made, ScriptedRole(NAME) as role:
            await connected(made, role)
            answers: list[str] = []
            for _ in range(20):
                role.on_work = refusing(1, retry_after_s=0.011)
                call = start(made, "one", x="a")
                answers += texts(await ended(call))
            return answers

    assert uvloop.run(scenario()) == ["A"] * 20


async def test_refused_activation_keeps_its_place_in_the_queue() -> None:
    async with plane(Remote, graphs=(one_node(),)) as made, ScriptedRole(NAME, most=1) as role:
        await connected(made, role)
        role.on_work = refusing(2)
        for call in [start(made, "one", x=str(number)) for number in range(4)]:
            await ended(call)
        assert [work.input("x") for work in role.work] == ["0", "0", "0", "1", "2", "3"]
        check_empty(made)


async def test_refused_activation_keeps_its_place_among_tenants() -> None:
    async with plane(Remote, graphs=(one_node(),)) as made, ScriptedRole(NAME, most=1) as role:
        await connected(made, role)
        role.on_work = refusing(1)
        for call in [start(made, "one", tenant=tenant, x=tenant + number) for tenant in "ab" for number in "12"]:
            await ended(call)
        given = [str(work.input("x")) for work in role.work]
        assert given[:2] == ["a1", "a1"]
        assert [each for each in given if each[0] == "a"] == ["a1", "a1", "a2"]
        assert [each for each in given if each[0] == "b"] == ["b1", "b2"]
        check_empty(made)


async def test_pipelined_start_that_a_full_replica_refuses_is_sent_again() -> None:
    async with running() as roles:
        call, work = await roles.started()
        await work.refuse(Reason.TOO_MANY_CALLS, retry_after_s=0.02)
        (_, again) = await roles.first.next_work(2)
        assert again.start.activation == work.start.activation
        assert again.start.pipeline.exit.handle != work.start.pipeline.exit.handle
        assert set(roles.link_of(roles.last)._exits) == {again.start.pipeline.exit.handle}
        await again.accept()
        await roles.give(again.start.pipeline.exit.handle, 0, (0, 0, 0), y="one")
        await again.complete(1, started_activations=1)
        await ended(call)
        assert (texts(call), call.error) == (["one"], None)
        check_empty(roles.made)


async def test_pipelined_start_that_a_draining_replica_refuses_goes_to_another() -> None:
    async with running() as roles, ScriptedRole(Stage.name, role="first", replica_id="first-1") as other:
        call, work = await roles.started()
        await work.refuse(Reason.DRAINING)
        await eventually(lambda: roles.link_of(roles.first).is_refusing)
        assert not call.has_ended
        other.replica.runs_pipelines = True
        register(roles.made, other.replica)
        (again,) = await other.next_work(1)
        assert again.start.activation == work.start.activation
        await roles.give(again.start.pipeline.exit.handle, 0, (0, 0, 0), y="one")
        await again.complete(1, started_activations=1)
        await ended(call)
        assert (texts(call), call.error, len(roles.first.work)) == (["one"], None, 1)


async def test_activation_that_times_out_while_its_replica_is_left_alone_is_not_sent_again() -> None:
    graph = one_node("brief", timeout_s=0.05, balance="cost_aware")
    async with plane(Remote, graphs=(graph,)) as made, ScriptedRole(NAME) as role:
        await connected(made, role)
        role.on_work = refusing(9, retry_after_s=0.15)
        call = await ended(start(made, "brief", x="1"))
        assert call.error is not None
        assert call.error.reason is Reason.DEADLINE_EXCEEDED
        check_empty(made)
        await left_alone(made)
        assert len(role.work) == 1


async def test_activation_that_is_cancelled_while_its_replica_is_left_alone_is_not_sent_again() -> None:
    graph = one_node("ordered", session_ordered=True, replay="restart", balance="cost_aware")
    async with plane(Remote, graphs=(graph,)) as made, ScriptedRole(NAME) as role:
        await connected(made, role)
        role.on_work = refusing(9, retry_after_s=0.1)
        call = start(made, "ordered", session=SESSION, x="1")
        await eventually(lambda: any(map(len, made.dispatcher._queued.values())))
        call.cancel(Reason.CALL_CANCELLED, "enough")
        await ended(call)
        check_empty(made)
        await left_alone(made)
        assert len(role.work) == 1


async def test_refusal_that_comes_after_the_timeout_starts_nothing() -> None:
    spec = branches("partly", of_a={"timeout_s": 0.05}).spec()
    spec.nodes[0].on_failure = graph_spec_pb2.ON_FAILURE_SKIP
    async with plane(Remote) as made, ScriptedRole(NAME) as role:
        await made.install(made.catalog.compile(spec))
        await connected(made, role)
        call = start(made, "partly", xa="1", xb="2")
        await role.next_work(2)
        (slow,), (other,) = role.of_node("a"), role.of_node("b")
        await eventually(lambda: slow.cancelled == "timeout")
        await slow.refuse(Reason.TOO_MANY_CALLS, retry_after_s=0.01)
        await other.give(0, y="two")
        await other.complete(1)
        await ended(call)
        assert (texts(call), call.error, dict(call.running)) == (["two"], None, {})
        await left_alone(made)
        assert len(role.work) == 2
        check_empty(made)


# --- not sent ---------------------------------------------------------------------------------------------------------


async def test_start_that_cannot_be_sent_leaves_no_cost() -> None:
    async with plane(Remote, graphs=(one_node("costly", balance="cost_aware"),)) as made, ScriptedRole(NAME) as role:
        await connected(made, role)
        with unsendable(made, lambda call, command: True):
            call = await ended(start(made, "costly", x="a"))
        assert call.error is not None
        assert call.error.reason is Reason.MESSAGE_TOO_LARGE
        check_empty(made)


async def test_gated_start_that_cannot_be_sent_fails_its_own_call_alone() -> None:
    """Two of its starts wait at the gate: the failure of the first takes the second away."""
    graphs = (branches("twice", session_ordered=True), one_node("ordered", session_ordered=True), one_node())
    async with plane(Remote, graphs=graphs) as made, ScriptedRole(NAME) as role:
        await connected(made, role)
        first = start(made, "ordered", session=SESSION, x="1")
        bystander = start(made, "one", x="9")
        await role.next_work(2)
        first.cancel(Reason.CALL_CANCELLED, "stop")
        await ended(first)
        second = start(made, "twice", session=SESSION, xa="2", xb="3")
        assert len(made.dispatcher._gated) == 2
        with unsendable(made, lambda call, command: call is second):
            await role.work[0].fail()
            await ended(second)
        assert second.error is not None
        assert second.error.reason is Reason.MESSAGE_TOO_LARGE
        third = start(made, "ordered", session=SESSION, x="4")
        (*_, following) = await role.next_work(3)
        for work in (following, role.work[1]):
            await upper(work)
        for call, answer in ((bystander, "9"), (third, "4")):
            await ended(call)
            assert (texts(call), call.error) == ([answer], None)
        check_empty(made)


async def test_starts_that_wait_for_a_replica_end_with_their_call() -> None:
    async with plane(Remote, graphs=(branches(), one_node()), replica_wait_s=30.0) as made, ScriptedRole(NAME) as role:
        call = start(made, "branches", xa="1", xb="2")
        with unsendable(made, lambda _, command: command.node.name == "a"):
            await connected(made, role)
            await ended(call)
        assert call.error is not None
        assert call.error.reason is Reason.MESSAGE_TOO_LARGE
        other = start(made, "one", x="3")
        (work,) = await role.next_work(1)
        assert work.start.activation.call_id == other.call_id, "what is sent first is of no other call"
        await upper(work)
        await ended(other)
        check_empty(made)


# --- all at once ------------------------------------------------------------------------------------------------------


def _moody(choice: random.Random) -> Callable[[Work], Any]:
    """Works, refuses, fails, and answers too late."""

    async def on_work(work: Work) -> None:
        await asyncio.sleep(choice.random() * 0.005)
        kind = choice.random()
        with contextlib.suppress(Exception):  # the stream of a replica that was stopped
            if kind < 0.25:
                await work.refuse(Reason.TOO_MANY_CALLS, retry_after_s=0.01)
            elif kind < 0.3:
                await work.fail()
            elif kind < 0.35:
                await asyncio.sleep(0.1)
                await work.complete()
            else:
                await upper(work)

    return on_work


@pytest.mark.parametrize("seed", range(2))
async def test_dispatcher_is_empty_after_whatever_happens(seed: int) -> None:
    choice = random.Random(seed)
    graphs = (
        one_node("brief", balance="cost_aware", timeout_s=0.05, replay="restart"),
        one_node("ordered", session_ordered=True, replay="restart", balance="cost_aware"),
        two_nodes("spread", spread=True, balance="cost_aware"),
    )
    async with (
        plane(Remote, graphs=graphs, replica_wait_s=30.0) as made,
        ScriptedRole(NAME, most=2) as steady,
        ScriptedRole(NAME, replica_id="worker-1", most=1) as restarted,
    ):
        steady.on_work = restarted.on_work = _moody(choice)
        await connected(made, steady, restarted)
        calls: list[Call] = []
        for number in range(60):
            graph, tenant = choice.choice(["brief", "ordered", "spread"]), choice.choice("abc")
            calls.append(start(made, graph, session=f"sessions/{number % 3}", tenant=tenant, x="1"))
            if choice.random() < 0.15:
                choice.choice(calls).cancel(Reason.CALL_CANCELLED, "enough")
            if number == 30:
                await restarted.stop()
                await restarted.listen()
        for call in calls:
            await ended(call)
        await eventually(lambda: not any(link.in_flight for link in made.dispatcher.links.all()))
        await left_alone(made)
        check_empty(made)
        assert not any(call.running or call.timeouts for call in calls)
