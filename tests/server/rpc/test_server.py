"""What else the servers answer: reflection, channelz, and nothing that is not theirs."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from omniflow.role.v1 import role_registry_service_pb2, role_registry_service_pb2_grpc
from omniflow_core.errors import OmniFlowError
from omniflow_server.compose import PUBLIC_SERVICES, ControlPlane
from tests.server.control.planes import channel_to, plane
from tests.server.rpc.client import GraphClient
from tests.server.rpc.interfaces import INTERFACES, graphs
from tests.support.interfaces import Gate


async def reflect(client: GraphClient, **request: Any) -> reflection_pb2.ServerReflectionResponse:
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    stream = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**request)]))
    return await stream.read()


async def test_reflection_lists_the_services(client: GraphClient) -> None:
    response = await reflect(client, list_services="")
    assert {service.name for service in response.list_services_response.service} == {
        *PUBLIC_SERVICES,
        "grpc.health.v1.Health",
        "grpc.channelz.v1.Channelz",
        "grpc.reflection.v1alpha.ServerReflection",
    }


@pytest.mark.parametrize("service", PUBLIC_SERVICES)
async def test_reflection_describes_every_service(client: GraphClient, service: str) -> None:
    response = await reflect(client, file_containing_symbol=service)
    files = map(descriptor_pb2.FileDescriptorProto.FromString, response.file_descriptor_response.file_descriptor_proto)
    assert service in [f"{file.package}.{found.name}" for file in files for found in file.service]


async def test_channelz_answers(made: ControlPlane, client: GraphClient) -> None:
    stub = channelz_pb2_grpc.ChannelzStub(client.channel)
    servers = (await stub.GetServers(channelz_pb2.GetServersRequest())).server
    assert len(servers) >= 2
    assert any(server.data.calls_started for server in servers)
    for server in servers:
        request = channelz_pb2.GetServerSocketsRequest(server_id=server.ref.server_id)
        assert (await stub.GetServerSockets(request)).end


async def test_roles_are_not_served_on_the_public_port(client: GraphClient) -> None:
    stub = role_registry_service_pb2_grpc.RoleRegistryServiceStub(client.channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ListReplicas(role_registry_service_pb2.ListReplicasRequest())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_second_process_on_a_port_is_refused(made: ControlPlane) -> None:
    with pytest.raises(OmniFlowError, match="it is in use"):
        async with plane(listen=made.target):
            pass


async def test_calls_that_run_at_the_end_of_the_process_are_ended() -> None:
    Gate.reset()
    async with plane(*INTERFACES, graphs=graphs()) as made, channel_to(made.target) as channel:
        reader = GraphClient(channel).stream("gate", inputs={"text": "g"})
        await reader.expect("accepted")
        await reader.expect("started")
        await made.calls.drain(0.01)
        events, error = await reader.rest()
        assert events[-1].WhichOneof("event") == "failed"
        assert error is not None
        assert error.reason.value == "OWNER_LOST"
