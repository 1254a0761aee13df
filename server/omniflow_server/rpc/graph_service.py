"""GraphService: translates between its messages and the call table."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf import timestamp_pb2

from omniflow.codec.common import payload_of
from omniflow.codec.error import status_to_proto
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.rpc_errors import ServicerContext, abort
from omniflow_core.errors import OmniFlowError, Reason, invalid_field
from omniflow_server.control.call import Call
from omniflow_server.control.calls import CallTable
from omniflow_server.control.event_log import LogReader
from omniflow_server.rpc.event_stream import EventStream
from omniflow_server.rpc.principal import tenant_of
from omniflow_server.rpc.validate import validate

SERVICE = "omniflow.graph.v1.GraphService"
PAST_KEYS = 1024
"""Keys of past calls that a conversation remembers."""
RUN_LIMIT_BYTES = 4 * 1024 * 1024 - 64 * 1024
"""Outputs that RunCall collects: what a client takes by default, less room for the rest of the message."""
FRAMING_BYTES = 6
"""What a value in a list costs beside its own bytes, at most."""


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
        collected = _Collected()
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
        return collected.response(call)

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
                raise _no_tool_call("tool_result.tool_call_id", request.tool_result.tool_call_id)
            case _:
                raise invalid_field("addition", "give input, tool_result or chunk")
        call.pushed_ordinal = request.ordinal
        await call.wait_input_room()
        return pb.PushInputResponse(accepted_ordinal=request.ordinal)

    async def GetCall(self, request: pb.GetCallRequest, context: ServicerContext) -> pb.GetCallResponse:
        validate(request)
        call = self._calls.find(request.call_id, tenant=tenant_of(context))
        created = timestamp_pb2.Timestamp()
        created.FromNanoseconds(int(call.create_time_s * 1e9))
        return pb.GetCallResponse(
            state=call.state,
            last_sequence=call.log.last,
            first_kept_sequence=call.log.first_kept,
            graph=call.plan.spec.name,
            create_time=created,
            is_attached=call.log.reader_count > 0,
            active_activations=call.scheduler.active_count,
        )

    async def CancelCall(self, request: pb.CancelCallRequest, context: ServicerContext) -> pb.CancelCallResponse:
        validate(request)
        if not request.call_id and not request.request_id:
            raise invalid_field("call_id", "give call_id or request_id")
        is_cancelled = self._calls.cancel(
            call_id=request.call_id, request_id=request.request_id, tenant=tenant_of(context), reason=request.reason
        )
        return pb.CancelCallResponse(is_cancelled=is_cancelled)


class Conversation:
    """One ConverseCall stream: several calls by client-chosen keys."""

    def __init__(self, calls: CallTable, context: ServicerContext, tenant: str) -> None:
        self._calls = calls
        self._tenant = tenant
        self._stream = EventStream(context, calls, is_shared=True)
        self._by_key: dict[str, tuple[Call, LogReader]] = {}
        self._past: OrderedDict[str, None] = OrderedDict()
        """Keys whose call has ended or was refused: what was sent on their behalf meanwhile is dropped."""
        self._on_message: Mapping[str, Callable[[pb.ConverseMessage, str], None]] = {
            "start": self._start,
            "resume": self._resume,
            "input": self._input,
            "chunk": self._chunk,
            "cancel": self._cancel,
            "credit": self._credit,
            "tool_result": self._tool_result,
        }

    async def run(self, requests: Any) -> None:
        """Until the client has closed its side and every call has ended."""
        reading = asyncio.ensure_future(self._read(requests))
        try:
            await self._stream.run()
        finally:
            reading.cancel()
            await asyncio.wait((reading,))

    async def _read(self, requests: Any) -> None:
        try:
            async for request in requests:
                for index, message in enumerate(request.messages):
                    self._take(message, f"messages[{index}]")
                    known = self._by_key.get(message.call_key)
                    if known is not None and message.HasField("input"):
                        await known[0].wait_input_room()
        except Exception as error:
            self._stream.fail(error)
        else:
            self._stream.finish()

    def _take(self, message: pb.ConverseMessage, path: str) -> None:
        """A message that cannot be taken fails its own call, never other calls; the stream only when no call is meant."""
        kind = message.WhichOneof("message")
        if kind in ("start", "resume"):
            self._past.pop(message.call_key, None)
        elif message.call_key in self._past:
            return
        try:
            validate(message, f"{path}.")
            if kind is None:
                raise invalid_field(f"{path}.message", "no kind of message is set")
            self._on_message[kind](message, f"{path}.{kind}")
        except _AmbiguousKeyError:
            raise
        except OmniFlowError as error:
            self._refuse(message.call_key, kind, error)

    def _refuse(self, key: str, kind: str | None, error: OmniFlowError) -> None:
        known = self._by_key.get(key)
        if known is not None and kind not in ("start", "resume"):
            known[0].cancel_with(error.info)
            return
        self._leave(key)
        event = graph_event_pb2.GraphEvent(call_key=key, sequence=1)
        event.failed.status.CopyFrom(status_to_proto(error.info))
        self._stream.send(event)

    def _leave(self, key: str) -> None:
        self._past[key] = None
        if len(self._past) > PAST_KEYS:
            self._past.popitem(last=False)

    def _start(self, message: pb.ConverseMessage, path: str) -> None:
        self._check_free(message.call_key, path)
        start = message.start
        if start.call.call_key not in ("", message.call_key):
            raise invalid_field(f"{path}.call.call_key", "it differs from the message's call_key")
        start.call.call_key = message.call_key
        call, is_replayed = self._calls.accept(start.graph, start.call, tenant=self._tenant)
        for key in [key for key, (_, reader) in self._by_key.items() if reader.is_done]:
            del self._by_key[key]
            self._leave(key)
        self._by_key[message.call_key] = (call, self._stream.attach(call, is_replayed=is_replayed))

    def _check_free(self, key: str, path: str) -> None:
        known = self._by_key.get(key)
        if known is not None and not known[1].is_done:  # the client may not have seen its end yet
            raise _AmbiguousKeyError(
                Reason.PROTOCOL_VIOLATION, f"{path}: key {key!r} belongs to a call of this stream that has not ended."
            )

    def _resume(self, message: pb.ConverseMessage, path: str) -> None:
        self._check_free(message.call_key, path)
        call = self._calls.resume(message.resume.resume_token, tenant=self._tenant)
        if call.spec.call_key != message.call_key:  # its events carry the key that it was started under
            raise invalid_field(f"{path}.resume_token", f"the call was started under key {call.spec.call_key!r}")
        reader = self._stream.attach(call, after_sequence=message.resume.after_sequence)
        self._by_key[message.call_key] = (call, reader)

    def _input(self, message: pb.ConverseMessage, path: str) -> None:
        call = self._call(message)
        if call.takes_input:  # its end may have crossed the input on the way
            self._calls.push_input(call.call_id, message.input, tenant=self._tenant, path=path)

    def _chunk(self, message: pb.ConverseMessage, path: str) -> None:
        call = self._call(message)
        if call.takes_input:
            self._calls.add_chunk(call.call_id, message.chunk, tenant=self._tenant, path=path)

    def _cancel(self, message: pb.ConverseMessage, path: str) -> None:
        call = self._call(message)
        self._calls.cancel(call_id=call.call_id, request_id="", tenant=self._tenant, reason=message.cancel.reason)

    def _credit(self, message: pb.ConverseMessage, path: str) -> None:
        self._call(message)
        reader = self._by_key[message.call_key][1]
        reader.credit_bytes = (reader.credit_bytes or 0) + message.credit.size_bytes
        if reader.has_more and not reader.is_done:
            reader.notify()

    def _tool_result(self, message: pb.ConverseMessage, path: str) -> None:
        self._call(message)
        raise _no_tool_call(f"{path}.tool_call_id", message.tool_result.tool_call_id)

    def _call(self, message: pb.ConverseMessage) -> Call:
        known = self._by_key.get(message.call_key)
        if known is None:
            raise OmniFlowError(
                Reason.PROTOCOL_VIOLATION, f"No call was started under key {message.call_key!r} on this stream."
            )
        return known[0]


class _AmbiguousKeyError(OmniFlowError):
    """Two calls under one key: events could not be told apart, so the stream ends."""


class _Collected:
    """The outputs of a call that is waited for."""

    def __init__(self) -> None:
        self._values: dict[str, list[value_pb2.Value]] = defaultdict(list)
        self._finished = graph_event_pb2.CallFinished()
        self._transfers: dict[int, tuple[tensor_pb2.Payload, bytearray]] = {}
        self.size_bytes = 0

    def add(self, event: graph_event_pb2.GraphEvent) -> None:
        kind = event.WhichOneof("event")
        if kind == "finished":
            self._finished = event.finished
        elif kind == "chunk":
            self._add_chunk(event.chunk)
        elif kind == "value":
            self._add_value(event.field, event.value)

    def _add_value(self, field: str, value: value_pb2.Value) -> None:
        values = self._values[field]
        self.size_bytes += value.ByteSize()
        if values and _join(values[-1], value):
            return
        self.size_bytes += FRAMING_BYTES
        values.append(value)
        payload = payload_of(value)
        if payload is not None and payload.WhichOneof("place") == "chunked":
            self.size_bytes += payload.chunked.total_bytes
            self._transfers[payload.chunked.transfer_id] = (payload, bytearray())

    def _add_chunk(self, chunk: tensor_pb2.PayloadChunk) -> None:
        payload, data = self._transfers[chunk.transfer_id]
        data += chunk.data
        if chunk.last:
            payload.inline = bytes(data)
            del self._transfers[chunk.transfer_id]

    def response(self, call: Call) -> pb.RunCallResponse:
        response = pb.RunCallResponse(call_id=call.call_id, finished=self._finished)
        for name, values in self._values.items():
            response.outputs[name].values.extend(values)
        return response


def _join(last: value_pb2.Value, value: value_pb2.Value) -> bool:
    """Appends text to text and tokens to tokens; False for everything else."""
    kind = value.WhichOneof("kind")
    if kind != last.WhichOneof("kind"):
        return False
    if kind == "text":
        last.text += value.text
    elif kind == "tokens":
        last.tokens.ids.extend(value.tokens.ids)
        last.tokens.logprobs.extend(value.tokens.logprobs)
        last.tokens.text += value.tokens.text
    return kind in ("text", "tokens")


def _too_large(size_bytes: int) -> OmniFlowError:
    return OmniFlowError(
        Reason.MESSAGE_TOO_LARGE,
        f"The outputs are larger than the {RUN_LIMIT_BYTES} bytes that RunCall returns; use StreamCall.",
        metadata={"size_bytes": str(size_bytes)},
    )


def _no_tool_call(path: str, tool_call_id: str) -> OmniFlowError:
    return invalid_field(path, f"the call has not asked for a tool under {tool_call_id!r}")
