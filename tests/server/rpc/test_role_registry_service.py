"""RoleRegistryService over the internal socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import duration_pb2

from omniflow.codec.error import error_from_rpc
from omniflow.role.v1 import replica_pb2, role_registry_service_pb2_grpc
from omniflow.role.v1 import role_registry_service_pb2 as pb
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.compose import ControlPlane
from tests.roles.running import eventually
from tests.server.control.planes import channel_to, plane

READY, DRAINING, LOST = (
    replica_pb2.REPLICA_STATE_READY,
    replica_pb2.REPLICA_STATE_DRAINING,
    replica_pb2.REPLICA_STATE_LOST,
)


@pytest.fixture
async def control() -> AsyncIterator[ControlPlane]:
    async with plane(lease_ttl_s=5.0) as made:
        yield made


@pytest.fixture
async def stub(control: ControlPlane) -> AsyncIterator[Any]:
    async with channel_to(control.internal_target) as channel:
        yield role_registry_service_pb2_grpc.RoleRegistryServiceStub(channel)


def replica(replica_id: str = "llm-0", *, life: str = "1", role: str = "llm", **fields: Any) -> replica_pb2.Replica:
    options = {"protocol_revisions": [1], "state": replica_pb2.REPLICA_STATE_STARTING, **fields}
    return replica_pb2.Replica(
        role=role, replica_id=replica_id, incarnation_id=life, endpoint="unix:/nowhere", **options
    )


async def register(stub: Any, **fields: Any) -> pb.RegisterReplicaResponse:
    return await stub.RegisterReplica(pb.RegisterReplicaRequest(replica=replica(**fields)))  # type: ignore[no-any-return]


async def refusal(awaitable: Any) -> OmniFlowError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return error_from_rpc(caught.value)


async def test_registration_gives_a_lease(stub: Any) -> None:
    response = await register(stub)
    assert len(response.lease_id) >= 24
    assert response.lease_ttl.ToMilliseconds() == 5_000
    assert response.protocol_revision == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"role": ""}, "replica.role"),
        ({"role": "a b"}, "replica.role"),
        ({"replica_id": ""}, "replica.replica_id"),
        ({"life": ""}, "replica.incarnation_id"),
        ({"interfaces": ["i"] * 257}, "replica.interfaces"),
    ],
)
async def test_registration_that_breaks_a_rule_is_refused(stub: Any, fields: Any, field: str) -> None:
    error = await refusal(register(stub, **fields))
    assert (error.reason, error.violations[0].field) == (Reason.INVALID_FIELD, field)


@pytest.mark.parametrize("revisions", [[], [2], [2, 3]])
async def test_registration_of_another_protocol_is_refused(stub: Any, revisions: list[int]) -> None:
    error = await refusal(register(stub, protocol_revisions=revisions))
    assert (error.reason, error.code.name) == (Reason.UNIMPLEMENTED, "UNIMPLEMENTED")


async def test_keep_alive_extends_the_lease_and_carries_the_directive(stub: Any, control: ControlPlane) -> None:
    lease = (await register(stub)).lease_id
    stream = stub.KeepAlive()
    await stream.write(pb.KeepAliveRequest(lease_id=lease, state=READY, load={"running": 3}))
    first = await stream.read()
    assert first.WhichOneof("directive") is None
    assert first.lease_expire_time.seconds > 0
    registration = control.registry.find("llm", "llm-0")
    assert registration is not None
    assert (registration.replica.state, registration.load.running) == (READY, 3)
    await stub.DrainReplica(
        pb.DrainReplicaRequest(role="llm", replica_id="llm-0", grace=duration_pb2.Duration(seconds=7))
    )
    for _ in range(2):
        await stream.write(pb.KeepAliveRequest(lease_id=lease, state=READY))
        assert (await stream.read()).drain.grace.seconds == 7
    assert registration.replica.state == DRAINING
    control.registry.expire(float("inf"))
    await stream.write(pb.KeepAliveRequest(lease_id=lease, state=READY))
    assert (await stream.read()).WhichOneof("directive") == "reregister"
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF


async def test_drain_without_a_grace_leaves_half_a_minute(stub: Any, control: ControlPlane) -> None:
    await register(stub)
    await stub.DrainReplica(pb.DrainReplicaRequest(role="llm", replica_id="llm-0"))
    registration = control.registry.find("llm", "llm-0")
    assert registration is not None
    assert registration.drain_grace_s == 30.0
    error = await refusal(stub.DrainReplica(pb.DrainReplicaRequest(role="llm", replica_id="nobody")))
    assert (error.reason, error.code.name) == (Reason.UNKNOWN_RESOURCE, "NOT_FOUND")


async def test_deregister_is_idempotent(stub: Any, control: ControlPlane) -> None:
    lease = (await register(stub)).lease_id
    for _ in range(2):
        await stub.DeregisterReplica(pb.DeregisterReplicaRequest(lease_id=lease))
    assert control.registry.replicas() == []


async def test_replicas_are_listed_in_pages(stub: Any) -> None:
    for role in ("llm", "llm2", "tts"):
        for i in range(3):
            await register(stub, role=role, replica_id=f"{role}-{i}")
    response = await stub.ListReplicas(pb.ListReplicasRequest(role="llm", page_size=2))
    assert [r.replica_id for r in response.replicas] == ["llm-0", "llm-1"]
    rest = await stub.ListReplicas(pb.ListReplicasRequest(role="llm", page_size=2, page_token=response.next_page_token))
    assert [r.replica_id for r in rest.replicas] == ["llm-2"]
    assert rest.next_page_token == ""
    assert len((await stub.ListReplicas(pb.ListReplicasRequest())).replicas) == 9


async def test_watch_gives_a_snapshot_then_changes(stub: Any) -> None:
    await register(stub)
    stream = stub.WatchReplicas(pb.WatchReplicasRequest())
    snapshot = await stream.read()
    assert (snapshot.is_snapshot, [r.replica_id for r in snapshot.replicas]) == (True, ["llm-0"])
    await register(stub, replica_id="llm-1")
    change = await stream.read()
    assert (change.is_snapshot, [r.replica_id for r in change.replicas]) == (False, ["llm-1"])
    assert change.revision == snapshot.revision + 1
    await register(stub, replica_id="llm-1", life="2")
    assert [r.state for r in (await stream.read()).replicas] == [LOST]
    assert [r.incarnation_id for r in (await stream.read()).replicas] == ["2"]
    stream.cancel()


async def test_watch_of_an_empty_registry_starts_with_an_empty_snapshot(stub: Any) -> None:
    stream = stub.WatchReplicas(pb.WatchReplicasRequest())
    async with asyncio.timeout(10):
        snapshot = await stream.read()
    assert (snapshot.is_snapshot, snapshot.revision, list(snapshot.replicas)) == (True, 0, [])
    stream.cancel()


async def test_watch_from_the_current_revision_gives_changes_alone(stub: Any, control: ControlPlane) -> None:
    await register(stub)
    stream = stub.WatchReplicas(pb.WatchReplicasRequest(after_revision=1, role="tts"))
    await eventually(lambda: len(control.registry._listeners) == 2)
    await register(stub, replica_id="llm-1")
    await register(stub, role="tts", replica_id="tts-0")
    change = await stream.read()
    assert (change.is_snapshot, [r.replica_id for r in change.replicas], change.revision) == (False, ["tts-0"], 3)
    stream.cancel()
    await eventually(lambda: len(control.registry._listeners) == 1)


async def test_watch_from_another_revision_gives_a_snapshot(stub: Any) -> None:
    await register(stub)
    stream = stub.WatchReplicas(pb.WatchReplicasRequest(after_revision=77))
    assert (await stream.read()).is_snapshot
    stream.cancel()


async def test_lease_that_is_not_renewed_runs_out(stub: Any) -> None:
    async with plane(lease_ttl_s=0.05) as made, channel_to(made.internal_target) as channel:
        await register(role_registry_service_pb2_grpc.RoleRegistryServiceStub(channel))
        assert made.registry.replicas()
        await eventually(lambda: not made.registry.replicas())
