"""The Execute stream to one replica: many activations of many calls share it.

A sender appends a serialized single-command frame and wakes the pump; the pump joins what is queued (protobuf frames
concatenate) and writes at once. Results are handled in the reader, without a task per message. The stream is the
replica's liveness: when it breaks, or stays silent for longer than the heartbeats allow, everything on it is lost.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from omniflow.codec.error import error_from_rpc, status_from_proto
from omniflow.graph.v1 import graph_event_pb2
from omniflow.internal_rpc import MAX_FRAME_BYTES
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.role.v1 import role_execution_service_pb2_grpc as pb_grpc
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
)
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_server.control.carried import CarriedValue
from omniflow_server.control.registry import Registration

if TYPE_CHECKING:
    from omniflow_server.control.call import Call

log = logging.getLogger(__name__)

SILENCE_LIMIT_S = 3.0
"""Replicas send a heartbeat every second; three missing ones mean that the process hangs or its host is gone."""
SILENCE_ROUNDS = 6
"""The silence is counted in rounds of a sleep, not by the clock: when it is this process that stood still (SIGSTOP, a
suspended machine), what the replica sent meanwhile has not been read yet, and the pause counts as one round only."""
JOINED_BYTES = 1024 * 1024
"""Commands are joined up to this size; a single larger one goes in a frame of its own."""
RELEASE_BATCH = 1000
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a dead connection must not be shared with the next incarnation
)

_FINISH_REASONS = {
    graph_event_pb2.FINISH_REASON_STOP: "stop",
    graph_event_pb2.FINISH_REASON_LENGTH: "length",
    graph_event_pb2.FINISH_REASON_TOOL_CALLS: "tool_calls",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlIdentity:
    """Who dials."""

    control_id: str
    incarnation_id: str
    value_endpoint: str


class _InFlight:
    """An activation on this link."""

    __slots__ = ("activation_id", "attempt", "call", "node")

    def __init__(self, call: Call, activation_id: int, node: str, attempt: int) -> None:
        self.call = call
        self.activation_id = activation_id
        self.node = node
        self.attempt = attempt


class ReplicaLink:
    """A stream to a replica, from its hello to its loss. `run` is its life; all methods on the loop's thread."""

    def __init__(self, registration: Registration, identity: ControlIdentity, *, on_idle: Callable[[], None]) -> None:
        self.registration = registration
        self._identity = identity
        self._on_idle = on_idle
        self._in_flight: dict[int, _InFlight] = {}
        self._handles: dict[tuple[str, int], int] = {}
        self._queue: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._next_handle = 1
        self._unreleased: list[str] = []
        self._is_connected = False
        self.value_endpoint = ""
        self._heard = False
        self._is_silent = False
        self._stub: pb_grpc.RoleExecutionServiceStub | None = None

    @property
    def name(self) -> str:
        return f"{self.registration.replica.role}/{self.registration.replica.replica_id}"

    @property
    def is_connected(self) -> bool:
        """The stream is open and the replica has answered its hello."""
        return self._is_connected

    @is_connected.setter
    def is_connected(self, value: bool) -> None:
        self._is_connected = self.registration.has_stream = value

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def has_room(self) -> bool:
        limit = self.registration.replica.max_activations
        return not limit or len(self._in_flight) < limit

    # --- commands ---------------------------------------------------------------------------------------------------

    def start(self, call: Call, activation_id: int, node: str, attempt: int, message: pb.StartActivation) -> None:
        """Sends an activation. Raises MESSAGE_TOO_LARGE for inputs that would break the stream, and with it others' work."""
        handle = self._next_handle
        frame = _frame(pb.ExecuteCommand(handle=handle, start=message))
        if len(frame) > MAX_FRAME_BYTES:
            raise _too_large(node, len(frame))
        self._next_handle += 1
        self._in_flight[handle] = _InFlight(call, activation_id, node, attempt)
        self._handles[call.call_id, activation_id] = handle
        self._send(frame)

    def ack(self, call_id: str, activation_id: int, next_ordinal: int) -> None:
        """Tells the activation which of its yields are delivered."""
        handle = self._handles.get((call_id, activation_id))
        if handle is not None:
            self._send(_frame(pb.ExecuteCommand(handle=handle, yield_ack=pb.YieldAck(next_ordinal=next_ordinal))))

    def cancel(self, call_id: str, activation_id: int, reason: str) -> None:
        """Tells the activation to stop; its end is still reported."""
        handle = self._handles.get((call_id, activation_id))
        if handle is not None:
            self._send(_frame(pb.ExecuteCommand(handle=handle, cancel=pb.CancelActivation(reason=reason))))

    async def cancel_call(self, call_id: str, reason: str) -> None:
        """Stops a call's activations on the independent path."""
        if self._stub is not None:
            try:
                await self._stub.CancelActivations(
                    pb.CancelActivationsRequest(call_id=call_id, reason=reason[:1024]), timeout=5
                )
            except grpc.RpcError as error:
                log.info("cancel of %s at %s was not answered: %s", call_id, self.name, error_from_rpc(error).reason)

    async def release_calls(self, call_ids: list[str]) -> None:
        """Lets the replica drop what it keeps for calls; what it did not hear it is told when it is connected again."""
        self._unreleased.extend(call_ids)
        while self._stub is not None and self._unreleased:
            batch, self._unreleased = self._unreleased[:RELEASE_BATCH], self._unreleased[RELEASE_BATCH:]
            try:
                await self._stub.ReleaseCall(pb.ReleaseCallRequest(call_ids=batch), timeout=5)
            except grpc.RpcError as error:
                self._unreleased.extend(batch)
                log.info("release at %s was not answered: %s", self.name, error_from_rpc(error).reason)
                return

    def _send(self, frame: bytes) -> None:
        self._queue.append(frame)
        self._wake.set()

    # --- the stream -------------------------------------------------------------------------------------------------

    async def run(self, on_connected: Callable[[ReplicaLink], None]) -> None:
        """Connects and serves until the stream ends; everything in flight is then lost. Does not raise for that."""
        self._is_silent = False
        try:
            async with grpc.aio.insecure_channel(
                self.registration.replica.endpoint, options=CHANNEL_OPTIONS
            ) as channel:
                self._stub = pb_grpc.RoleExecutionServiceStub(channel)
                execute: Any = channel.stream_stream(
                    "/omniflow.role.v1.RoleExecutionService/Execute",
                    request_serializer=None,
                    response_deserializer=None,
                )
                await self._serve(execute(), on_connected)
        except grpc.RpcError as error:
            log.info("stream to %s ended: %s", self.name, error_from_rpc(error).reason)
        except TimeoutError:
            log.warning("replica %s did not answer the hello within %.0f s", self.name, SILENCE_LIMIT_S)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._is_silent or (task is not None and task.cancelling()):
                raise  # by the owner; the watchdog's cancel of the stream reads the same
        except Exception as error:
            log.error("replica %s broke the protocol of its stream", self.name, exc_info=error)
        finally:
            self.is_connected = False
            self._stub = None
            self._lose_all()

    async def _serve(
        self,
        stream: Any,
        on_connected: Callable[[ReplicaLink], None],
    ) -> None:
        hello = pb.ControlHello(
            control_id=self._identity.control_id,
            incarnation_id=self._identity.incarnation_id,
            replica_incarnation_id=self.registration.replica.incarnation_id,
            value_endpoint=self._identity.value_endpoint,
        )
        try:
            async with asyncio.timeout(SILENCE_LIMIT_S):
                await stream.write(pb.ExecuteRequest(commands=(pb.ExecuteCommand(hello=hello),)).SerializeToString())
                first = await stream.read()
            if first is grpc.aio.EOF:
                return
            self._connected(pb.ExecuteResponse.FromString(first), on_connected)
            writer = asyncio.ensure_future(self._write(stream))
            watchdog = asyncio.ensure_future(self._watch(stream))
            try:
                await self._read(stream)
            finally:
                writer.cancel()
                watchdog.cancel()
                await asyncio.gather(writer, watchdog, return_exceptions=True)
        finally:
            stream.cancel()

    def _connected(self, frame: pb.ExecuteResponse, on_connected: Callable[[ReplicaLink], None]) -> None:
        hello = frame.results[0].hello
        self.value_endpoint = hello.value_endpoint
        self.is_connected = True
        on_connected(self)
        self._handle_frame(frame)

    async def _write(self, stream: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                frame = self._queue.popleft()
                if self._queue:
                    parts, size = [frame], len(frame)
                    while self._queue and size + len(self._queue[0]) <= JOINED_BYTES:
                        parts.append(self._queue.popleft())
                        size += len(parts[-1])
                    frame = b"".join(parts)
                await stream.write(frame)

    async def _watch(self, stream: Any) -> None:
        """Ends the stream when the replica has been silent for too long."""
        limit_s, silent_rounds = SILENCE_LIMIT_S, 0
        while silent_rounds < SILENCE_ROUNDS:
            self._heard = False
            await asyncio.sleep(limit_s / SILENCE_ROUNDS)
            silent_rounds = 0 if self._heard else silent_rounds + 1
        log.warning("replica %s was silent for %.0f s", self.name, SILENCE_LIMIT_S)
        self._is_silent = True
        stream.cancel()

    async def _read(self, stream: Any) -> None:
        while True:
            frame = await stream.read()
            if frame is grpc.aio.EOF:
                return
            self._heard = True
            self._handle_frame(pb.ExecuteResponse.FromString(frame))

    def _handle_frame(self, frame: pb.ExecuteResponse) -> None:
        had_room = self.has_room
        for result in frame.results:
            in_flight = self._in_flight.get(result.handle)
            if in_flight is None:
                continue  # a heartbeat, or a result of an activation that has ended here
            kind = result.WhichOneof("result")
            if kind == "yield":
                self._on_yield(in_flight, result)
            elif kind == "accepted":
                in_flight.call.handle(ActivationAccepted(in_flight.activation_id, in_flight.attempt))
            elif kind == "completed":
                self._on_completed(in_flight, result)
            elif kind == "failed":
                self._on_failed(in_flight, result)
            elif kind == "progress":
                event = graph_event_pb2.GraphEvent(node=in_flight.node, progress=result.progress)
                in_flight.call.append_event(event)
        if not had_room and self.has_room:
            self._on_idle()

    def _on_yield(self, in_flight: _InFlight, result: pb.ExecuteResult) -> None:
        message = getattr(result, "yield")
        fields: dict[str, CarriedValue] = {}
        stored_bytes = 0
        for name, value in message.fields.items():
            carried = fields[name] = CarriedValue(message=value)
            stored_bytes += carried.stored_bytes
        in_flight.call.handle(
            ActivationYielded(
                in_flight.activation_id, message.ordinal, fields, message.ByteSize(), in_flight.attempt, stored_bytes
            )
        )

    def _on_completed(self, in_flight: _InFlight, result: pb.ExecuteResult) -> None:
        self._forget(result.handle, in_flight)
        done = result.completed
        in_flight.call.handle(
            ActivationFinished(
                in_flight.activation_id,
                done.yield_count,
                _FINISH_REASONS.get(done.finish_reason, ""),
                done.usage.input_tokens,
                done.usage.cached_input_tokens,
                done.usage.output_tokens,
                in_flight.attempt,
            )
        )

    def _on_failed(self, in_flight: _InFlight, result: pb.ExecuteResult) -> None:
        self._forget(result.handle, in_flight)
        error = status_from_proto(result.failed.status)
        if result.failed.is_retryable and error.reason is Reason.DRAINING:
            error = self._lost(in_flight)  # for its activations a replica that was shut down is as good as dead
        in_flight.call.handle(ActivationFailed(in_flight.activation_id, _named(error, in_flight), in_flight.attempt))

    def _forget(self, handle: int, in_flight: _InFlight) -> None:
        del self._in_flight[handle]
        del self._handles[in_flight.call.call_id, in_flight.activation_id]
        in_flight.call.activation_ended(in_flight.activation_id)

    def _lose_all(self) -> None:
        lost, self._in_flight = self._in_flight, {}
        self._handles.clear()
        self._queue.clear()  # commands for what is lost must not reach the next stream
        for in_flight in lost.values():
            in_flight.call.activation_ended(in_flight.activation_id)
            in_flight.call.handle(ActivationFailed(in_flight.activation_id, self._lost(in_flight), in_flight.attempt))

    def _lost(self, in_flight: _InFlight) -> ErrorInfo:
        return ErrorInfo(
            reason=Reason.REPLICA_LOST,
            message=f"Node {in_flight.node!r} lost its replica {self.name}.",
            metadata={"node": in_flight.node, "replica": self.name},
        )


def _named(error: ErrorInfo, in_flight: _InFlight) -> ErrorInfo:
    """The error with the node in its metadata, whatever the replica said."""
    return dataclasses.replace(error, metadata={"node": in_flight.node, **error.metadata})


def _frame(command: pb.ExecuteCommand) -> bytes:
    return pb.ExecuteRequest(commands=(command,)).SerializeToString()


def _too_large(node: str, size_bytes: int) -> OmniFlowError:
    return OmniFlowError(
        Reason.MESSAGE_TOO_LARGE,
        f"One activation of node {node!r} would take {size_bytes} bytes of inputs besides their payloads; at most "
        f"{MAX_FRAME_BYTES} are sent. Give large inputs as tensors, images or blobs, or in several yields.",
        metadata={"node": node, "size_bytes": str(size_bytes)},
    )
