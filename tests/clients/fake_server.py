"""A small real server of the graph service with scripted calls, for tests of the client.

    server.script("echo", echo)        # async def echo(call: FakeCall) -> AsyncIterator[GraphEvent without sequence]
    server.faults.append(Fault(after=3, code=grpc.StatusCode.UNAVAILABLE))   # how the next stream ends early

It keeps a log per call, so that streams can be resumed, joins calls by request id, spools uploads, and records what it
was asked. As a program (`python fake_server.py`) it serves the built-in scripts and prints its port.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from omniflow.codec.common import payload_of, split_value, value_from_proto, value_to_proto, value_with_payload
from omniflow.codec.error import status_to_proto, status_to_trailers
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2, graph_service_pb2_grpc
from omniflow.values import Value
from omniflow.workflow.v1 import graph_spec_pb2, workflow_service_pb2, workflow_service_pb2_grpc
from omniflow_core.errors import CODE_OF, ErrorInfo, Reason, Violation

GraphEvent = graph_event_pb2.GraphEvent
Script = Callable[["FakeCall"], AsyncIterator[GraphEvent]]


@dataclass
class Fault:
    """How a stream ends before its call does."""

    after: int = 0
    """Events that it still carries."""
    code: grpc.StatusCode | None = None
    """None: the stream ends with OK."""
    details: str = ""
    info: ErrorInfo | None = None
    """States an error of the platform instead of `code`."""
    loses: int = 0
    """Then skips so many events instead of ending."""
    repeats: int = 0
    """Then sends so many of the last events again instead of ending."""


@dataclass
class FakeCall:
    """A call and its log."""

    call_id: str
    graph: str
    spec: graph_service_pb2.CallSpec
    log: list[GraphEvent] = field(default_factory=list)
    first_kept: int = 1
    pushed: list[graph_service_pb2.StreamInput] = field(default_factory=list)
    tool_results: dict[str, value_pb2.Value] = field(default_factory=dict)
    uploads: dict[int, bytearray] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    credits: list[int] = field(default_factory=list)
    is_cancelled: bool = False
    streams: int = 0

    @property
    def is_ended(self) -> bool:
        return bool(self.log) and self.log[-1].WhichOneof("event") in ("finished", "failed")

    def has_beyond(self, position: int) -> bool:
        return len(self.log) > position

    def has_pushed_beyond(self, position: int) -> bool:
        return len(self.pushed) > position

    async def append(self, event: GraphEvent, *, is_logged: bool = True) -> None:
        """Adds an event to the log; a heartbeat is not counted."""
        if is_logged and event.WhichOneof("event") != "heartbeat":
            event.sequence = sum(1 for logged in self.log if logged.sequence) + 1
        event.call_key = self.spec.call_key
        self.log.append(event)
        await self.notify()

    async def notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds after a change of the call."""
        async with self.changed:
            await self.changed.wait_for(condition)

    async def input(self, name: str) -> Value:
        """An input, after its upload."""
        return await self.decoded(self.spec.inputs[name])

    async def decoded(self, message: value_pb2.Value) -> Value:
        payload = payload_of(message)
        if payload is None or payload.WhichOneof("place") != "chunked":
            return value_from_proto(message)
        announced = payload.chunked
        await self.until(lambda: len(self.uploads.get(announced.transfer_id, b"")) == announced.total_bytes)
        return value_with_payload(message, bytes(self.uploads[announced.transfer_id]))

    def spool(self, chunk: tensor_pb2.PayloadChunk) -> None:
        """Takes a piece; those of a repeated start have arrived before."""
        spooled = self.uploads.setdefault(chunk.transfer_id, bytearray())
        if chunk.offset_bytes == len(spooled):
            spooled.extend(chunk.data)


def output(field_name: str, value: Value, path: Iterable[int] = (0,)) -> GraphEvent:
    return GraphEvent(node="node", field=field_name, origin_path=path, value=value_to_proto(value))


def chunked_output(field_name: str, value: Value, transfer_id: int, piece_bytes: int = 262_144) -> Iterable[GraphEvent]:
    message, data = split_value(value)
    payload = payload_of(message)
    assert data is not None
    assert payload is not None
    payload.chunked.transfer_id = transfer_id
    payload.chunked.total_bytes = len(data)
    yield GraphEvent(node="node", field=field_name, value=message)
    for offset in range(0, len(data), piece_bytes):
        piece = bytes(data[offset : offset + piece_bytes])
        chunk = tensor_pb2.PayloadChunk(
            transfer_id=transfer_id, offset_bytes=offset, data=piece, last=offset + piece_bytes >= len(data)
        )
        yield GraphEvent(chunk=chunk)


