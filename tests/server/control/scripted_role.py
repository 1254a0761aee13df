"""A role server by script: speaks the Execute protocol over gRPC and a lane, and does what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import grpc.aio

from omniflow.codec.common import value_from_proto, value_to_proto
from omniflow.codec.error import status_to_proto
from omniflow.common.v1 import value_pb2
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.role.v1 import role_execution_service_pb2_grpc as pb_grpc
from omniflow.values import Value
from omniflow_core.errors import ErrorInfo, Reason
from tests.roles.running import eventually
from tests.support.pipes import KINDS, Pipe, listen_on_lane

HEARTBEAT_S = 0.5

transport = "grpc"
"""What control planes are to take: gRPC, or the kind of a lane that roles offer then."""


class GrpcPipe:
    """An Execute stream, as bytes."""

    kind = "grpc"

    def __init__(self, context: Any) -> None:
        self.context = context

    async def read(self) -> bytes | None:
        request = await self.context.read()
        return None if request is grpc.aio.EOF else request.SerializeToString()

    async def write(self, message: bytes) -> None:
        await self.context.write(pb.ExecuteResponse.FromString(message))

    async def end(self) -> None:
        """The end of the handler says it."""

    def drop(self) -> None:
        """The server's stop breaks it."""


@dataclass(eq=False)
class Work:
    """An activation that was given to the role."""

    stream: Stream
    handle: int
    start: pb.StartActivation
    acked: int = 0
    cancelled: str | None = None

    @property
    def node(self) -> str:
        return self.start.activation.node

    def input(self, name: str) -> Value:
        """The Python value of an input that came inline."""
        return value_from_proto(self.start.facets[0].fields[name].values[0].value)

    async def accept(self) -> None:
        await self.send(accepted=pb.ActivationAccepted())

    async def give(self, ordinal: int, **fields: Value | value_pb2.Value) -> None:
        message = pb.ActivationYield(ordinal=ordinal)
        for name, value in fields.items():
            message.fields[name].CopyFrom(value if isinstance(value, value_pb2.Value) else value_to_proto(value))
        await self.send(**{"yield": message})

    async def complete(self, yield_count: int = 0, **fields: Any) -> None:
        await self.send(completed=pb.ActivationCompleted(yield_count=yield_count, **fields))

    async def fail(self, reason: Reason = Reason.INTERFACE_FAILED, message: str = "it broke") -> None:
        status = status_to_proto(ErrorInfo(reason=reason, message=message))
        await self.send(failed=pb.ActivationFailed(status=status))

    async def refuse(self, reason: Reason, *, retry_after_s: float | None = None) -> None:
        """Does not take the activation in; another replica may."""
        status = status_to_proto(ErrorInfo(reason=reason, message="not here", retry_after_s=retry_after_s))
        await self.send(failed=pb.ActivationFailed(status=status, is_retryable=True, is_refused=True))

    async def send(self, **result: Any) -> None:
        await self.stream.send(pb.ExecuteResult(handle=self.handle, **result))


