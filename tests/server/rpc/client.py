"""Shorthands over the generated stubs, with a client's default options."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any, Self

import grpc
import grpc.aio
import pytest

from omniflow.codec.error import error_from_rpc
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2_grpc
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow_core.errors import OmniFlowError
from tests.server.control.planes import spec_of

Event = graph_event_pb2.GraphEvent
CHUNK_BYTES = 256 * 1024


class EventReader:
    """Events of one stream, one by one; `error` is how it ended."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self._queued: list[Event] = []
        self.message_count = 0

    async def next(self) -> Event | None:
        """The next event; None at the end. Raises OmniFlowError for the stream's own."""
        while not self._queued:
            try:
                message = await self.call.read()
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error) from None
            if message is grpc.aio.EOF:
                return None
            self.message_count += 1
            self._queued.extend(message.events)
        return self._queued.pop(0)

    async def expect(self, kind: str) -> Event:
        """The next event, heartbeats aside, which must be of this kind."""
        event = await self.next()
        while event is not None and event.WhichOneof("event") == "heartbeat" and kind != "heartbeat":
            event = await self.next()
        assert event is not None
        assert event.WhichOneof("event") == kind, event
        return event

    async def rest(self) -> tuple[list[Event], OmniFlowError | None]:
        """All that comes, and the error that ends the stream."""
        found: list[Event] = []
        try:
            while (event := await self.next()) is not None:
                found.append(event)
        except OmniFlowError as error:
            return found, error
        return found, None


class Conversation(EventReader):
    """A ConverseCall stream."""

    async def send(self, *messages: pb.ConverseMessage) -> None:
        await self.call.write(pb.ConverseCallRequest(messages=messages))

    async def start(self, key: str, graph: str, *, open_inputs: str = "", inputs: Any = None, **fields: Any) -> None:
        call = spec_of(open_inputs=open_inputs, inputs=inputs, **fields)
        await self.send(message(key, start=pb.StartCall(graph=f"graphs/{graph}", call=call)))

    async def close(self) -> None:
        await self.call.done_writing()

    async def by_key(self, *keys: str) -> dict[str, list[Event]]:
        """Events until each of the keys has its terminal one; of these keys alone."""
        found: dict[str, list[Event]] = {key: [] for key in keys}
        while not all(events and is_terminal(events[-1]) for events in found.values()):
            event = await self.next()
            assert event is not None, "the stream ended early"
            found[event.call_key].append(event)
        return found


class GraphClient:
    """A client of the graph service."""

    def __init__(self, channel: grpc.aio.Channel, *, tenant: str = "") -> None:
        self.channel = channel
        self.stub = graph_service_pb2_grpc.GraphServiceStub(channel)
        self._metadata = (("x-omniflow-tenant", tenant),) if tenant else ()

    def of(self, tenant: str) -> Self:
        """The same for another tenant."""
        return type(self)(self.channel, tenant=tenant)

    def stream(self, graph: str, *, open_inputs: str = "", inputs: Any = None, **fields: Any) -> EventReader:
        call = spec_of(open_inputs=open_inputs, inputs=inputs, **fields)
        return EventReader(
            self.stub.StreamCall(pb.StreamCallRequest(graph=f"graphs/{graph}", call=call), metadata=self._metadata)
        )

    def resume(self, token: str, after: int) -> EventReader:
        request = pb.ResumeCallRequest(resume_token=token, after_sequence=after)
        return EventReader(self.stub.ResumeCall(request, metadata=self._metadata))

    @contextlib.asynccontextmanager
    async def converse(self) -> AsyncIterator[Conversation]:
        call = self.stub.ConverseCall(metadata=self._metadata)
        try:
            yield Conversation(call)
        finally:
            call.cancel()

    async def run(self, graph: str, *, inputs: Any = None, **fields: Any) -> pb.RunCallResponse:
        call = spec_of(inputs=inputs, **fields)
        request = pb.RunCallRequest(graph=f"graphs/{graph}", call=call)
        return await self._unary(self.stub.RunCall, request)  # type: ignore[no-any-return]

    async def push(self, call_id: str, ordinal: int, **addition: Any) -> int:
        request = pb.PushInputRequest(call_id=call_id, ordinal=ordinal, **addition)
        return int((await self._unary(self.stub.PushInput, request)).accepted_ordinal)

    async def get(self, call_id: str) -> pb.GetCallResponse:
        return await self._unary(self.stub.GetCall, pb.GetCallRequest(call_id=call_id))  # type: ignore[no-any-return]

    async def inspect(self, call_id: str) -> pb.InspectCallResponse:
        return await self._unary(self.stub.InspectCall, pb.InspectCallRequest(call_id=call_id))  # type: ignore[no-any-return]

    async def cancel(self, call_id: str = "", *, request_id: str = "", reason: str = "") -> bool:
        request = pb.CancelCallRequest(call_id=call_id, request_id=request_id, reason=reason)
        return bool((await self._unary(self.stub.CancelCall, request)).is_cancelled)

    async def _unary(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, metadata=self._metadata, timeout=30)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from None


def message(key: str, **kind: Any) -> pb.ConverseMessage:
    return pb.ConverseMessage(call_key=key, **kind)


def stream_input(field: str, value: value_pb2.Value | None = None, *, is_last: bool = False) -> pb.StreamInput:
    made = pb.StreamInput(field=field, is_last=is_last)
    if value is not None:
        made.value.CopyFrom(value)
    return made


def text(content: str) -> value_pb2.Value:
    return value_pb2.Value(text=content)


def is_terminal(event: Event) -> bool:
    return event.WhichOneof("event") in ("finished", "failed")


def texts(events: Iterable[Event], field: str = "text") -> list[str]:
    return [e.value.text for e in events if e.WhichOneof("event") == "value" and e.field == field]


def chunks_of(data: bytes, transfer_id: int = 1) -> list[tensor_pb2.PayloadChunk]:
    """The pieces of a payload."""
    starts = range(0, len(data), CHUNK_BYTES)
    return [
        tensor_pb2.PayloadChunk(
            transfer_id=transfer_id,
            offset_bytes=start,
            data=data[start : start + CHUNK_BYTES],
            last=start + CHUNK_BYTES >= len(data),
        )
        for start in starts
    ]


def tensor_announced(total_bytes: int, transfer_id: int = 1) -> value_pb2.Value:
    """A byte tensor whose elements follow."""
    value = value_pb2.Value()
    value.tensor.spec.element_type = tensor_pb2.ELEMENT_TYPE_UINT8
    value.tensor.spec.shape.append(total_bytes)
    value.tensor.payload.chunked.transfer_id = transfer_id
    value.tensor.payload.chunked.total_bytes = total_bytes
    return value


def payload_in(events: Iterable[Event]) -> bytes:
    """The bytes of the chunks among the events."""
    return b"".join(event.chunk.data for event in events if event.WhichOneof("event") == "chunk")


async def within(limit_s: float, awaitable: Any) -> Any:
    async with asyncio.timeout(limit_s):
        return await awaitable


def faults_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Errors in the server's log, and in that of gRPC for its handlers. Pollers of gRPC complain of other tests' loops."""
    names = ("omniflow", "grpc")
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR and r.name.startswith(names)]