def finished(**usage: int) -> GraphEvent:
    return GraphEvent(
        finished=graph_event_pb2.CallFinished(
            reason=graph_event_pb2.FINISH_REASON_STOP, usage=graph_event_pb2.Usage(**usage)
        )
    )


def failed(reason: Reason, message: str, *violations: Violation) -> GraphEvent:
    info = ErrorInfo(reason=reason, message=message, violations=violations)
    return GraphEvent(failed=graph_event_pb2.CallFailed(status=status_to_proto(info)))


class FakeServer:
    """The server; `async with` starts it, on any free port unless one is given."""

    def __init__(self, *, port: int = 0) -> None:
        self.port = port
        self.faults: deque[Fault] = deque()
        self.calls: dict[str, FakeCall] = {}
        self.cancels: list[graph_service_pb2.CancelCallRequest] = []
        self.requests: Counter[str] = Counter()
        self.metadata: list[dict[str, str]] = []
        self.largest_message_bytes = 0
        self.active_rpcs = 0
        self.frame_events = 64
        self.is_silent_on_cancel = False
        self.refused_resumes: dict[str, ErrorInfo] = {}
        self.graph_specs: dict[str, graph_spec_pb2.GraphSpec] = {}
        self._scripts: dict[str, Script] = {}
        self._producers: set[asyncio.Task[None]] = set()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def script(self, graph: str, script: Script) -> None:
        self._scripts[f"graphs/{graph}"] = script

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_graphs: Any = graph_service_pb2_grpc.add_GraphServiceServicer_to_server
        add_graphs(_Graphs(self), self._server)
        add_workflows: Any = workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server
        add_workflows(_Workflows(self), self._server)
        self.health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        self.port = self._server.add_insecure_port(self.target)
        await self._server.start()
        await self.health.set("", health_pb2.HealthCheckResponse.SERVING)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)
        for producer in list(self._producers):
            producer.cancel()
        if self._producers:
            await asyncio.wait(self._producers)

    async def until(self, condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
        """Returns when the condition holds; for what the server learns some time after the client has done it."""
        async with asyncio.timeout(timeout_s):
            while not condition():  # it may be about anything, such as a counter
                await asyncio.sleep(0.005)

    # What the servicers share.

    def saw(self, method: str, context: Any) -> None:
        self.requests[method] += 1
        self.metadata.append(dict(context.invocation_metadata() or ()))

    async def start(self, graph: str, spec: graph_service_pb2.CallSpec, context: Any) -> FakeCall:
        """A new call, or the one with the same request id."""
        for call in self.calls.values():
            if spec.request_id and call.spec.request_id == spec.request_id:
                return call
        if graph not in self._scripts:
            await refuse(context, ErrorInfo(reason=Reason.UNKNOWN_GRAPH, message=f"no graph {graph}"))
        call = FakeCall(f"call-{len(self.calls) + 1}", graph, spec)
        self.calls[call.call_id] = call
        task = asyncio.get_running_loop().create_task(self._produce(call))
        self._producers.add(task)
        task.add_done_callback(self._producers.discard)
        return call

    async def _produce(self, call: FakeCall) -> None:
        accepted = graph_event_pb2.CallAccepted(call_id=call.call_id, resume_token=f"token {call.call_id}")
        accepted.resume_expire_time.FromSeconds(2_000_000_000)
        await call.append(GraphEvent(accepted=accepted))
        await call.append(GraphEvent(started=graph_event_pb2.CallStarted()))
        async for event in self._scripts[call.graph](call):
            if call.is_ended:
                return
            await call.append(event)
            if event.WhichOneof("event") in ("finished", "failed"):
                return

    async def cancel(self, call: FakeCall) -> bool:
        if call.is_ended:
            return False
        call.is_cancelled = True
        await call.append(failed(Reason.CALL_CANCELLED, "the call was cancelled"))
        return True

    async def follow(self, call: FakeCall, after_sequence: int, context: Any) -> AsyncIterator[list[GraphEvent]]:
        """The events of a call in frames, until its end or the next fault."""
        fault = self.faults.popleft() if self.faults else None
        if after_sequence + 1 < call.first_kept:
            info = ErrorInfo(
                reason=Reason.EVENTS_TRIMMED,
                message="trimmed",
                metadata={"first_kept_sequence": str(call.first_kept)},
            )
            await refuse(context, info)
        call.streams += 1
        position = next(
            (index for index, event in enumerate(call.log) if event.sequence > after_sequence), len(call.log)
        )
        while True:
            room = fault.after if fault is not None else self.frame_events
            frame = call.log[position : position + min(room, self.frame_events)]
            if frame:
                position += len(frame)
                yield frame
            if fault is not None:
                fault.after -= len(frame)
                if fault.after == 0:
                    if not (fault.loses or fault.repeats):
                        await end_with(fault, context)
                        return
                    await call.until(partial(call.has_beyond, position + fault.loses))
                    position, fault = position + fault.loses - fault.repeats, None
            if position == len(call.log):
                if call.is_ended:
                    return
                await call.until(partial(call.has_beyond, position))


async def refuse(context: Any, info: ErrorInfo) -> None:
    """Fails the RPC with an error of the platform."""
    code = next(code for code in grpc.StatusCode if code.value[0] == CODE_OF[info.reason])
    await context.abort(code, info.message, trailing_metadata=status_to_trailers(info))


async def end_with(fault: Fault, context: Any) -> None:
    if fault.info is not None:
        await refuse(context, fault.info)
    if fault.code is not None:
        await context.abort(fault.code, fault.details)


class _Graphs(graph_service_pb2_grpc.GraphServiceServicer):
    def __init__(self, server: FakeServer) -> None:
        self.server = server

    async def StreamCall(self, request: Any, context: Any) -> AsyncIterator[Any]:
        server = self.server
        server.saw("StreamCall", context)
        server.largest_message_bytes = max(server.largest_message_bytes, request.ByteSize())
        server.active_rpcs += 1
        try:
            call = await server.start(request.graph, request.call, context)
            async for events in server.follow(call, 0, context):
                yield graph_service_pb2.StreamCallResponse(events=events)
        finally:
            server.active_rpcs -= 1

    async def ResumeCall(self, request: Any, context: Any) -> AsyncIterator[Any]:
        server = self.server
        server.saw("ResumeCall", context)
        server.active_rpcs += 1
        try:
            call = server.calls.get(request.resume_token.removeprefix("token "))
            if call is None:
                await refuse(context, ErrorInfo(reason=Reason.UNKNOWN_CALL, message="no such call"))
                return
            async for events in server.follow(call, request.after_sequence, context):
                yield graph_service_pb2.ResumeCallResponse(events=events)
        finally:
            server.active_rpcs -= 1

    async def ConverseCall(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        server = self.server
        server.saw("ConverseCall", context)
        server.active_rpcs += 1
        conversation = _FakeConversation(server, context)
        try:
            async for events in conversation.serve(requests):
                yield graph_service_pb2.ConverseCallResponse(events=events)
        finally:
            conversation.close()
            server.active_rpcs -= 1

    async def CancelCall(self, request: Any, context: Any) -> Any:
        server = self.server
        server.saw("CancelCall", context)
        server.cancels.append(request)
        if server.is_silent_on_cancel:
            await asyncio.Event().wait()
        for call in server.calls.values():
            if request.call_id == call.call_id or (not request.call_id and request.request_id == call.spec.request_id):
                return graph_service_pb2.CancelCallResponse(is_cancelled=await server.cancel(call))
        return graph_service_pb2.CancelCallResponse()

    async def GetCall(self, request: Any, context: Any) -> Any:
        self.server.saw("GetCall", context)
        call = self.server.calls.get(request.call_id)
        if call is None:
            await refuse(context, ErrorInfo(reason=Reason.UNKNOWN_CALL, message="no such call"))
            return None
        state = graph_service_pb2.CALL_STATE_FINISHED if call.is_ended else graph_service_pb2.CALL_STATE_RUNNING
        return graph_service_pb2.GetCallResponse(
            state=state, last_sequence=len(call.log), first_kept_sequence=call.first_kept, graph=call.graph
        )


class _FakeConversation:
    """One ConverseCall stream: a follower per call puts its frames into one queue."""

    def __init__(self, server: FakeServer, context: Any) -> None:
        self._server = server
        self._context = context
        self._frames: asyncio.Queue[list[GraphEvent] | Exception | None] = asyncio.Queue()
        self._calls: dict[str, FakeCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = 0
        self._is_half_closed = False

    async def serve(self, requests: Any) -> AsyncIterator[list[GraphEvent]]:
        self._spawn(self._receive(requests))
        while (item := await self._frames.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._frames.put_nowait(task.exception())  # type: ignore[arg-type] # an abort of the RPC

    async def _receive(self, requests: Any) -> None:
        async for request in requests:
            self._server.largest_message_bytes = max(self._server.largest_message_bytes, request.ByteSize())
            for message in request.messages:
                await self._handle(message)
        self._is_half_closed = True
        self._finish_if_done()

    async def _handle(self, message: Any) -> None:
        key, kind = message.call_key, message.WhichOneof("message")
        if kind == "start":
            message.start.call.call_key = key
            self._follow(key, await self._server.start(message.start.graph, message.start.call, self._context), 0)
        elif kind == "resume":
            self._server.requests["resume"] += 1
            call_id = message.resume.resume_token.removeprefix("token ")
            if call_id in self._server.refused_resumes:
                status = status_to_proto(self._server.refused_resumes[call_id])
                refusal = graph_event_pb2.CallFailed(status=status)
                self._frames.put_nowait([GraphEvent(call_key=key, sequence=1, failed=refusal)])
            else:
                self._follow(key, self._server.calls[call_id], message.resume.after_sequence)
        elif key in self._calls:
            await self._add(self._calls[key], kind, message)

    async def _add(self, call: FakeCall, kind: str, message: Any) -> None:
        if kind == "chunk":
            call.spool(message.chunk)
        elif kind == "credit":
            call.credits.append(message.credit.size_bytes)
        elif kind == "cancel":
            await self._server.cancel(call)
        elif kind == "input":
            call.pushed.append(message.input)
        elif kind == "tool_result":
            call.tool_results[message.tool_result.tool_call_id] = message.tool_result.value
        await call.notify()

    def _follow(self, key: str, call: FakeCall, after_sequence: int) -> None:
        self._calls[key] = call
        self._open += 1
        self._spawn(self._copy(call, after_sequence))

    async def _copy(self, call: FakeCall, after_sequence: int) -> None:
        async for events in self._server.follow(call, after_sequence, self._context):
            await self._frames.put(events)
        if not call.is_ended:
            await self._frames.put(None)
        self._open -= 1
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._is_half_closed and self._open == 0:
            self._frames.put_nowait(None)


class _Workflows(workflow_service_pb2_grpc.WorkflowServiceServicer):
    def __init__(self, server: FakeServer) -> None:
        self.server = server

    async def ValidateGraph(self, request: Any, context: Any) -> Any:
        response = workflow_service_pb2.ValidateGraphResponse()
        if not request.graph.nodes:
            response.diagnostics.add(reason="UNREACHABLE", field="nodes", message="no node", fix="add one")
        return response

    async def ApplyGraph(self, request: Any, context: Any) -> Any:
        if not request.graph.nodes:
            info = ErrorInfo(
                reason=Reason.INVALID_GRAPH,
                message="1 finding",
                violations=(Violation(field="nodes", description="no node"),),
            )
            await refuse(context, info)
        request.graph.revision = "r1"
        self.server.graph_specs[request.graph.name] = request.graph
        return workflow_service_pb2.ApplyGraphResponse(graph=request.graph)

    async def GetGraph(self, request: Any, context: Any) -> Any:
        spec = self.server.graph_specs.get(request.name)
        if spec is None:
            await refuse(context, ErrorInfo(reason=Reason.UNKNOWN_GRAPH, message=f"no graph {request.name}"))
        return workflow_service_pb2.GetGraphResponse(graph=spec)

    async def ListGraphs(self, request: Any, context: Any) -> Any:
        names = sorted(self.server.graph_specs)
        first = int(request.page_token or 0)
        last = first + 1  # pages of one, so that clients have to turn them
        return workflow_service_pb2.ListGraphsResponse(
            graphs=[self.server.graph_specs[name] for name in names[first:last]],
            next_page_token=str(last) if last < len(names) else "",
        )

    async def ExplainGraph(self, request: Any, context: Any) -> Any:
        return workflow_service_pb2.ExplainGraphResponse(text=f"plan of {request.name or request.graph.name}")


# Scripts.


async def echo(call: FakeCall) -> AsyncIterator[GraphEvent]:
    """Gives the input `text` back, letter by letter."""
    text = await call.input("text")
    assert isinstance(text, str)
    for index, letter in enumerate(text):
        yield output("text", letter, (index,))
    yield finished(output_tokens=len(text))


async def endless(call: FakeCall) -> AsyncIterator[GraphEvent]:
    """Counts until it is cancelled."""
    number = 0
    while True:
        yield output("text", str(number), (number,))
        number += 1
        await asyncio.sleep(0.001)


async def _serve_forever() -> None:
    async with FakeServer() as server:
        server.script("echo", echo)
        server.script("endless", endless)
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the parent is gone
        sys.stdout.write(f"{len(server.cancels)} {server.active_rpcs}\n")


if __name__ == "__main__":
    asyncio.run(_serve_forever())
