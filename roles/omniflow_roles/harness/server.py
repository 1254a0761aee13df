"""RoleExecutionService: translation between gRPC and the host; decides nothing."""

from __future__ import annotations

from typing import Any, cast

import grpc
import grpc.aio

from omniflow.interface import Field, Interface
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import invalid_field
from omniflow_roles.harness.host import RoleHost
from omniflow_roles.harness.lanes.grpc_stream import GrpcStream
from omniflow_roles.harness.links import Links
from omniflow_roles.harness.replica import ReplicaIdentity
from omniflow_roles.harness.retention import RetainedCalls

SERVICE = messages.DESCRIPTOR.services_by_name["RoleExecutionService"].full_name

_Context = grpc.aio.ServicerContext[Any, Any]


class RoleExecutionServicer:
    """The four methods. Errors are raised as OmniFlowError; `ErrorAnswering` makes statuses of them."""

    def __init__(
        self,
        host: RoleHost,
        identity: ReplicaIdentity,
        retained: RetainedCalls,
        links: Links,
    ) -> None:
        self._host = host
        self._identity = identity
        self._retained = retained
        self._links = links

    async def execute(self, requests: object, context: _Context) -> None:
        """Execute, with frames as bytes both ways: the pump joins what is serialized already."""
        await GrpcStream(context, self._links.side).carry()

    async def cancel_activations(
        self, request: messages.CancelActivationsRequest, context: _Context
    ) -> messages.CancelActivationsResponse:
        _require(request.call_id, "call_id")
        return messages.CancelActivationsResponse(cancelled=self._host.cancel_call(request.call_id, request.reason))

    async def release_call(
        self, request: messages.ReleaseCallRequest, context: _Context
    ) -> messages.ReleaseCallResponse:
        for call_id in request.call_ids:
            self._host.end_call(call_id)
        self._retained.release(request.call_ids)
        return messages.ReleaseCallResponse()

    async def describe_role(
        self, request: messages.DescribeRoleRequest, context: _Context
    ) -> messages.DescribeRoleResponse:
        return messages.DescribeRoleResponse(
            replica=self._identity.message(self._host.state),
            interfaces=[_describe(interface) for interface in self._host.interfaces],
        )

    def generic_handler(self) -> grpc.GenericRpcHandler:
        """The service for `server.add_generic_rpc_handlers`."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Execute": grpc.stream_stream_rpc_method_handler(self.execute),
                "CancelActivations": _unary(
                    self.cancel_activations, messages.CancelActivationsRequest, messages.CancelActivationsResponse
                ),
                "ReleaseCall": _unary(self.release_call, messages.ReleaseCallRequest, messages.ReleaseCallResponse),
                "DescribeRole": _unary(self.describe_role, messages.DescribeRoleRequest, messages.DescribeRoleResponse),
            },
        )


def _unary(behavior: Any, request: Any, response: Any) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(behavior, request.FromString, response.SerializeToString)


def _require(value: str, path: str) -> None:
    if not value:
        raise invalid_field(path, "it is required")


def _describe(interface: Interface) -> messages.InterfaceDescription:
    return messages.InterfaceDescription(
        name=interface.name,
        input_groups=[
            graph_spec_pb2.InputGroup(name=group, fields=[_field(name, field) for name, field in fields.items()])
            for group, fields in interface.inputs.items()
        ],
        outputs=[_field(name, field) for name, field in interface.outputs.items()],
        is_streaming=interface.is_streaming(),
    )


def _field(name: str, field: Field) -> graph_spec_pb2.Field:
    return graph_spec_pb2.Field(name=name, type=cast("Any", field.type.value), is_optional=field.is_optional)
