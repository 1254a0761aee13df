"""Replicas that register with one control plane are everybody's; so are their ends and drains."""

from __future__ import annotations

import contextlib

import pytest

from omniflow.internal_rpc import PROTOCOL_REVISION
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_registry_service_pb2 as pb
from omniflow.role.v1 import role_registry_service_pb2_grpc as pb_grpc
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason
from tests.roles.running import eventually
from tests.server.cluster.clusters import Member, cluster
from tests.server.control.planes import channel_to
from tests.server.control.scripted_role import ScriptedRole, Work
from tests.support.interfaces import Exclaim, single

REMOTE = single("remote", Exclaim, role="worker")


async def _installed(*members: Member) -> None:
    for member in members:
        await member.plane.install(member.plane.catalog.compile(REMOTE.spec()))


def _connected(*members: Member) -> bool:
    return all(member.plane.dispatcher.connected_roles(["worker"]) for member in members)


async def upper(work: Work) -> None:
    await work.give(0, text=str(work.input("text")).upper())
    await work.complete(1)


async def test_replica_of_one_control_plane_works_for_all() -> None:
    async with ScriptedRole("test.exclaim") as role, cluster(3) as members:
        await _installed(*members)
        role.on_work = upper
        async with channel_to(members[0].plane.internal_target) as channel:
            answer = await pb_grpc.RoleRegistryServiceStub(channel).RegisterReplica(
                pb.RegisterReplicaRequest(replica=role.replica)
            )
            assert list(answer.registries) == [member.plane.internal_target for member in members]
        await eventually(lambda: _connected(*members), timeout_s=1.0)
        for member in members:
            answer = await member.client.run("remote", inputs={"text": "hi"})
            assert answer.outputs["text"].values[0].text == "HI"
        assert len(role.streams) == 3


async def test_drain_asked_of_any_control_plane_reaches_the_replica_and_all_others() -> None:
    async with ScriptedRole("test.exclaim") as role, cluster() as (a, b):
        registration = await a.register(role)
        await eventually(lambda: _connected(a, b))
        await b.plane.directory.drain("worker", "worker-0", 7.0)
        assert not _connected(b)
        await eventually(lambda: not _connected(a))
        told = a.plane.directory.keep_alive(
            registration.lease_id, replica_pb2.REPLICA_STATE_READY, replica_pb2.ReplicaLoad()
        )
        assert told is not None
        assert told.drain_grace_s == 7.0
        assert not _connected(a), "it has not taken the directive in yet"
        with pytest.raises(OmniFlowError) as unknown:
            await b.plane.directory.drain("worker", "worker-9", 7.0)
        assert unknown.value.reason is Reason.UNKNOWN_RESOURCE


async def test_replica_that_leaves_or_dies_is_forgotten_by_all() -> None:
    async with ScriptedRole("test.exclaim") as role, cluster(lease_ttl_s=0.5) as (a, b):
        registration = await a.register(role)
        await eventually(lambda: _connected(a, b))
        await role.stop()
        await a.plane.directory.deregister(registration.lease_id)
        await eventually(lambda: b.plane.registry.replicas() == [])
        await role.listen()
        await a.register(role)
        await eventually(lambda: _connected(a, b))
        await role.stop()  # and says nothing more: its lease runs out
        await eventually(lambda: [*a.plane.registry.replicas(), *b.plane.registry.replicas()] == [])


async def test_replica_outlives_the_control_plane_that_it_had_registered_with() -> None:
    async with ScriptedRole("test.exclaim") as role, cluster(lease_ttl_s=0.3) as (a, b):
        await a.register(role)
        await eventually(lambda: _connected(a, b))
        a.line.is_cut = True
        await eventually(lambda: len(b.plane.membership.owners) == 1)
        await eventually(lambda: b.plane.registry.replicas()[0].expire_s == 0.0)
        assert _connected(b), "its stream is better proof than the lease"
        await b.register(role)
        assert len(role.streams) == 2, "and it goes on under the new lease"


