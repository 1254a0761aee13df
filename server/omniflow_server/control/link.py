"""The link to one replica: many activations of many calls share it.

A sender appends a serialized single-command frame to the session's outbox; the transport joins what is queued (protobuf
frames concatenate) and writes as soon as it can. Results are handled where they are read, without a task per message. The
link is the replica's liveness: when it breaks, or stays silent for longer than the heartbeats allow, everything on it is
lost.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import grpc

from omniflow.codec.error import error_from_rpc
from omniflow.graph.v1 import graph_event_pb2
from omniflow.internal_rpc import MAX_FRAME_BYTES
from omniflow.links.dialing.choice import transports_to
from omniflow.links.dialing.grpc_stream import CHANNEL_OPTIONS
from omniflow.links.dialing.session import LinkSession
from omniflow.links.port import LaneKind
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.role.v1 import role_execution_service_pb2_grpc as pb_grpc
from omniflow.wire import sized, varint
from omniflow_core.control.commands import StartActivation
from omniflow_core.control.events import ActivationAccepted, ActivationFailed
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_server.control import results
from omniflow_server.control.pipelines import PipelineRun
from omniflow_server.control.registry import Registration
from omniflow_server.control.segments import HostedRun

if TYPE_CHECKING:
    from omniflow_server.control.call import Call

log = logging.getLogger(__name__)

RELEASE_BATCH = 1000

_COMMANDS = b"\x0a"  # ExecuteRequest.commands = 1, length-delimited
_HANDLE = b"\x08"  # ExecuteCommand.handle = 1, varint
_START = b"\x1a"  # ExecuteCommand.start = 3, length-delimited


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlIdentity:
    """Who dials."""

    control_id: str
    incarnation_id: str
    value_endpoint: str
    lanes: tuple[LaneKind, ...] = ()
    """Same-host lanes that it takes, the one it prefers first."""


class LinkListener(Protocol):
    """Who is told what becomes of activations on links, before their calls are."""

    def on_idle(self, link: ReplicaLink) -> None:
        """The replica takes work again."""

    def on_ended(self, link: ReplicaLink, call: Call, command: StartActivation, error: ErrorInfo | None) -> None:
        """An activation has ended on the replica: well, or with an error."""

    def on_refused(self, link: ReplicaLink, call: Call, command: StartActivation, error: ErrorInfo) -> bool:
        """The replica has not taken an activation in. False when it is to fail with the error."""


class _InFlight:
    """An activation on this link."""

    __slots__ = ("call", "command", "has_segment", "pipeline", "run")

    def __init__(self, call: Call, command: StartActivation, has_segment: bool, pipeline: PipelineRun | None) -> None:
        self.call = call
        self.command = command
        self.has_segment = has_segment
        self.run: HostedRun | None = None
        """What the replica starts below it inside the segment that it was started with."""
        self.pipeline = pipeline
        """What its yields go through, which do not come back here."""

    @property
    def activation_id(self) -> int:
        return self.command.activation_id

    @property
    def attempt(self) -> int:
        return self.command.attempt

    @property
    def node(self) -> str:
        return self.command.node.name


class ReplicaLink:
    """A link to a replica, from its hello to its loss. `run` is its life; all methods on the loop's thread."""

    def __init__(self, registration: Registration, identity: ControlIdentity, listener: LinkListener) -> None:
        self.registration = registration
        self._identity = identity
        self._listener = listener
        self.foreign_load = 0
        """Activations on the replica that others have started, as it reported last."""
        self.is_refusing = False
        """The replica has refused an activation because it drains; it takes no other."""
        self.full_timer: asyncio.TimerHandle | None = None
        """Others keep the replica busy; it takes nothing until the timer is over."""
        self._in_flight: dict[int, _InFlight] = {}
        self._exits: dict[int, PipelineRun] = {}
        """Pipelines whose last node is on this replica, by the handle that its yields come under."""
        self._handles: dict[tuple[str, int], int] = {}
        self._next_handle = 1
        self.name = f"{registration.replica.role}/{registration.replica.replica_id}"
        self.interfaces = frozenset(registration.replica.interfaces)
        self._unreleased: list[str] = []
        self._is_connected = False
        self.value_endpoint = ""
        self._session = self._new_session(lambda _: None)
        self._stub: pb_grpc.RoleExecutionServiceStub | None = None

    def renew(self, registration: Registration) -> None:
        """The same life of the replica has registered again."""
        self.is_refusing = False
        self.registration = registration
        self.interfaces = frozenset(registration.replica.interfaces)

    @property
    def is_connected(self) -> bool:
        """The replica has answered the hello, and the link is not lost since."""
        return self._is_connected

    @is_connected.setter
    def is_connected(self, value: bool) -> None:
        self._is_connected = self.registration.has_stream = value

    @property
    def replica(self) -> replica_pb2.Replica:
        return self.registration.replica

    @property
    def incarnation_id(self) -> str:
        """Of this process, as the replica knows it."""
        return self._identity.incarnation_id

    @property
    def is_interrupted(self) -> bool:
        """Nothing carries the link now."""
        return self._session.is_interrupted

    @property
    def is_quiet(self) -> bool:
        """The replica has said nothing for longer than it should: it may stand still."""
        return self._session.is_quiet or self._session.is_interrupted

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def has_room(self) -> bool:
        """It takes another activation now: one that is sent while the link is interrupted would be lost with it."""
        if self.is_quiet or self.full_timer is not None:
            return False
        limit = self.registration.replica.max_activations
        return not limit or len(self._in_flight) < limit

    # --- commands ---------------------------------------------------------------------------------------------------

    def start(
        self,
        call: Call,
        command: StartActivation,
        start: bytes,
        *,
        has_segment: bool = False,
        pipeline: PipelineRun | None = None,
    ) -> None:
        """Sends an activation; `start` is its message. Raises MESSAGE_TOO_LARGE for inputs that would break the stream, and
        with it others' work."""
        handle = self._next_handle
        frame = start_frame(handle, start)
        node = command.node.name
        if len(frame) > MAX_FRAME_BYTES:
            raise _too_large(node, len(frame))
        self._next_handle += 1
        in_flight = _InFlight(call, command, has_segment, pipeline)
        self._in_flight[handle] = in_flight
        self._handles[call.call_id, command.activation_id] = handle
        if pipeline is not None:
            pipeline.started(functools.partial(self.cancel_handle, handle))
        self._send(frame)

    def open_exit(self, run: PipelineRun) -> int:
        """A handle under which the yields of a pipeline's last node come; they go to the run."""
        handle = self._next_handle
        self._next_handle += 1
        self._exits[handle] = run
        return handle

    def close_exit(self, handle: int) -> None:
        """Nothing more comes under the handle. Repeats change nothing."""
        if self._exits.pop(handle, None) is not None:
            self._send(
                _frame(pb.ExecuteCommand(handle=handle, cancel=pb.CancelActivation(reason="the pipeline ended")))
            )

    def ack_exit(self, handle: int, next_ordinal: int) -> None:
        """Tells the last node of a pipeline which yields are delivered."""
        if handle in self._exits:
            self._send(_frame(pb.ExecuteCommand(handle=handle, yield_ack=pb.YieldAck(next_ordinal=next_ordinal))))

    def ack(self, call_id: str, activation_id: int, next_ordinal: int) -> None:
        """Tells the activation which of its yields are delivered."""
        handle = self._handles.get((call_id, activation_id))
        if handle is not None:
            self._send(_frame(pb.ExecuteCommand(handle=handle, yield_ack=pb.YieldAck(next_ordinal=next_ordinal))))

    def ack_inner(self, handle: int, inner_id: int, next_ordinal: int) -> None:
        """The same for an activation inside a segment."""
        if handle in self._in_flight:
            ack = pb.YieldAck(next_ordinal=next_ordinal, inner_activation_id=inner_id)
            self._send(_frame(pb.ExecuteCommand(handle=handle, yield_ack=ack)))

    def cancel(self, call_id: str, activation_id: int, reason: str) -> None:
        """Tells the activation to stop; its end is still reported."""
        handle = self._handles.get((call_id, activation_id))
        if handle is not None:
            self.cancel_handle(handle, reason)

    def cancel_handle(self, handle: int, reason: str) -> None:
        """Tells what runs under a handle to stop."""
        if handle in self._in_flight:
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

    # --- the session ------------------------------------------------------------------------------------------------

    async def run(self, on_connected: Callable[[ReplicaLink], None]) -> None:
        """Connects and serves until the link is lost, and everything in flight with it. Does not raise for that."""
        self._session = self._new_session(on_connected)  # commands for what is lost do not reach the next session
        replica = self.registration.replica
        try:
            async with grpc.aio.insecure_channel(replica.endpoint, options=CHANNEL_OPTIONS) as channel:
                self._stub = pb_grpc.RoleExecutionServiceStub(channel)
                await self._session.run(lambda: transports_to(replica, self._identity.lanes))
        finally:
            self.is_connected = False
            self._stub = None
            self._lose_all()

    def _new_session(self, on_connected: Callable[[ReplicaLink], None]) -> LinkSession:
        hello = pb.ControlHello(
            control_id=self._identity.control_id,
            incarnation_id=self._identity.incarnation_id,
            replica_incarnation_id=self.registration.replica.incarnation_id,
            value_endpoint=self._identity.value_endpoint,
        )

        def on_hello(answer: pb.ReplicaHello) -> None:
            self.value_endpoint = answer.value_endpoint
            self.is_connected = True
            on_connected(self)

        return LinkSession(
            self.name,
            hello,
            on_hello=on_hello,
            on_message=self._handle_frame,
            on_resumed=lambda: self._listener.on_idle(self),
        )

    def _send(self, frame: bytes) -> None:
        self._session.outbox.send(frame)

    def _handle_frame(self, frame: pb.ExecuteResponse) -> None:
        had_room = self.has_room
        for result in frame.results:
            in_flight = self._in_flight.get(result.handle)
            kind = result.WhichOneof("result")
            if in_flight is None:
                run = self._exits.get(result.handle)
                if run is not None and kind == "yield":
                    run.yielded(getattr(result, "yield"))
                elif kind == "load":
                    reported = result.load.running + result.load.waiting
                    self.foreign_load = max(0, reported - len(self._in_flight))
                continue  # else a heartbeat, or a result of an activation that has ended here
            if kind == "completed":
                self._on_completed(result.handle, in_flight, result.completed)
            elif kind == "yield":
                self._on_yield(in_flight, getattr(result, "yield"))
            elif kind == "segment_step":
                self._on_step(in_flight, result.segment_step)
            elif kind == "accepted":
                self._on_accepted(result.handle, in_flight)
            elif kind == "failed":
                self._on_failed(result.handle, in_flight, result.failed)
            elif kind == "progress":
                event = graph_event_pb2.GraphEvent(node=in_flight.node, progress=result.progress)
                in_flight.call.append_event(event)
        if not had_room and self.has_room:
            self._listener.on_idle(self)

    def _on_accepted(self, handle: int, in_flight: _InFlight) -> None:
        call, activation_id = in_flight.call, in_flight.activation_id
        call.handle(ActivationAccepted(activation_id, in_flight.attempt, in_flight.has_segment))
        hosted = call.scheduler.segment_of(activation_id) if in_flight.has_segment else None
        if hosted is not None:
            in_flight.run = HostedRun(call, activation_id, hosted, self, handle)

    def _on_yield(self, in_flight: _InFlight, message: pb.ActivationYield) -> None:
        event = results.yielded(in_flight.activation_id, in_flight.attempt, message)
        if event.stored_bytes:
            in_flight.call.keeping_replicas.add(self)
        in_flight.call.handle(event)

    def _on_step(self, in_flight: _InFlight, step: pb.SegmentStep) -> None:
        if in_flight.run is None:
            return  # the call had ended when it was accepted
        for event in step.events:
            error = in_flight.run.take(event)
            if error is not None:
                in_flight.call.cancel_with(error)
                return

    def _on_completed(self, handle: int, in_flight: _InFlight, message: pb.ActivationCompleted) -> None:
        if in_flight.pipeline is not None:
            self._forget_handle(handle, in_flight)
            self._listener.on_ended(self, in_flight.call, in_flight.command, None)
            in_flight.pipeline.completed(message)
            return
        self._forget(handle, in_flight)
        if in_flight.run is not None:
            in_flight.run.end(None)
            return
        event = results.finished(in_flight.activation_id, in_flight.attempt, message)
        if event.stored_bytes:
            in_flight.call.keeping_replicas.add(self)
        in_flight.call.handle(event)

    def _on_failed(self, handle: int, in_flight: _InFlight, message: pb.ActivationFailed) -> None:
        error = results.error_of(message, in_flight.node)
        if message.is_refused and message.is_retryable:
            self._forget_handle(handle, in_flight)
            if in_flight.pipeline is not None:
                in_flight.pipeline.drop()
            if self._listener.on_refused(self, in_flight.call, in_flight.command, error):
                return
            in_flight.call.activation_ended(in_flight.activation_id)
        else:
            self._forget(handle, in_flight, error)
        if message.is_retryable and error.reason is Reason.DRAINING:
            error = self._lost(in_flight)  # for its activations a replica that was shut down is as good as dead
        self._fail(in_flight, error)

    def _fail(self, in_flight: _InFlight, error: ErrorInfo) -> None:
        if in_flight.pipeline is not None:
            in_flight.pipeline.failed(error)
        elif in_flight.run is not None:
            in_flight.run.end(error)
        else:
            in_flight.call.handle(ActivationFailed(in_flight.activation_id, error, in_flight.attempt))

    def _forget_handle(self, handle: int, in_flight: _InFlight) -> None:
        del self._in_flight[handle]
        del self._handles[in_flight.call.call_id, in_flight.activation_id]

    def _forget(self, handle: int, in_flight: _InFlight, error: ErrorInfo | None = None) -> None:
        self._forget_handle(handle, in_flight)
        self._listener.on_ended(self, in_flight.call, in_flight.command, error)
        in_flight.call.activation_ended(in_flight.activation_id)

    def _lose_all(self) -> None:
        lost, self._in_flight = self._in_flight, {}
        self._handles.clear()
        for in_flight in lost.values():
            error = self._lost(in_flight)
            self._listener.on_ended(self, in_flight.call, in_flight.command, error)
            in_flight.call.activation_ended(in_flight.activation_id)
            self._fail(in_flight, error)
        exits, self._exits = self._exits, {}
        for run in exits.values():
            run.lost()

    def _lost(self, in_flight: _InFlight) -> ErrorInfo:
        return ErrorInfo(
            reason=Reason.REPLICA_LOST,
            message=f"Node {in_flight.node!r} lost its replica {self.name}.",
            metadata={"node": in_flight.node, "replica": self.name},
        )


def start_frame(handle: int, start: bytes) -> bytes:
    """An ExecuteRequest with one start, of its serialized message."""
    command = b"".join((_HANDLE, varint(handle), _START, varint(len(start)), start))
    return sized(_COMMANDS, command)


def _frame(command: pb.ExecuteCommand) -> bytes:
    return pb.ExecuteRequest(commands=(command,)).SerializeToString()


def _too_large(node: str, size_bytes: int) -> OmniFlowError:
    return OmniFlowError(
        Reason.MESSAGE_TOO_LARGE,
        f"One activation of node {node!r} would take {size_bytes} bytes of inputs besides their payloads; at most "
        f"{MAX_FRAME_BYTES} are sent. Give large inputs as tensors, images or blobs, or in several yields.",
        metadata={"node": node, "size_bytes": str(size_bytes)},
    )
