"""Dispatch and links, against a role server by script."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from omniflow.common.v1 import value_pb2
from omniflow.dsl import Graph
from omniflow.graph.v1 import graph_event_pb2
from omniflow.interface import Context, Field, Inputs, Interface, groups
from omniflow.links.dialing import session as session_module
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.values import ValueType
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import Reason
from omniflow_server.compose import ControlPlane
from omniflow_server.control import link as link_module
from omniflow_server.control.call import Call
from tests.roles.running import eventually
from tests.server.control import scripted_role
from tests.server.control.planes import ended, events, plane, register, start
from tests.server.control.scripted_role import ScriptedRole, upper
from tests.server.control.table import kinds
from tests.support.pipes import TRANSPORTS

NAME = "test.remote"


class Remote(Interface):
    """Served by scripted roles."""

    name = NAME
    inputs = groups(x=Field(ValueType.TEXT))
    outputs: ClassVar = {"y": Field(ValueType.TEXT), "b": Field(ValueType.BYTES)}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        yield {}


class Waiting(Remote):
    """Inline; waits until it is stopped."""

    name = "test.waiting"
    cancelled_calls: ClassVar[list[str]] = []

    def on_cancel(self, call_id: str) -> None:
        self.cancelled_calls.append(call_id)

    async def run(self, inputs: Inputs, context: Context) -> Any:
        await asyncio.get_running_loop().create_future()
        yield {}


def one_node(name: str = "one", **options: Any) -> Graph:
    """x -> a -> text, data."""
    graph = Graph(name)
    a = graph.node("a", Remote, role="worker", **options)
    graph.input("x", ValueType.TEXT) >> a.inputs.field("x")
    a.y >> graph.output("text", ValueType.TEXT)
    a.b >> graph.output("data", ValueType.BYTES)
    return graph


def two_nodes(name: str = "two", **options: Any) -> Graph:
    """x -> a -> b -> text; b is balanced by `options`."""
    graph = Graph(name)
    a, b = graph.node("a", Remote, role="worker"), graph.node("b", Remote, role="worker", **options)
    graph.input("x", ValueType.TEXT) >> a.inputs.field("x")
    a.y >> b.inputs.field("x")
    b.y >> graph.output("text", ValueType.TEXT)
    return graph


def inline_node() -> Graph:
    graph = Graph("inline")
    a = graph.node("a", Waiting, inline=True, timeout_s=0.02)
    graph.input("x", ValueType.TEXT) >> a.inputs.field("x")
    a.y >> graph.output("text", ValueType.TEXT)
    return graph


def skipping() -> graph_spec_pb2.GraphSpec:
    """One node whose failure is passed over, with a short timeout."""
    spec = one_node("skipping", timeout_s=0.05).spec()
    spec.nodes[0].on_failure = graph_spec_pb2.ON_FAILURE_SKIP
    return spec


@pytest.fixture
async def made() -> AsyncIterator[ControlPlane]:
    graphs = (
        one_node(),
        two_nodes(),
        two_nodes("spread", spread=True),
        one_node("brief", timeout_s=0.02),
        inline_node(),
    )
    async with plane(Remote, Waiting, graphs=graphs, replica_wait_s=30.0) as control:
        await control.install(control.catalog.compile(skipping()))
        yield control


@pytest.fixture(params=TRANSPORTS, autouse=True)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What links go over while the test runs."""
    monkeypatch.setattr(scripted_role, "transport", request.param)
    return str(request.param)


@pytest.fixture
async def role() -> AsyncIterator[ScriptedRole]:
    async with ScriptedRole(NAME) as scripted:
        yield scripted


async def connected(made: ControlPlane, *roles: ScriptedRole) -> None:
    """Registers the replicas and waits for their streams."""
    for role in roles:
        register(made, role.replica)
    await eventually(lambda: sum(link.is_connected for link in made.dispatcher.links.all()) >= len(roles))