async def test_newer_life_of_a_replica_replaces_the_older_one_everywhere() -> None:
    async with ScriptedRole("test.exclaim", life="1") as old, cluster() as (a, b):
        await a.register(old)
        await eventually(lambda: _connected(a, b))
        async with ScriptedRole("test.exclaim", life="2") as new:
            await b.register(new)
            await eventually(lambda: len(new.streams) == 2)
            with pytest.raises(OmniFlowError) as stale:
                await a.register(old)
            assert stale.value.reason is Reason.STALE_EPOCH
            lives = [member.plane.registry.find("worker", "worker-0") for member in (a, b)]
            assert [life.replica.incarnation_id for life in lives if life] == ["2", "2"]


async def test_activation_that_a_full_replica_refuses_is_started_when_it_has_room() -> None:
    """Control planes do not know of each other's activations, only the replica does."""
    async with ScriptedRole("test.exclaim", most=1) as role, cluster() as (a, b):
        await _installed(a, b)
        await a.register(role)
        await eventually(lambda: _connected(a, b))

        async def refuse_the_second(work: Work) -> None:
            if work is role.work[1]:
                await work.refuse(Reason.TOO_MANY_CALLS, retry_after_s=0.05)

        role.on_work = refuse_the_second
        first, second = (member.client.stream("remote", inputs={"text": "x"}) for member in (a, b))
        await first.expect("accepted")
        await eventually(lambda: len(role.work) == 3)
        for work in (role.work[0], role.work[2]):
            await upper(work)
        for stream in (first, second):
            events, error = await stream.rest()
            assert (events[-1].WhichOneof("event"), error) == ("finished", None)
        assert role.work[1].start.activation == role.work[2].start.activation, "the same attempt of the same activation"


async def test_activation_that_a_draining_replica_refuses_goes_to_another() -> None:
    async with (
        ScriptedRole("test.exclaim") as role,
        ScriptedRole("test.exclaim", replica_id="worker-1") as other,
        cluster(1) as (a,),
    ):
        await _installed(a)
        role.on_work, other.on_work = _refuses, upper
        for each in (role, other):
            await a.register(each)
        await eventually(lambda: len(role.streams) == len(other.streams) == 1)
        for _ in range(4):
            answer = await a.client.run("remote", inputs={"text": "hi"})
            assert answer.outputs["text"].values[0].text == "HI"
        assert (len(role.work), len(other.work)) == (1, 4), "one refusal is enough"


async def _refuses(work: Work) -> None:
    await work.refuse(Reason.DRAINING)


async def test_replicas_load_by_others_counts_in_the_choice() -> None:
    async with (
        ScriptedRole("test.exclaim") as busy,
        ScriptedRole("test.exclaim", replica_id="worker-1") as idle,
        cluster(1) as (a,),
    ):
        await _installed(a)
        for each in (busy, idle):
            await a.register(each)
        await eventually(lambda: len(busy.streams) == len(idle.streams) == 1)
        await busy.report_load(running=9, waiting=3)
        link = a.plane.dispatcher.links.named("worker/worker-0")
        await eventually(lambda: link.foreign_load == 12)
        streams = [a.client.stream("remote", inputs={"text": "x"}) for _ in range(6)]
        await eventually(lambda: len(idle.work) == 6)
        assert not busy.work
        for work in idle.work:
            await upper(work)
        for stream in streams:
            await stream.rest()


async def test_new_work_goes_to_a_replica_that_was_added() -> None:
    """grpc#12295: long streams stuck to the old backends, and new ones stayed idle."""
    async with (
        ScriptedRole("test.exclaim") as old,
        ScriptedRole("test.exclaim", replica_id="worker-1") as added,
        cluster() as (a, b),
    ):
        await _installed(a, b)
        await a.register(old)
        await eventually(lambda: _connected(a, b))
        long = [member.client.stream("remote", inputs={"text": "x"}) for member in (a, b) for _ in range(4)]
        await eventually(lambda: len(old.work) == 8)
        await b.register(added)
        await eventually(lambda: len(added.streams) == 2)
        more = [member.client.stream("remote", inputs={"text": "x"}) for member in (a, b) for _ in range(4)]
        await eventually(lambda: len(old.work) + len(added.work) == 16)
        assert len(added.work) == 8, "it has nothing yet, so it is given all"
        for work in (*old.work, *added.work):
            await upper(work)
        for stream in (*long, *more):
            await stream.rest()


