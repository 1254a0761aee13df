"""GraphService: translates between its messages and the call table."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.rpc_errors import ServicerContext, abort
from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_server.control.call import Call
from omniflow_server.control.calls import CallTable, KnownCall
from omniflow_server.rpc.collected import RUN_LIMIT_BYTES, Collected
from omniflow_server.rpc.conversation import Conversation, no_tool_call
from omniflow_server.rpc.event_stream import EventStream
from omniflow_server.rpc.inspection import inspection_to_proto, timestamp
from omniflow_server.rpc.paging import page
from omniflow_server.rpc.principal import tenant_of
from omniflow_server.rpc.validate import validate

SERVICE = "omniflow.graph.v1.GraphService"


class GraphServicer:
    """The methods; event streams write their own, already serialized frames."""

    def __init__(self, calls: CallTable) -> None:
        self._calls = calls

    def handler(self) -> grpc.GenericRpcHandler:
        """What the server routes to. Streams of events have no serializer: see `EventStream`."""
        unary = grpc.unary_unary_rpc_method_handler
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "StreamCall": grpc.unary_stream_rpc_method_handler(self.StreamCall, pb.StreamCallRequest.FromString, None),
            "ConverseCall": grpc.stream_stream_rpc_method_handler(
                self.ConverseCall, pb.ConverseCallRequest.FromString, None
            ),
            "ResumeCall": grpc.unary_stream_rpc_method_handler(self.ResumeCall, pb.ResumeCallRequest.FromString, None),
            "RunCall": unary(self.RunCall, pb.RunCallRequest.FromString, pb.RunCallResponse.SerializeToString),
            "PushInput": unary(self.PushInput, pb.PushInputRequest.FromString, pb.PushInputResponse.SerializeToString),
            "GetCall": unary(self.GetCall, pb.GetCallRequest.FromString, pb.GetCallResponse.SerializeToString),
            "ListCalls": unary(self.ListCalls, pb.ListCallsRequest.FromString, pb.ListCallsResponse.SerializeToString),
            "InspectCall": unary(
                self.InspectCall, pb.InspectCallRequest.FromString, pb.InspectCallResponse.SerializeToString
            ),
            "CancelCall": unary(
                self.CancelCall, pb.CancelCallRequest.FromString, pb.CancelCallResponse.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def StreamCall(self, request: pb.StreamCallRequest, context: ServicerContext) -> None:
        validate(request)
        call, is_replayed = self._calls.accept(request.graph, request.call, tenant=tenant_of(context))
        await self._stream_one(call, context, is_replayed=is_replayed)

    async def ResumeCall(self, request: pb.ResumeCallRequest, context: ServicerContext) -> None:
        validate(request)
        call = self._calls.resume(request.resume_token, tenant=tenant_of(context))
        await self._stream_one(call, context, after_sequence=request.after_sequence)

    async def _stream_one(
        self, call: Call, context: ServicerContext, *, after_sequence: int = 0, is_replayed: bool = False
    ) -> None:
        stream = EventStream(context, self._calls)
        stream.attach(call, after_sequence=after_sequence, is_replayed=is_replayed)
        stream.finish()
        await stream.run()
        if call.error is not None:
            await abort(context, call.error)

    async def ConverseCall(self, requests: Any, context: ServicerContext) -> None:
        conversation = Conversation(self._calls, context, tenant_of(context))
        await conversation.run(requests)

    async def RunCall(self, request: pb.RunCallRequest, context: ServicerContext) -> pb.RunCallResponse:
        validate(request)
        call, _ = self._calls.accept(request.graph, request.call, tenant=tenant_of(context))
        changed = asyncio.Event()
        reader = self._calls.attach(call, 0, lambda _: changed.set())
        collected = Collected()
        try:
            while not reader.is_done:
                if not reader.has_more:
                    changed.clear()
                    await changed.wait()
                for fragment in reader.take(RUN_LIMIT_BYTES):
                    for event in pb.StreamCallResponse.FromString(fragment).events:
                        collected.add(event)
                if collected.size_bytes > RUN_LIMIT_BYTES:
                    raise _too_large(collected.size_bytes)
        except OmniFlowError as error:
            call.cancel_with(error.info)
            raise
        finally:
            self._calls.detach(call, reader)
        if call.error is not None:
            raise OmniFlowError.of(call.error)
        return collected.response(call.call_id)

    async def PushInput(self, request: pb.PushInputRequest, context: ServicerContext) -> pb.PushInputResponse:
        validate(request)
        tenant = tenant_of(context)
        call = self._calls.find(request.call_id, tenant=tenant)
        if request.ordinal <= call.pushed_ordinal:
            return pb.PushInputResponse(accepted_ordinal=call.pushed_ordinal)
        if request.ordinal != call.pushed_ordinal + 1:
            raise invalid_field("ordinal", f"{call.pushed_ordinal + 1} comes next, not {request.ordinal}")
        match request.WhichOneof("addition"):
            case "input":
                self._calls.push_input(request.call_id, request.input, tenant=tenant, path="input")
            case "chunk":
                self._calls.add_chunk(request.call_id, request.chunk, tenant=tenant, path="chunk")
            case "tool_result":
                raise no_tool_call("tool_result.tool_call_id", request.tool_result.tool_call_id)
            case _:
                raise invalid_field("addition", "give input, tool_result or chunk")
        call.pushed_ordinal = request.ordinal
        return pb.PushInputResponse(accepted_ordinal=request.ordinal)

    async def GetCall(self, request: pb.GetCallRequest, context: ServicerContext) -> pb.GetCallResponse:
        validate(request)
        call = self._calls.find(request.call_id, tenant=tenant_of(context))
        return pb.GetCallResponse(
            state=call.state,
            last_sequence=call.log.last,
            first_kept_sequence=call.log.first_kept,
            graph=call.plan.spec.name,
            create_time=timestamp(call.create_time_s),
            is_attached=call.log.reader_count > 0,
            active_activations=call.scheduler.active_count,
        )

    async def ListCalls(self, request: pb.ListCallsRequest, context: ServicerContext) -> pb.ListCallsResponse:
        validate(request)
        known = self._calls.known(tenant=tenant_of(context))
        names, next_token = page(sorted(known), request.page_size, request.page_token)
        return pb.ListCallsResponse(calls=[_summary(known[name]) for name in names], next_page_token=next_token)

    async def InspectCall(self, request: pb.InspectCallRequest, context: ServicerContext) -> pb.InspectCallResponse:
        validate(request)
        known = self._calls.find_known(request.call_id, tenant=tenant_of(context))
        inspection = inspection_to_proto(known.call, known.graph, self._calls.scheduler_options)
        return pb.InspectCallResponse(state=known.call.state, call=inspection)

    async def CancelCall(self, request: pb.CancelCallRequest, context: ServicerContext) -> pb.CancelCallResponse:
        validate(request)
        if not request.call_id and not request.request_id:
            raise invalid_field("call_id", "give call_id or request_id")
        is_cancelled = self._calls.cancel(
            call_id=request.call_id, request_id=request.request_id, tenant=tenant_of(context), reason=request.reason
        )
        return pb.CancelCallResponse(is_cancelled=is_cancelled)


def _summary(known: KnownCall) -> pb.CallSummary:
    call = known.call
    return pb.CallSummary(
        call_id=call.call_id,
        graph=call.plan.spec.name,
        state=call.state,
        create_time=timestamp(call.create_time_s),
        end_time=timestamp(known.end_unix_s) if known.end_unix_s is not None else None,
        session=call.spec.session,
        active_activations=call.scheduler.active_count,
    )


def _too_large(size_bytes: int) -> OmniFlowError:
    return OmniFlowError(
        Reason.MESSAGE_TOO_LARGE,
        f"The outputs are larger than the {RUN_LIMIT_BYTES} bytes that RunCall returns; use StreamCall.",
        metadata={"size_bytes": str(size_bytes)},
    )
