"""Where the commands about calls get them: a control plane, or a file that `omniflow call save` wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from omniflow.codec.error import error_from_rpc
from omniflow.codec.workflow import graph_spec_from_proto
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.graph.v1 import inspection_pb2
from omniflow.transport import ClientOptions, Connection
from omniflow_core.control.replay import Replay
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.plan import GraphPlan, plan_graph

TIMEOUT_S = 30.0
_PAGE_SIZE = 1000
_CHANNEL_OPTIONS: Mapping[str, int | str] = {"grpc.max_receive_message_length": 16 * 1024 * 1024}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSource:
    """A control plane, as a tenant sees it."""

    target: str
    tenant: str

    async def list_calls(self) -> list[pb.CallSummary]:
        """Calls that run or are kept, the oldest first."""
        async with self._connection() as connection:
            return await _list(connection)

    async def inspect(self, beginning: str) -> pb.InspectCallResponse:
        """The call whose identifier begins so; the newest one for an empty beginning. Raises UNKNOWN_CALL."""
        async with self._connection() as connection:
            known = [call.call_id for call in await _list(connection)]
            call_id = self._meant(beginning, known)
            request = pb.InspectCallRequest(call_id=call_id)
            response: pb.InspectCallResponse = await _ask(connection, connection.graphs.InspectCall, request)
            return response

    def _meant(self, beginning: str, known: Sequence[str]) -> str:
        meant = [call_id for call_id in known if call_id.startswith(beginning)] if beginning else known[-1:]
        if not meant:
            what = f"no call begins with {beginning!r}" if beginning else "there is no call"
            raise OmniFlowError(
                Reason.UNKNOWN_CALL,
                f"{what} on {self.target} for tenant {self.tenant!r}: ended calls are forgotten after some minutes; "
                "`omniflow call list` shows those that are known, `omniflow call save` keeps one",
            )
        if len(meant) > 1 and beginning not in meant:
            raise OmniFlowError(
                Reason.UNKNOWN_CALL,
                f"{len(meant)} calls begin with {beginning!r}, such as {meant[0]} and {meant[1]}; give more of it",
            )
        return beginning if beginning in meant else meant[0]

    def _connection(self) -> Connection:
        options = ClientOptions(target=self.target, tenant=self.tenant, channel_options=_CHANNEL_OPTIONS)
        return Connection(options)


async def _list(connection: Connection) -> list[pb.CallSummary]:
    found: list[pb.CallSummary] = []
    request = pb.ListCallsRequest(page_size=_PAGE_SIZE)
    while True:
        page = await _ask(connection, connection.graphs.ListCalls, request)
        found.extend(page.calls)
        if not page.next_page_token:
            return sorted(found, key=lambda call: (call.create_time.ToNanoseconds(), call.call_id))
        request.page_token = page.next_page_token


async def _ask(connection: Connection, method: Any, request: Any) -> Any:
    try:
        return await method(request, metadata=connection.metadata(), timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        raise error_from_rpc(error) from None


# --- files --------------------------------------------------------------------------------------------------------------


def write(response: pb.InspectCallResponse, path: Path) -> None:
    """JSON for a name that ends with .json, else the message itself. Raises OmniFlowError INVALID_CONFIG."""
    try:
        if path.suffix == ".json":
            path.write_text(json_format.MessageToJson(response), encoding="utf-8")
        else:
            path.write_bytes(response.SerializeToString())
    except OSError as problem:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"cannot write {path}: {problem.strerror}") from None


def read(path: Path) -> pb.InspectCallResponse:
    """What `write` wrote. Raises OmniFlowError INVALID_CONFIG."""
    response = pb.InspectCallResponse()
    try:
        if path.suffix == ".json":
            json_format.Parse(path.read_text(encoding="utf-8"), response)
        else:
            response.ParseFromString(path.read_bytes())
    except OSError as problem:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"cannot read {path}: {problem.strerror}") from None
    except (UnicodeDecodeError, json_format.ParseError, DecodeError) as problem:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{path} is no saved call: {problem}") from None
    if not response.call.call_id:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{path} is no saved call; `omniflow call save` writes one")
    return response


# --- replays ------------------------------------------------------------------------------------------------------------


def plan_of(call: inspection_pb2.CallInspection) -> GraphPlan:
    """The plan of the call's graph. Raises InvalidGraphError when this version cannot run it."""
    return plan_graph(graph_spec_from_proto(call.graph))


def replay_of(call: inspection_pb2.CallInspection, plan: GraphPlan) -> Replay:
    """A replay that stands before the first event."""
    options = {field.name: value for field, value in call.options.ListFields()}
    return Replay(plan, options)
