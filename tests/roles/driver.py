"""The control plane's side of one link, for tests: starts activations and collects their results.

Over gRPC, or over the lane that a test has chosen by the fixture `transport`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc.aio

from omniflow.codec.common import value_from_proto, value_to_proto
from omniflow.codec.error import status_from_proto
from omniflow.common.v1 import value_pb2
from omniflow.internal_rpc import internal_channel
from omniflow.role.v1 import replica_pb2, role_execution_service_pb2_grpc
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import Json, Value
from omniflow_core.errors import ErrorInfo
from tests.support.pipes import Pipe, dial_lane

Result = messages.ExecuteResult
LAST_RESULTS = ("completed", "failed")
SAY_ACCEPTED = ("yield", "completed")
"""Results that say that their activation was accepted."""

transport = "grpc"
"""What `dial` takes: gRPC, or the kind of a lane."""


class GrpcPipe:
    """An Execute stream, as bytes."""

    kind = "grpc"

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call: Any = channel.stream_stream("/omniflow.role.v1.RoleExecutionService/Execute")()

    async def read(self) -> bytes | None:
        message = await self.call.read()
        return None if message is grpc.aio.EOF else message

    async def write(self, message: bytes) -> None:
        await self.call.write(message)

    async def end(self) -> None:
        await self.call.done_writing()

    def drop(self) -> None:
        self.call.cancel()


class Driver:
    """Results are kept by handle, in the order in which they came; handle 0 has hellos and heartbeats.

    What a result says besides is kept as results of their own, before it: that its activation was accepted, if none has
    said so, and a yield that came with the end.
    """

    def __init__(
        self, stub: role_execution_service_pb2_grpc.RoleExecutionServiceStub, pipe: Pipe, *, acks: bool = True
    ) -> None:
        self.stub = stub
        self.acks = acks
        self.message_count = 0
        self.loads: list[replica_pb2.ReplicaLoad] = []
        """What the replica has reported of its load."""
        self.answers: list[int] = []
        """Handles whose last yield came with the end."""
        self._accepted: set[int] = {0}
        self.pipe = pipe
        self.has_ended = False
        self._queues: dict[int, asyncio.Queue[Result]] = defaultdict(asyncio.Queue)
        self._writing = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None

    async def hello(self, incarnation_id: str, *, control: str = "control-life-1") -> messages.ReplicaHello:
        await self.send(
            messages.ExecuteCommand(
                hello=messages.ControlHello(
                    control_id="control-0", incarnation_id=control, replica_incarnation_id=incarnation_id
                )
            )
        )
        self._reader = asyncio.create_task(self._read())
        self._reader.add_done_callback(lambda _: setattr(self, "has_ended", True))
        return (await self.next(0)).hello

    async def send(self, *commands: messages.ExecuteCommand) -> None:
        async with self._writing:  # the library takes one write at a time
            await self.pipe.write(messages.ExecuteRequest(commands=commands).SerializeToString())

    async def start(self, handle: int, interface: str, inputs: Mapping[str, Any], **options: Any) -> None:
        await self.send(start_command(handle, interface, inputs, **options))

    async def parameters(
        self, handle: int, interface: str, options: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        """Starts an interface that takes JSON parameters."""
        await self.start(handle, interface, {"parameters": Json(dict(options or {}))}, **more)

    async def ack(self, handle: int, next_ordinal: int, *, inner: int = 0) -> None:
        ack = messages.YieldAck(next_ordinal=next_ordinal, inner_activation_id=inner)
        await self.send(messages.ExecuteCommand(handle=handle, yield_ack=ack))

    async def cancel(self, handle: int, reason: str = "changed my mind") -> None:
        await self.send(messages.ExecuteCommand(handle=handle, cancel=messages.CancelActivation(reason=reason)))

    async def next(self, handle: int, *, timeout_s: float = 10.0) -> Result:
        """The next result of a handle."""
        async with asyncio.timeout(timeout_s):
            return await self._queues[handle].get()

    async def expect(self, handle: int, kind: str) -> Any:
        """The next result, which must be of this kind."""
        result = await self.next(handle)
        assert result.WhichOneof("result") == kind, result
        return getattr(result, kind)

    async def finish(self, handle: int) -> list[Result]:
        """All results of a handle up to the last."""
        found: list[Result] = []
        while not found or found[-1].WhichOneof("result") not in LAST_RESULTS:
            found.append(await self.next(handle))
        return found

    async def error(self, handle: int) -> tuple[ErrorInfo, bool]:
        """The failure that ends a handle, and whether it may be tried elsewhere."""
        last = (await self.finish(handle))[-1]
        assert last.WhichOneof("result") == "failed", last
        return status_from_proto(last.failed.status), last.failed.is_retryable

    def pending(self, handle: int) -> int:
        """Results of a handle that have come and were not taken."""
        return self._queues[handle].qsize()

    async def code(self) -> grpc.StatusCode:
        """Status of the stream, when it has ended; lanes have none."""
        assert isinstance(self.pipe, GrpcPipe)
        code: grpc.StatusCode = await self.pipe.call.code()
        return code

    async def half_close(self) -> None:
        await self.pipe.end()

    def drop(self) -> None:
        """Ends the stream without a word."""
        self.pipe.drop()

    async def _read(self) -> None:
        # InvalidStateError: an acknowledgement that `close` overtook.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError, asyncio.InvalidStateError):
            while (message := await self.pipe.read()) is not None:
                frame = messages.ExecuteResponse.FromString(message)
                self.message_count += 1
                for result in frame.results:
                    if result.HasField("load"):
                        self.loads.append(result.load)
                        continue
                    if result.completed.HasField("last_yield"):
                        self.answers.append(result.handle)
                    if result.handle not in self._accepted and result.WhichOneof("result") in SAY_ACCEPTED:
                        self._accepted.add(result.handle)
                        accepted = Result(handle=result.handle, accepted=messages.ActivationAccepted())
                        self._queues[result.handle].put_nowait(accepted)
                    for part in parts_of(result):
                        if part.WhichOneof("result") != "accepted" or result.handle not in self._accepted:
                            self._queues[result.handle].put_nowait(part)
                    if result.WhichOneof("result") == "accepted":
                        self._accepted.add(result.handle)
                if self.acks:
                    await self._ack_all(frame.results)

    async def _ack_all(self, results: Any) -> None:
        """Of segments those yields that have something for the rest of the graph."""
        newest = {(r.handle, 0): getattr(r, "yield").ordinal + 1 for r in results if r.WhichOneof("result") == "yield"}
        for result in results:
            for event in result.segment_step.events:
                if event.WhichOneof("event") == "yield" and getattr(event, "yield").fields:
                    newest[result.handle, event.inner_activation_id] = getattr(event, "yield").ordinal + 1
        for (handle, inner), ordinal in newest.items():
            await self.ack(handle, ordinal, inner=inner)

    async def close(self) -> None:
        self.pipe.drop()
        if self._reader is not None:
            self._reader.cancel()
            await self._reader


@contextlib.asynccontextmanager
async def dial(
    endpoint: str, incarnation_id: str, *, control: str = "control-life-1", **options: Any
) -> AsyncIterator[Driver]:
    """A stream that has exchanged hellos."""
    async with internal_channel(endpoint) as channel:
        stub = role_execution_service_pb2_grpc.RoleExecutionServiceStub(channel)
        driver = Driver(stub, await _pipe(channel, stub), **options)
        try:
            await driver.hello(incarnation_id, control=control)
            yield driver
        finally:
            await driver.close()


@contextlib.asynccontextmanager
async def open_pipe(endpoint: str) -> AsyncIterator[Pipe]:
    """A transport on which nothing has been said."""
    async with internal_channel(endpoint) as channel:
        pipe = await _pipe(channel, role_execution_service_pb2_grpc.RoleExecutionServiceStub(channel))
        try:
            yield pipe
        finally:
            pipe.drop()


async def _pipe(channel: grpc.aio.Channel, stub: role_execution_service_pb2_grpc.RoleExecutionServiceStub) -> Pipe:
    if transport == "grpc":
        return GrpcPipe(channel)
    replica = (await stub.DescribeRole(messages.DescribeRoleRequest())).replica
    (address,) = (lane.address for lane in replica.lanes if lane.kind == transport)
    return await dial_lane(transport, address)


def start_command(
    handle: int,
    interface: str,
    inputs: Mapping[str, Value | value_pb2.Value],
    *,
    call_id: str = "",
    yield_window: int = 64,
    byte_credit: int = 1 << 20,
    **fields: Any,
) -> messages.ExecuteCommand:
    """A start whose node is named like the interface; the call is named after the handle."""
    start = messages.StartActivation(yield_window=yield_window, byte_credit=byte_credit, **fields)
    start.activation.call_id = call_id or f"call-{handle}"
    start.activation.activation_id = handle
    start.activation.node = interface.replace(".", "_")
    start.activation.interface = interface
    start.activation.attempt = 1
    facet = start.facets.add(input_group="main")
    for name, value in inputs.items():
        message = value if isinstance(value, value_pb2.Value) else value_to_proto(value)
        facet.fields[name].values.add(value=message)
    return messages.ExecuteCommand(handle=handle, start=start)


def parts_of(result: Result) -> tuple[Result, ...]:
    """The result; in two when it brings a last yield."""
    if not result.completed.HasField("last_yield"):
        return (result,)
    last = Result(handle=result.handle)
    getattr(last, "yield").CopyFrom(result.completed.last_yield)
    end = Result()
    end.CopyFrom(result)
    end.completed.ClearField("last_yield")
    return last, end


def kinds(results: list[Result]) -> list[str]:
    """The kinds of results, in order."""
    return [str(result.WhichOneof("result")) for result in results]


def values(results: list[Result], field: str) -> list[Value]:
    """The values of one output field in the yields among the results."""
    outputs = [getattr(r, "yield") for r in results if r.WhichOneof("result") == "yield"]
    assert [output.ordinal for output in outputs] == list(range(len(outputs)))
    return [value_from_proto(output.fields[field]) for output in outputs]