def texts(call: Call) -> list[str]:
    return [event.value.text for event in events(call) if event.WhichOneof("event") == "value"]


def failure(call: Call) -> tuple[Reason, dict[str, str]]:
    assert call.error is not None
    return call.error.reason, dict(call.error.metadata)


# --- a call over a replica ---------------------------------------------------------------------------------------------


async def test_call_runs_on_a_replica(made: ControlPlane, role: ScriptedRole) -> None:
    role.on_work = upper
    await connected(made, role)
    call = await ended(start(made, "two", x="hello"))
    assert texts(call) == ["HELLO"]
    assert [(w.node, w.start.activation.interface, w.start.activation.attempt) for w in role.work] == [
        ("a", NAME, 1),
        ("b", NAME, 1),
    ]
    assert role.streams[0].hello.replica_incarnation_id == "1"
    await eventually(lambda: role.released_calls == [call.call_id])


async def test_start_carries_what_the_call_says(made: ControlPlane, role: ScriptedRole) -> None:
    from tests.server.control.planes import spec_of

    await connected(made, role)
    spec = spec_of(inputs={"x": "hi"}, session="sessions/s", priority=7)
    spec.sampling.seed = 3
    spec.deadline.seconds = 253_402_300_799
    call, _ = made.calls.accept("graphs/one", spec, tenant="acme")
    (work,) = await role.next_work(1)
    sent = work.start
    assert (sent.tenant, sent.session, sent.priority, sent.sampling.seed) == ("acme", "sessions/s", 7, 3)
    assert sent.deadline.seconds == 253_402_300_799
    assert (sent.yield_window, sent.byte_credit) == (64, 1024 * 1024)
    assert sent.activation.call_id == call.call_id
    assert list(sent.facets[0].fields["x"].values[0].origin_path) == [0]
    await work.complete()
    await ended(call)


async def test_inputs_that_would_break_the_stream_fail_their_call_alone(
    made: ControlPlane, role: ScriptedRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "MAX_FRAME_BYTES", 10_000)
    await connected(made, role)
    other = start(made, "one", x="small")
    (work,) = await role.next_work(1)
    call = await ended(start(made, "one", x="x" * 10_000))
    reason, metadata = failure(call)
    assert reason is Reason.MESSAGE_TOO_LARGE
    assert metadata["node"] == "a"
    await work.complete()
    assert (await ended(other)).error is None
    assert len(role.streams) == 1, "the stream was not opened again"


