"""One Execute stream: commands in, results out, a heartbeat while it is silent.

    reader:  frame ─▶ hello | start | yield_ack | cancel | heartbeat      handled where it is read, no task per message
    pump:    everything that is queued ─▶ one message
    pulse:   a heartbeat when nothing was written for `heartbeat_s`

The transport is two functions, so that another lane than gRPC can carry the same frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from google.protobuf.message import DecodeError

from omniflow.large_values import ValueStore
from omniflow.role.v1 import role_execution_service_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.harness import results
from omniflow_roles.harness.execution import Execution
from omniflow_roles.harness.host import RoleHost
from omniflow_roles.harness.pump import WriterPump
from omniflow_roles.harness.replica import ReplicaIdentity
from omniflow_roles.harness.retention import RetainedCalls
from omniflow_roles.harness.sink import ResultSink

Read = Callable[[], Awaitable[bytes | None]]
"""The next frame of the peer; None at the end of the stream."""
Write = Callable[[bytes], Awaitable[None]]

_COMPANY_S = 0.001
"""An acceptance waits so long for a first result to travel with: nobody waits for it alone, and writing it at once would
keep the interpreter from the thread that is to start the work."""


class ExecuteLink:
    """Serves one stream of one control plane. When it ends, every activation that it started is cancelled."""

    def __init__(
        self,
        host: RoleHost,
        identity: ReplicaIdentity,
        store: ValueStore,
        retained: RetainedCalls,
        *,
        heartbeat_s: float,
    ) -> None:
        self._host = host
        self._identity = identity
        self._store = store
        self._retained = retained
        self._heartbeat_s = heartbeat_s
        self._executions: dict[int, Execution] = {}
        self._owner = ""
        self.pump = WriterPump()

    async def serve(self, read: Read, write: Write) -> None:
        """Until the peer ends the stream, or `close`. Raises PROTOCOL_VIOLATION and STALE_EPOCH for what the peer did."""
        first = _parse(await read())
        self._owner = self._check_hello(first)
        self._retained.attach(self._owner)
        try:
            self.pump.send(results.hello(self._identity.message(self._host.state), self._store.endpoint))
            self._handle_all(first[1:])
            await self._converse(read, write)
        finally:
            self._cancel_all()
            self._retained.detach(self._owner)

    def close(self) -> None:
        """Ends the stream when what is queued has been written."""
        self.pump.close()

    def ended(self, handle: int) -> None:
        self._executions.pop(handle, None)

    def retained(self, call_id: str) -> None:
        self._retained.note(self._owner, call_id)

    async def _converse(self, read: Read, write: Write) -> None:
        """Ends with the first of the three parts that ends, and raises what it raised."""
        reader, writer, pulse = parts = (
            asyncio.ensure_future(self._read_all(read)),
            asyncio.ensure_future(self.pump.run(write)),
            asyncio.ensure_future(self._pulse()),
        )
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            pulse.cancel()
            self._cancel_all()
            self._end_writing(reader)
            # gRPC takes no status while a write is under way, also not after its task was cancelled: a stream that ended
            # here would never end for its peer. If the peer is gone, this task is cancelled.
            await asyncio.wait((writer,))
        finally:
            for part in parts:
                part.cancel()
            ends = await asyncio.gather(*parts, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _end_writing(self, reader: asyncio.Future[None]) -> None:
        """A peer that broke the rules hears its error next; any other hears all that is queued."""
        if reader.done() and not reader.cancelled() and reader.exception() is not None:
            self.pump.drop()
        self.pump.close()

    async def _read_all(self, read: Read) -> None:
        while (frame := await read()) is not None:
            self._handle_all(_parse(frame))

    def _handle_all(self, commands: list[role_execution_service_pb2.ExecuteCommand]) -> None:
        for command in commands:
            self._handle(command)
        if not self.pump.is_idle:
            asyncio.get_running_loop().call_later(_COMPANY_S, self.pump.wake)

    def _handle(self, command: role_execution_service_pb2.ExecuteCommand) -> None:
        kind = command.WhichOneof("command")
        if kind == "yield_ack":
            execution = self._executions.get(command.handle)
            if execution is not None:  # else it has ended, and the ack is late
                execution.activation.ack(command.yield_ack.next_ordinal)
        elif kind == "start":
            self._start(command.handle, command.start)
        elif kind == "cancel":
            execution = self._executions.get(command.handle)
            if execution is not None:
                self._host.cancel(execution, command.cancel.reason)
        elif kind == "hello":
            raise OmniFlowError(Reason.PROTOCOL_VIOLATION, "a second hello on one stream")

    def _start(self, handle: int, start: role_execution_service_pb2.StartActivation) -> None:
        if handle == 0 or handle in self._executions:
            raise OmniFlowError(Reason.PROTOCOL_VIOLATION, f"start with the handle {handle}, which is 0 or in use")
        sink = ResultSink(handle, start.activation, self, self._store)
        execution = self._host.admit(start, sink)
        if execution is not None:
            self._executions[handle] = execution

    def _check_hello(self, commands: list[role_execution_service_pb2.ExecuteCommand]) -> str:
        """The incarnation of the control plane."""
        if not commands or commands[0].WhichOneof("command") != "hello":
            raise OmniFlowError(Reason.PROTOCOL_VIOLATION, "the first command of a stream must be hello")
        wanted, own = commands[0].hello.replica_incarnation_id, self._identity.incarnation_id
        if wanted != own:
            raise OmniFlowError(
                Reason.STALE_EPOCH,
                f"this is incarnation {own} of replica {self._identity.replica_id}, not {wanted!r}",
                metadata={"incarnation_id": own},
            )
        return commands[0].hello.incarnation_id

    def _cancel_all(self) -> None:
        for execution in tuple(self._executions.values()):
            self._host.cancel(execution, "the stream of the control plane ended")

    async def _pulse(self) -> None:
        heartbeat, loop = results.heartbeat(), asyncio.get_running_loop()
        while True:
            silent_s = loop.time() - self.pump.written_at
            if silent_s < self._heartbeat_s:
                await asyncio.sleep(self._heartbeat_s - silent_s)
                continue
            if self.pump.is_idle:
                self.pump.send(heartbeat)
            await asyncio.sleep(self._heartbeat_s)


def _parse(frame: bytes | None) -> list[role_execution_service_pb2.ExecuteCommand]:
    if frame is None:
        return []
    try:
        return list(role_execution_service_pb2.ExecuteRequest.FromString(frame).commands)
    except DecodeError:
        raise OmniFlowError(Reason.PROTOCOL_VIOLATION, "a frame that is no ExecuteRequest") from None
