"""GraphService: translates between its messages and the call table, here or in the control plane that owns the call."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.rpc_errors import ServicerContext, abort
from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_server.control.call import Call
from omniflow_server.control.calls import CallTable, KnownCall, owner_lost
from omniflow_server.control.placement import Here, Placement
from omniflow_server.data.metadata.port import Owner
from omniflow_server.rpc.collected import RUN_LIMIT_BYTES, Collected
from omniflow_server.rpc.conversation import Conversation, no_tool_call
from omniflow_server.rpc.event_stream import EventStream
from omniflow_server.rpc.forwarding import SERVICE, Forwarding, NotAcceptedError, NotSaidError, is_forwarded, terminal
from omniflow_server.rpc.inspection import inspection_to_proto, timestamp
from omniflow_server.rpc.paging import page
from omniflow_server.rpc.principal import tenant_of
from omniflow_server.rpc.validate import validate


class GraphServicer:
    """The methods; event streams write their own, already serialized frames."""

    def __init__(self, calls: CallTable, placement: Placement, forwarding: Forwarding) -> None:
        self._calls = calls
        self._placement = placement
        self._forwarding = forwarding

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
        tenant = tenant_of(context)
        placed = self._placement.at_once(request.graph, request.call, tenant)
        if placed is not None:
            await self._stream_here(request, context, tenant, placed)
            return

        async def here(placed: Here) -> None:
            await self._stream_here(request, context, tenant, placed)

        async def elsewhere(owner: Owner) -> None:
            await self._forwarding.stream(owner, "StreamCall", request, context)

        await self._forwarding.placed(request, context, here, elsewhere)

    async def _stream_here(
        self, request: pb.StreamCallRequest, context: ServicerContext, tenant: str, placed: Here
    ) -> None:
        call, is_replayed = self._accept(request, tenant, placed)
        await self._stream_one(call, context, is_replayed=is_replayed)

    def _accept(
        self, request: pb.StreamCallRequest | pb.RunCallRequest, tenant: str, placed: Here
    ) -> tuple[Call, bool]:
        try:
            return self._calls.accept(
                request.graph, request.call, tenant=tenant, call_id=placed.call_id, fence=placed.fence
            )
        except OmniFlowError as error:
            if not placed.call_id:
                raise  # nothing was claimed for it
            raise NotAcceptedError(error) from None

    async def ResumeCall(self, request: pb.ResumeCallRequest, context: ServicerContext) -> None:
        validate(request)
        tenant = tenant_of(context)
        call_id = self._calls.id_in_token(request.resume_token, tenant=tenant)
        owner = self._owner_of(call_id, context)
        if owner is not None:
            try:
                await self._forwarding.stream(owner, "ResumeCall", request, context)
                return
            except NotSaidError:
                await self._forwarding.abort_unless_gone(owner, context)
        try:
            call = self._calls.resume(request.resume_token, tenant=tenant)
        except OmniFlowError as error:
            if error.reason is Reason.OWNER_LOST:
                await context.write(terminal(error.info, request.after_sequence + 1, ""))
            raise
        await self._stream_one(call, context, after_sequence=request.after_sequence)

    def _owner_of(self, call_id: str, context: ServicerContext) -> Owner | None:
        """The other control plane that is to be asked for a call."""
        return None if is_forwarded(context) else self._placement.owner_of(call_id)

    async def _asked(self, call_id: str, method: str, request: Any, context: ServicerContext) -> bytes | None:
        """The answer of the call's owner, when that is another control plane."""
        owner = self._owner_of(call_id, context)
        if owner is None:
            return None
        try:
            return await self._forwarding.unary(owner, method, request, context)
        except NotSaidError:
            await self._forwarding.abort_unless_gone(owner, context)
            raise owner_lost(call_id) from None

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
        conversation = Conversation(self._calls, self._placement, self._forwarding, context)
        await conversation.run(requests)

    async def RunCall(self, request: pb.RunCallRequest, context: ServicerContext) -> pb.RunCallResponse:
        validate(request)
        tenant = tenant_of(context)
        placed = self._placement.at_once(request.graph, request.call, tenant)
        if placed is not None:
            return await self._run_to_end(self._accept(request, tenant, placed)[0])

        async def here(placed: Here) -> pb.RunCallResponse:
            return await self._run_to_end(self._accept(request, tenant, placed)[0])

        async def elsewhere(owner: Owner) -> pb.RunCallResponse:
            answer = await self._forwarding.unary(owner, "RunCall", request, context)
            return pb.RunCallResponse.FromString(answer)

        answer: pb.RunCallResponse = await self._forwarding.placed(request, context, here, elsewhere)
        return answer

    async def _run_to_end(self, call: Call) -> pb.RunCallResponse:
        """The collected outputs of a call. A failed one raises its error."""
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
        answer = await self._asked(request.call_id, "PushInput", request, context)
        if answer is not None:
            return pb.PushInputResponse.FromString(answer)
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
        answer = await self._asked(request.call_id, "GetCall", request, context)
        if answer is not None:
            return pb.GetCallResponse.FromString(answer)
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
        found = {name: _summary(known) for name, known in self._calls.known(tenant=tenant_of(context)).items()}
        more = False
        for answer in await self._forwarding.all("ListCalls", request, context):
            others = pb.ListCallsResponse.FromString(answer)
            found.update((call.call_id, call) for call in others.calls)
            more = more or bool(others.next_page_token)
        names, next_token = page(sorted(found), request.page_size, request.page_token)
        if more and not next_token and names:
            next_token = names[-1]
        return pb.ListCallsResponse(calls=[found[name] for name in names], next_page_token=next_token)

    async def InspectCall(self, request: pb.InspectCallRequest, context: ServicerContext) -> pb.InspectCallResponse:
        validate(request)
        answer = await self._asked(request.call_id, "InspectCall", request, context)
        if answer is not None:
            return pb.InspectCallResponse.FromString(answer)
        known = self._calls.find_known(request.call_id, tenant=tenant_of(context))
        inspection = inspection_to_proto(known.call, known.graph, self._calls.scheduler_options)
        return pb.InspectCallResponse(state=known.call.state, call=inspection)

    async def CancelCall(self, request: pb.CancelCallRequest, context: ServicerContext) -> pb.CancelCallResponse:
        validate(request)
        if not request.call_id and not request.request_id:
            raise invalid_field("call_id", "give call_id or request_id")
        if not is_forwarded(context) and await self._cancel_elsewhere(request, context):
            return pb.CancelCallResponse(is_cancelled=True)
        is_cancelled = self._calls.cancel(
            call_id=request.call_id, request_id=request.request_id, tenant=tenant_of(context), reason=request.reason
        )
        return pb.CancelCallResponse(is_cancelled=is_cancelled)

    async def _cancel_elsewhere(self, request: pb.CancelCallRequest, context: ServicerContext) -> bool:
        """Whether another control plane has ended the call."""
        owner = self._placement.owner_of(request.call_id) if request.call_id else None
        if owner is None and not request.call_id:
            found = await self._placement.owner_of_request(tenant_of(context), request.request_id)
            owner = found[0] if found is not None else None
        if owner is None:
            return False
        try:
            answer = await self._forwarding.unary(owner, "CancelCall", request, context)
        except NotSaidError:
            await self._forwarding.abort_unless_gone(owner, context)
            return False  # with its owner the call has ended
        return pb.CancelCallResponse.FromString(answer).is_cancelled


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