async def test_usage_progress_and_finish_reason_reach_the_caller(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    call = start(made, "one", x="hi")
    (work,) = await role.next_work(1)
    await work.send(progress=graph_event_pb2.Progress(completed=1, total=2, message="half"))
    usage = graph_event_pb2.Usage(input_tokens=5, cached_input_tokens=2, output_tokens=7)
    await work.complete(0, usage=usage, finish_reason=graph_event_pb2.FINISH_REASON_LENGTH)
    *_, progress, finished = events(await ended(call))
    assert (progress.node, progress.progress.message) == ("a", "half")
    assert finished.finished.reason == graph_event_pb2.FINISH_REASON_LENGTH
    assert finished.finished.usage == graph_event_pb2.Usage(
        input_tokens=5, cached_input_tokens=2, output_tokens=7, activations=1
    )


async def test_yields_are_acknowledged_by_half_windows(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    call = start(made, "one", x="hi")
    (work,) = await role.next_work(1)
    for i in range(64):
        await work.give(i, y=str(i))
    await eventually(lambda: work.acked == 64)
    await work.complete(64)
    await ended(call)


async def test_failure_of_an_interface_names_its_node(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    call = start(made, "two", x="hi")
    (first,) = await role.next_work(1)
    await first.give(0, y="on")
    (_, second) = await role.next_work(2)
    await second.fail(Reason.INVALID_MEDIA, "no picture")
    await ended(call)
    assert failure(call) == (Reason.INVALID_MEDIA, {"node": "b"})
    assert call.error is not None
    assert call.error.message == "no picture"
    await eventually(lambda: role.cancelled_calls == [call.call_id])
    await first.fail()
    await eventually(lambda: role.released_calls == [call.call_id])


async def test_results_of_an_ended_activation_are_dropped(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    call = start(made, "one", x="hi")
    (work,) = await role.next_work(1)
    await work.give(0, y="one")
    await work.give(0, y="again")
    await work.complete(1)
    await work.complete(1)
    await work.give(1, y="late")
    await role.streams[0].send(pb.ExecuteResult(handle=999, accepted=pb.ActivationAccepted()))
    assert texts(await ended(call)) == ["one"]
    await _still_works(made, role)


async def _still_works(made: ControlPlane, role: ScriptedRole) -> None:
    """A next call over the same stream."""
    role.on_work = upper
    streams = len(role.streams)
    assert texts(await ended(start(made, "one", x="next"))) == ["NEXT"]
    assert len(role.streams) == streams


# --- replicas that are lost --------------------------------------------------------------------------------------------


async def test_replica_lost_mid_stream_fails_its_calls_naming_node_and_replica(
    made: ControlPlane, role: ScriptedRole
) -> None:
    async with ScriptedRole(NAME, replica_id="worker-1") as other:
        await connected(made, role, other)
        calls = [start(made, "one", x=str(i)) for i in range(4)]
        await eventually(lambda: len(role.work) + len(other.work) == 4)
        assert (len(role.work), len(other.work)) == (2, 2), "idle replicas share the work"
        await role.work[0].give(0, y="part")
        lost = [call for call in calls if call.call_id in {w.start.activation.call_id for w in role.work}]
        await eventually(lambda: any(texts(call) for call in lost))
        await role.stop()
        for call in lost:
            await ended(call)
            assert failure(call) == (Reason.REPLICA_LOST, {"node": "a", "replica": "worker/worker-0"})
            assert call.error is not None
            assert call.error.message == "Node 'a' lost its replica worker/worker-0."
        for work in other.work:
            await work.complete()
        for call in calls:
            await ended(call)
        assert [call.error is None for call in calls].count(True) == 2
        other.on_work = upper
        assert texts(await ended(start(made, "one", x="after"))) == ["AFTER"]


async def test_lost_replica_is_connected_again_when_it_is_back(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    await role.stop()
    await eventually(lambda: not made.dispatcher.connected_roles(["worker"]))
    call = start(made, "one", x="hi")
    role.on_work = upper
    await role.listen()
    assert texts(await ended(call)) == ["HI"], "what waits for a replica is given to it"


async def test_silent_replica_is_lost_and_taken_back(
    made: ControlPlane, role: ScriptedRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its registration stands all the while; only the stream is dead."""
    await connected(made, role)
    call = start(made, "one", x="hi")
    await role.next_work(1)
    role.is_silent = True
    monkeypatch.setattr(session_module, "SILENCE_LIMIT_S", 0.1)
    await ended(call)
    assert failure(call)[0] is Reason.REPLICA_LOST
    await eventually(lambda: len(role.streams) > 2)
    assert not made.dispatcher.connected_roles(["worker"]), "an unanswered hello is no connection"
    role.is_silent = False
    role.on_work = upper
    assert texts(await ended(start(made, "one", x="back"))) == ["BACK"]


async def test_commands_for_a_lost_stream_do_not_reach_the_next(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    (link,) = made.dispatcher.links.all()
    call = start(made, "one", x="hi")
    await role.next_work(1)
    link._session.outbox.append(
        pb.ExecuteRequest(commands=[pb.ExecuteCommand(handle=77, start=pb.StartActivation())]).SerializeToString()
    )
    await role.stop()
    await ended(call)
    await role.listen()
    await eventually(lambda: link.is_connected)
    await _still_works(made, role)
    assert 77 not in {work.handle for work in role.work}


async def test_replica_that_breaks_the_protocol_is_connected_again(
    made: ControlPlane, role: ScriptedRole, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    await connected(made, role)
    call = start(made, "one", x="hi")
    await role.next_work(1)
    (link,) = made.dispatcher.links.all()
    link._session._on_message = lambda frame: 1 / 0  # type: ignore[assignment,return-value]
    await role.work[0].accept()
    await ended(call)
    assert failure(call)[0] is Reason.REPLICA_LOST
    role.on_work = upper
    assert texts(await ended(start(made, "one", x="back"))) == ["BACK"]


@pytest.mark.parametrize("value", [value_pb2.Value(), value_pb2.Value(tensor=value_pb2.Value().tensor)])
async def test_value_that_cannot_be_read_fails_its_call_alone(
    made: ControlPlane, role: ScriptedRole, value: value_pb2.Value
) -> None:
    """A replica's bad value on its way to an inline node must not end the stream that all calls share."""
    graph = Graph("mixed")
    a, b = graph.node("a", Remote, role="worker"), graph.node("b", Waiting, inline=True)
    graph.input("x", ValueType.TEXT) >> a.inputs.field("x")
    a.y >> b.inputs.field("x")
    b.y >> graph.output("text", ValueType.TEXT)
    await made.install(made.catalog.compile(graph.spec()))
    await connected(made, role)
    bystander = start(made, "one", x="hi")
    await role.next_work(1)
    call = start(made, "mixed", x="hi")
    (_, work) = await role.next_work(2)
    await work.give(0, y=value)
    await ended(call)
    assert failure(call) == (Reason.INVALID_OUTPUT, {"node": "b"})
    await work.fail()
    await role.work[0].complete()
    assert (await ended(bystander)).error is None
    await _still_works(made, role)


# --- new lives ---------------------------------------------------------------------------------------------------------


async def test_new_life_replaces_the_old_one_at_once(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    call = start(made, "one", x="hi")
    await role.next_work(1)
    async with ScriptedRole(NAME, life="2") as reborn:
        reborn.on_work = upper
        register(made, reborn.replica)
        await ended(call)
        assert failure(call)[0] is Reason.REPLICA_LOST
        assert texts(await ended(start(made, "one", x="again"))) == ["AGAIN"]
        assert len(reborn.work) == 1
        assert len(made.dispatcher.links.all()) == 1


async def test_start_while_the_link_is_interrupted_goes_to_the_next_life(
    made: ControlPlane, role: ScriptedRole
) -> None:
    await connected(made, role)
    (link,) = made.dispatcher.links.all()
    link._session.is_interrupted = True
    call = start(made, "one", x="hi")
    async with ScriptedRole(NAME, life="2") as reborn:
        reborn.on_work = upper
        register(made, reborn.replica)
        assert texts(await ended(call)) == ["HI"]
    assert not role.work


async def test_new_lease_of_the_same_life_keeps_the_stream(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    call = start(made, "one", x="hi")
    (work,) = await role.next_work(1)
    register(made, role.replica)
    await work.give(0, y="on")
    await work.complete(1)
    assert texts(await ended(call)) == ["on"]
    await _still_works(made, role)
    assert len(role.streams) == 1


@pytest.mark.parametrize("ticks", [0, 1, 2, 5])
async def test_life_that_registers_right_after_its_lease_ran_out_is_connected(
    made: ControlPlane, role: ScriptedRole, ticks: int
) -> None:
    for _ in range(2):
        made.registry.deregister(register(made, role.replica))
    for _ in range(ticks):
        await asyncio.sleep(0)
    await connected(made, role)
    made.registry.expire(float("inf"))
    register(made, role.replica)
    await _still_works_after(made, role)


async def _still_works_after(made: ControlPlane, role: ScriptedRole) -> None:
    role.on_work = upper
    assert texts(await ended(start(made, "one", x="next"))) == ["NEXT"]


async def test_lease_that_runs_out_does_not_end_the_stream(made: ControlPlane, role: ScriptedRole) -> None:
    """The stream is the better proof of life; without it the lease counts."""
    await connected(made, role)
    call = start(made, "one", x="hi")
    (work,) = await role.next_work(1)
    made.registry.expire(float("inf"))
    register(made, role.replica)
    made.registry.expire(float("inf"))
    await work.give(0, y="on")
    await work.complete(1)
    assert texts(await ended(call)) == ["on"]
    assert len(role.streams) == 1
    await role.stop()
    await eventually(lambda: not made.dispatcher.connected_roles(["worker"]))
    made.registry.expire(float("inf"))
    assert made.dispatcher.links.all() == []


# --- no replica --------------------------------------------------------------------------------------------------------


async def test_call_waits_for_a_replica_then_fails_with_a_retry_hint(made: ControlPlane) -> None:
    made.dispatcher._replica_wait_s = 0.03
    call = await ended(start(made, "one", x="hi"))
    assert failure(call) == (Reason.NO_REPLICA, {"node": "a", "role": "worker"})
    assert call.error is not None
    assert call.error.retry_after_s == 0.03
    (failed,) = [e.failed for e in events(call) if e.WhichOneof("event") == "failed"]
    assert any(detail.type_url.endswith("google.rpc.RetryInfo") for detail in failed.status.details)
    assert not any(made.dispatcher._waiting.values())


async def test_replicas_that_cannot_serve_do_not_give_more_time(made: ControlPlane) -> None:
    """Each registration of the role tries what waits again; the time to wait goes on from where it was."""
    made.dispatcher._replica_wait_s = 0.2
    async with ScriptedRole("test.other") as other:
        await connected(made, other)
        call = start(made, "one", x="hi")
        waiting = made.dispatcher._waiting["worker"][0]
        for _ in range(3):
            register(made, other.replica)
            made.dispatcher._retry_waiting("worker")
        assert list(made.dispatcher._waiting["worker"]) == [waiting]
        assert failure(await ended(call))[0] is Reason.NO_REPLICA


async def test_cancelled_call_does_not_wait_for_a_replica(made: ControlPlane, role: ScriptedRole) -> None:
    first, second = start(made, "one", x="1"), start(made, "one", x="2")
    first.cancel(Reason.CALL_CANCELLED, "stop")
    assert first.scheduler.active_count == 0, "what no replica has seen is over at once"
    role.on_work = upper
    await connected(made, role)
    await ended(second)
    assert [work.start.activation.call_id for work in role.work] == [second.call_id]


@pytest.mark.parametrize("state", [replica_pb2.REPLICA_STATE_STARTING, replica_pb2.REPLICA_STATE_DRAINING])
async def test_replica_that_is_not_ready_is_given_nothing(
    made: ControlPlane, role: ScriptedRole, state: replica_pb2.ReplicaState
) -> None:
    role.replica.state = state
    register(made, role.replica)
    made.dispatcher._replica_wait_s = 0.02
    assert failure(await ended(start(made, "one", x="hi")))[0] is Reason.NO_REPLICA


async def test_draining_replica_ends_its_calls_but_takes_no_new_one(made: ControlPlane, role: ScriptedRole) -> None:
    async with ScriptedRole(NAME, replica_id="worker-1") as other:
        await connected(made, role)
        call = start(made, "two", x="hi")
        (first,) = await role.next_work(1)
        await connected(made, other)
        made.registry.drain("worker", "worker-0", 30)
        await first.give(0, y="x")
        await first.complete(1)
        other.on_work = upper
        assert texts(await ended(call)) == ["X"]
        assert len(role.work) == 1
        assert [w.node for w in other.work] == ["b"], "a node's first delivery chooses among those that take work"


async def test_health_of_a_graph_follows_its_replicas(made: ControlPlane, role: ScriptedRole) -> None:
    assert not made.health.is_graph_ready("graphs/one")
    await connected(made, role)
    assert made.health.is_graph_ready("graphs/one")
    await eventually(lambda: made.health.servicer._statuses["graphs/one"] == 1)
    made.registry.drain("worker", "worker-0", 30)
    await eventually(lambda: made.health.servicer._statuses["graphs/one"] == 2)


# --- choice and queues -------------------------------------------------------------------------------------------------


async def test_first_delivery_fixes_replica(made: ControlPlane, role: ScriptedRole) -> None:
    async with ScriptedRole(NAME, replica_id="worker-1") as other:
        await connected(made, role, other)
        call = start(made, "two", x="hi")
        await eventually(lambda: role.work or other.work)
        (first,) = role.work + other.work
        for i in range(6):
            await first.give(i, y=str(i))
        await eventually(lambda: len(role.of_node("b")) + len(other.of_node("b")) == 6)
        assert {len(role.of_node("b")), len(other.of_node("b"))} == {0, 6}
        call.cancel(Reason.CALL_CANCELLED, "stop")


async def test_spread_balances_activations_and_every_replica_hears_of_the_end(
    made: ControlPlane, role: ScriptedRole
) -> None:
    async with ScriptedRole(NAME, replica_id="worker-1") as other:
        await connected(made, role, other)
        call = start(made, "spread", x="hi")
        await eventually(lambda: role.work or other.work)
        (first,) = role.work + other.work
        for i in range(6):
            await first.give(i, y=str(i))
        await eventually(lambda: len(role.of_node("b")) + len(other.of_node("b")) == 6)
        assert min(len(role.of_node("b")), len(other.of_node("b"))) >= 2
        call.cancel(Reason.CALL_CANCELLED, "stop")
        both = (role, other)
        await eventually(lambda: [replica.cancelled_calls for replica in both] == [[call.call_id]] * 2)
        for work in (*role.work, *other.work):
            await work.fail()
        await eventually(lambda: [replica.released_calls for replica in both] == [[call.call_id]] * 2)


async def test_full_replica_queues_work_in_order(made: ControlPlane) -> None:
    async with ScriptedRole(NAME, most=2) as role:
        await connected(made, role)
        calls = [start(made, "one", x=str(i)) for i in range(6)]
        await role.next_work(2)
        calls[3].cancel(Reason.CALL_CANCELLED, "stop")
        assert calls[3].scheduler.active_count == 0
        for done in range(5):
            work = (await role.next_work(min(5, done + 2)))[done]
            await work.give(0, y="y")
            await work.complete(1)
        for call in calls:
            await ended(call)
        assert [w.start.activation.call_id for w in role.work] == [c.call_id for c in calls if c is not calls[3]]


async def test_queue_of_a_lost_replica_goes_to_another(made: ControlPlane) -> None:
    async with ScriptedRole(NAME, most=1) as role, ScriptedRole(NAME, replica_id="worker-1") as other:
        await connected(made, role)
        calls = [start(made, "one", x=str(i)) for i in range(3)]
        await role.next_work(1)
        other.on_work = upper
        await connected(made, other)
        await role.stop()
        for call in calls:
            await ended(call)
        assert [call.error is None for call in calls] == [False, True, True]


# --- cancel and timeouts -----------------------------------------------------------------------------------------------


async def test_cancel_goes_both_ways_and_is_answered_before_cleanup_ends(
    made: ControlPlane, role: ScriptedRole
) -> None:
    await connected(made, role)
    call = start(made, "one", x="hi")
    (work,) = await role.next_work(1)
    assert call.cancel(Reason.CALL_CANCELLED, "the caller says so")
    assert kinds(events(call)) == ["accepted", "started", "failed"]
    await eventually(lambda: role.cancelled_calls == [call.call_id])
    await eventually(lambda: work.cancelled == "the caller says so")
    assert role.released_calls == []
    await work.give(0, y="late")
    await work.fail()
    await eventually(lambda: role.released_calls == [call.call_id])
    assert kinds(events(call)) == ["accepted", "started", "failed"]
    await _still_works(made, role)


async def test_node_that_runs_too_long_is_stopped(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    call = await ended(start(made, "brief", x="hi"))
    assert failure(call) == (Reason.DEADLINE_EXCEEDED, {"node": "a"})
    (work,) = await role.next_work(1)
    await eventually(lambda: work.cancelled == "timeout")


async def test_timeout_of_an_inline_node_says_so(made: ControlPlane) -> None:
    call = await ended(start(made, "inline", x="hi"))
    assert failure(call) == (Reason.DEADLINE_EXCEEDED, {"node": "a"})
    assert made.inline._activations == {}


async def test_node_that_timed_out_while_it_waited_is_never_started(made: ControlPlane, role: ScriptedRole) -> None:
    """The call goes on without it; a replica that comes later must not run it for nobody."""
    call = await ended(start(made, "skipping", x="hi"))
    assert call.error is None
    assert not made.dispatcher._waiting["worker"]
    await connected(made, role)
    await _still_works(made, role)
    assert len(role.work) == 1


async def test_cancel_hook_of_an_inline_interface_is_called_once(made: ControlPlane) -> None:
    Waiting.cancelled_calls.clear()
    call = start(made, "inline", x="hi")
    call.cancel(Reason.CALL_CANCELLED, "stop")
    call.cancel(Reason.CALL_CANCELLED, "again")
    assert Waiting.cancelled_calls == [call.call_id]


# --- values ------------------------------------------------------------------------------------------------------------


async def test_large_value_stays_here_for_the_role_to_fetch(made: ControlPlane, role: ScriptedRole) -> None:
    await connected(made, role)
    graph = Graph("bytes")
    a, b = graph.node("a", Remote, role="worker"), graph.node("b", TakesBytes, role="worker")
    graph.input("x", ValueType.TEXT) >> a.inputs.field("x")
    a.b >> b.inputs.field("b")
    b.y >> graph.output("text", ValueType.TEXT)
    made.catalog._interfaces |= {TakesBytes.name}
    made.catalog.install(made.catalog.compile(graph.spec()))
    role.replica.interfaces.append(TakesBytes.name)
    register(made, role.replica)
    call = start(made, "bytes", x="hi")
    (first,) = await role.next_work(1)
    await first.give(0, b=bytes(100_000))
    (_, second) = await role.next_work(2)
    ref = second.start.facets[0].fields["b"].values[0].value.data.remote
    assert (ref.size_bytes, ref.endpoint) == (100_000, made.internal_target)
    assert made.store.used_bytes == 100_000
    await first.complete(1)
    await second.complete()
    await ended(call)
    await eventually(lambda: made.store.used_bytes == 0)


@pytest.mark.parametrize("most", [0, 2])
async def test_start_that_finds_no_room_for_its_value_fails_its_call_alone(most: int) -> None:
    """At once, or when the replica has room for it again."""
    graph = Graph("bytes")
    a, b = graph.node("a", Remote, role="worker"), graph.node("b", TakesBytes, role="worker")
    graph.input("x", ValueType.TEXT) >> a.inputs.field("x")
    a.output("b") >> b.inputs.field("b")
    b.y >> graph.output("text", ValueType.TEXT)
    graphs, budget = (graph, one_node()), 150_000
    async with (
        plane(Remote, TakesBytes, graphs=graphs, spool_bytes=budget) as made,
        ScriptedRole(NAME, TakesBytes.name, most=most) as role,
    ):
        await connected(made, role)
        call = start(made, "bytes", x="hi")
        (first,) = await role.next_work(1)
        await first.give(0, b=bytes(100_000))
        (_, second) = await role.next_work(2)
        await first.give(1, b=bytes(100_000))
        await first.complete(2)
        await ended(call)
        assert failure(call) == (Reason.BUFFER_FULL, {"node": "b"})
        await second.fail()
        await eventually(lambda: made.store.used_bytes == 0)
        role.work.clear()
        await _still_works(made, role)


class TakesBytes(Remote):
    """Bytes in."""

    name = "test.takes_bytes"
    inputs = groups(b=Field(ValueType.BYTES))