async def test_replica_that_keeps_failing_is_left_alone_and_tried_again() -> None:
    async with (
        ScriptedRole("test.exclaim") as sick,
        ScriptedRole("test.exclaim", replica_id="worker-1") as sound,
        cluster(1) as (a,),
    ):
        await _installed(a)
        sick.on_work, sound.on_work = _fails, upper
        for each in (sick, sound):
            await a.register(each)
        await eventually(lambda: len(sick.streams) == len(sound.streams) == 1)
        failed = 0
        while failed < 5:
            _, error = await a.client.stream("remote", inputs={"text": "x"}).rest()
            failed += error is not None
        given = len(sick.work)
        for _ in range(10):
            await a.client.run("remote", inputs={"text": "x"})
        assert len(sick.work) == given, "its circuit is open"
        (report,) = a.plane.dispatcher.circuits(["worker"])
        assert (report.key, report.state.name, report.failures) == ("worker/worker-0", "OPEN", 5)
        sick.on_work = upper
        a.plane.dispatcher._choice._circuits["worker"]._circuits["worker/worker-0"].next_probe_s = 0.0
        for _ in range(4):
            await a.client.run("remote", inputs={"text": "x"})
        assert len(sick.work) > given, "a probe that works closes it"
        assert a.plane.dispatcher.circuits(["worker"]) == []


async def _fails(work: Work) -> None:
    await work.fail()


@pytest.mark.parametrize("balance", ["session_affinity", "consistent_hash"])
async def test_replica_that_is_removed_moves_only_its_own_sessions(balance: str) -> None:
    graph = single("sticky", Exclaim, role="worker")
    spec = graph.spec()
    spec.nodes[0].balance = graph_spec_pb2.BalancePolicy.Value(f"BALANCE_POLICY_{balance.upper()}")
    roles = [ScriptedRole("test.exclaim", replica_id=f"worker-{number}") for number in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        for role in roles:
            role.on_work = upper
            await stack.enter_async_context(role)
        a, b = await stack.enter_async_context(cluster())
        for member in (a, b):
            await member.plane.install(member.plane.catalog.compile(spec))
        leases = [(await a.register(role)).lease_id for role in roles]
        await eventually(lambda: all(len(role.streams) == 2 for role in roles))

        async def served() -> dict[str, str]:
            """Which replica serves each session, asked through both control planes."""
            for role in roles:
                role.work.clear()
            for number in range(40):
                await (a, b)[number % 2].client.run("sticky", inputs={"text": "x"}, session=f"sessions/{number}")
            return {work.start.session: role.replica.replica_id for role in roles for work in role.work}

        before = await served()
        assert await served() == before
        assert set(before.values()) == {"worker-0", "worker-1", "worker-2"}
        await roles[1].stop()
        await a.plane.directory.deregister(leases[1])
        await eventually(lambda: all(len(m.plane.registry.replicas("worker")) == 2 for m in (a, b)))
        after = await served()
        moved = {session for session in before if before[session] != after[session]}
        assert moved == {session for session, replica in before.items() if replica == "worker-1"}


async def test_control_planes_of_the_cluster_are_listed_by_each_of_them() -> None:
    async with cluster(3) as members:
        for member in members:
            async with channel_to(member.plane.internal_target) as channel:
                answer = await pb_grpc.RoleRegistryServiceStub(channel).ListControlPlanes(pb.ListControlPlanesRequest())
            listed = [(each.control_id, each.epoch, each.endpoint) for each in answer.control_planes]
            assert listed == [
                (f"control-{index}", each.epoch, each.plane.internal_target) for index, each in enumerate(members)
            ]
            assert [each.is_draining for each in answer.control_planes] == [False] * 3
            assert all(PROTOCOL_REVISION in each.protocol_revisions for each in answer.control_planes)
            assert len({each.incarnation_id for each in answer.control_planes}) == 3