@dataclass(eq=False)
class Stream:
    """One transport of a control plane."""

    pipe: Pipe
    hello: pb.ControlHello
    work: dict[int, Work] = field(default_factory=dict)
    exits: dict[int, Work] = field(default_factory=dict)
    """What was told under handles that nothing was started with: those of a pipeline's exit."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def told(self, handle: int) -> Work:
        """What keeps what is told under a handle."""
        return self.work.get(handle) or self.exits.setdefault(handle, Work(self, handle, pb.StartActivation()))

    async def send(self, *results: pb.ExecuteResult) -> None:
        async with self.lock:
            await self.pipe.write(pb.ExecuteResponse(results=results).SerializeToString())


class ScriptedRole(pb_grpc.RoleExecutionServiceServicer):
    """Serves on a socket while its context is open.

    `on_work` is called for each activation; without one the test looks at `work` itself.
    """

    def __init__(
        self, *interfaces: str, role: str = "worker", replica_id: str = "worker-0", life: str = "1", most: int = 0
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="of-role-")
        self.replica = replica_pb2.Replica(
            role=role,
            replica_id=replica_id,
            incarnation_id=life,
            endpoint=f"unix:{self._folder.name}/role.sock",
            interfaces=interfaces,
            state=replica_pb2.REPLICA_STATE_READY,
            protocol_revisions=[1],
            max_activations=most,
        )
        if transport != "grpc":
            self.offer(transport)
        self._lanes = contextlib.AsyncExitStack()
        self.streams: list[Stream] = []
        self.work: list[Work] = []
        self.cancelled_calls: list[str] = []
        self.released_calls: list[str] = []
        self.on_work: Callable[[Work], Any] | None = None
        self.is_silent = False
        """Sends no heartbeats, and answers no hello."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def offer(self, kind: str) -> str:
        """Offers a lane, and listens on it from `listen` on; its address."""
        address = f"{self._folder.name}/{kind}.sock"
        self.replica.lanes.add(kind=kind, address=address)
        return address

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._folder.cleanup()

    async def listen(self) -> None:
        """Serves, also again after `stop`."""
        self._server = grpc.aio.server()
        pb_grpc.add_RoleExecutionServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.replica.endpoint)
        await self._server.start()
        for lane in self.replica.lanes:
            if lane.kind not in KINDS:
                continue
            await self._lanes.enter_async_context(listen_on_lane(lane.kind, lane.address, self.serve))

    async def stop(self) -> None:
        """Ends every stream, as a process that dies."""
        await self._lanes.aclose()
        await self._server.stop(None)

    async def report_load(self, *, running: int, waiting: int) -> None:
        """Tells every control plane what runs and waits here."""
        load = replica_pb2.ReplicaLoad(running=running, waiting=waiting)
        for stream in self.streams:
            await stream.send(pb.ExecuteResult(load=load))

    async def next_work(self, count: int) -> list[Work]:
        """The activations so far, when there are `count`."""
        await eventually(lambda: len(self.work) >= count)
        assert len(self.work) == count
        return self.work

    def of_node(self, node: str) -> list[Work]:
        return [work for work in self.work if work.node == node]

    async def Execute(self, requests: Any, context: Any) -> None:
        await self.serve(GrpcPipe(context))

    async def serve(self, pipe: Pipe) -> None:
        """One transport of a control plane, to its end."""
        stream: Stream | None = None
        beating: asyncio.Task[None] | None = None
        try:
            while (message := await pipe.read()) is not None:
                for command in pb.ExecuteRequest.FromString(message).commands:
                    if command.WhichOneof("command") == "hello":
                        stream = await self._greet(command.hello, pipe)
                        beating = asyncio.create_task(self._beat(stream))
                    else:
                        assert stream is not None, "the hello comes first"
                        self._take(stream, command)
        finally:
            if beating is not None:
                beating.cancel()

    async def _greet(self, hello: pb.ControlHello, pipe: Pipe) -> Stream:
        if hello.replica_incarnation_id != self.replica.incarnation_id:
            await pipe.end()
            raise LookupError("another life")
        stream = Stream(pipe, hello)
        self.streams.append(stream)
        if not self.is_silent:
            await stream.send(pb.ExecuteResult(hello=pb.ReplicaHello(replica=self.replica)))
        return stream

    async def _beat(self, stream: Stream) -> None:
        with contextlib.suppress(Exception):
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                if not self.is_silent:
                    await stream.send(pb.ExecuteResult(heartbeat=pb.StreamHeartbeat()))

    def _take(self, stream: Stream, command: pb.ExecuteCommand) -> None:
        kind = command.WhichOneof("command")
        if kind == "start":
            work = stream.work[command.handle] = Work(stream, command.handle, command.start)
            self.work.append(work)
            if self.on_work is not None:
                task = asyncio.ensure_future(self.on_work(work))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        elif kind == "yield_ack":
            stream.told(command.handle).acked = command.yield_ack.next_ordinal
        elif kind == "cancel":
            stream.told(command.handle).cancelled = command.cancel.reason

    async def CancelActivations(
        self, request: pb.CancelActivationsRequest, context: Any
    ) -> pb.CancelActivationsResponse:
        self.cancelled_calls.append(request.call_id)
        return pb.CancelActivationsResponse()

    async def ReleaseCall(self, request: pb.ReleaseCallRequest, context: Any) -> pb.ReleaseCallResponse:
        self.released_calls.extend(request.call_ids)
        return pb.ReleaseCallResponse()


async def upper(work: Work) -> None:
    """One yield: the text in upper case."""
    await work.accept()
    await work.give(0, y=str(work.input("x")).upper())
    await work.complete(1)
