"""One graph call: drives its scheduler, and gives the caller's log what comes out.

The scheduler decides, the dispatcher runs activations, the log keeps events; this file performs commands between them.
Emissions whose payload another process keeps are fetched and logged in chunks, and what follows them waits its turn, so
the log has the order that the scheduler gave.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, Protocol

from omniflow.codec.common import payload_of
from omniflow.codec.error import status_to_proto
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.interface import Sampling
from omniflow_core.control.balancing import CallReplicas
from omniflow_core.control.commands import (
    AckYields,
    CallUsage,
    CancelActivations,
    Command,
    Emit,
    FailCall,
    FinishCall,
    ReleaseCall,
    StartActivation,
)
from omniflow_core.control.events import ActivationFailed, CancelRequested, Event
from omniflow_core.control.scheduler import CallPhase, CallScheduler
from omniflow_core.errors import Code, ErrorInfo, OmniFlowError, Reason
from omniflow_core.graph.plan import GraphPlan, plan_graph
from omniflow_core.graph.spec import GraphSpec
from omniflow_server.control.carried import CarriedValue
from omniflow_server.control.event_log import EventLog, LogReader
from omniflow_server.control.frames import ValueFrames, fragment
from omniflow_server.control.recording import CallRecorder

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
"""Size of the pieces of a large output: big enough to be cheap, small enough not to hold up other streams."""

INPUT_BACKLOG = 256
"""Values of streaming inputs that may be on their way to their nodes; more wait in the call's line."""

EVENT_LIMIT_BYTES = 4 * 1024 * 1024 - 64 * 1024
"""Largest single event: what a client takes in one message by default, less some room."""

_FINISH_REASONS = {
    "stop": graph_event_pb2.FINISH_REASON_STOP,
    "length": graph_event_pb2.FINISH_REASON_LENGTH,
    "tool_calls": graph_event_pb2.FINISH_REASON_TOOL_CALLS,
}


class ActivationHost(Protocol):
    """Where an activation runs: a stream to a replica, or this process."""

    def ack(self, call_id: str, activation_id: int, next_ordinal: int) -> None: ...

    def cancel(self, call_id: str, activation_id: int, reason: str) -> None: ...


class Dispatcher(Protocol):
    """Runs activations of calls somewhere."""

    def start(self, call: Call, command: StartActivation) -> None: ...

    def cancel(self, call: Call, reason: str) -> None: ...

    def release(self, call: Call) -> None: ...

    def ended(self, call: Call, activation_id: int) -> None: ...

    def stream_payload(self, ref: tensor_pb2.RemoteRef) -> AsyncGenerator[bytes, None]: ...


class Call:
    """A call from its acceptance to the end of its cleanup. All methods run on the loop's thread."""

    def __init__(
        self,
        *,
        call_id: str,
        tenant: str,
        spec: graph_service_pb2.CallSpec,
        plan: GraphPlan,
        scheduler: CallScheduler,
        recorder: CallRecorder,
        log_limit_bytes: int,
        sampling: Sampling,
        dispatcher: Dispatcher,
        spawn: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        on_terminal: Callable[[Call], None],
        fence: int = 0,
    ) -> None:
        self.call_id = call_id
        self.tenant = tenant
        self.spec = spec
        self.plan = plan
        self.scheduler = scheduler
        self.recorder = recorder
        self.sampling = sampling
        self.log = EventLog(log_limit_bytes)
        self.create_time_s = time.time()
        self.start_head: tuple[bytes, bytes] | None = None
        """What all its starts on replicas have in common, in the reference and beside it."""
        self.session = spec.session
        self.fence = fence
        """Of the session's lease under which the call was accepted."""
        self.priority = spec.priority
        self.deadline_unix_s = _deadline_of(spec)
        """The call's own deadline."""
        self.error: ErrorInfo | None = None
        self.finished: graph_event_pb2.CallFinished | None = None
        self.pushed_ordinal = 0
        """Highest ordinal of PushInput taken in."""
        self.replicas = CallReplicas()
        """The replica of each node, fixed by the first delivery."""
        self.used_replicas: set[object] = set()
        """Every replica that was given work of the call."""
        self.keeping_replicas: set[object] = set()
        """Those of them that keep values of the call."""
        self.running: dict[int, ActivationHost] = {}
        """Where each activation runs that has been sent somewhere."""
        self.timeouts: dict[int, asyncio.TimerHandle] = {}
        self._dispatcher = dispatcher
        self._spawn = spawn
        self._on_terminal = on_terminal
        self._frames: dict[tuple[str, str], ValueFrames] = {}
        self._events: deque[Event] = deque()
        self._on_input_room: Callable[[], None] | None = None
        self._is_handling = False
        self._waiting: deque[Emit | AckYields | FinishCall | graph_event_pb2.GraphEvent] = deque()
        """What follows a large output that is on its way to the log."""
        self._pump_task: asyncio.Task[None] | None = None
        self._wants_release = False
        self._unlogged: ErrorInfo | None = None
        """Why an output could not be given to the caller."""
        self._held_acks: dict[int, int] = {}
        self._next_transfer_id = 1

    # --- events in -----------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Gives an event to the scheduler and performs what it commands, in order. Never raises for what a value holds.

        Events that a command brings about at once (an inline activation that ends when it is cancelled) come after it.
        """
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                for command in self.recorder.handle(self.scheduler, self._events.popleft()):
                    try:
                        _PERFORM[type(command)](self, command)
                    except Exception as error:
                        self.fail_command(command, error)
        finally:
            self._is_handling = False
        if self._on_input_room is not None and self.has_input_room:
            self._on_input_room()

    @property
    def has_input_room(self) -> bool:
        """The nodes keep up with the values of streaming inputs."""
        return self.scheduler.undelivered_inputs < INPUT_BACKLOG

    def when_input_room(self, callback: Callable[[], None] | None) -> None:
        """Calls back after every event that leaves room for streaming inputs."""
        self._on_input_room = callback

    def fail_command(self, command: Command, error: Exception) -> None:
        """A command that cannot be performed fails its activation or call; those after it are performed all the same."""
        info = _unperformed(command, error)
        if info.reason is Reason.INTERNAL:
            log.error("call %s cannot perform %s", self.call_id, type(command).__name__, exc_info=error)
        if isinstance(command, StartActivation):
            self.activation_ended(command.activation_id)
            self.handle(ActivationFailed(command.activation_id, info, command.attempt))
        else:
            self._unlogged = info
            self.handle(CancelRequested(info))

    def cancel(self, reason: Reason, message: str) -> bool:
        """Ends the call; False when it had ended before."""
        return self.cancel_with(ErrorInfo(reason=reason, message=message))

    def cancel_with(self, error: ErrorInfo) -> bool:
        """Ends the call with an error of its own; False when it had ended before."""
        if self.scheduler.phase is not CallPhase.ENDED:
            self.handle(CancelRequested(error))
            return True
        finish = next((item for item in self._waiting if isinstance(item, FinishCall)), None)
        if finish is None:
            return False
        self._fail(FailCall(error, finish.usage))  # the work is done, but its caller does not take the rest of it
        return True

    def forget_inputs(self) -> None:
        """Lets go of the inputs: their bytes must not outlive their use, and a message is freed only as a whole."""
        kept = graph_service_pb2.CallSpec()
        self.spec.ClearField("inputs")
        kept.CopyFrom(self.spec)
        self.spec = kept

    def activation_ended(self, activation_id: int) -> None:
        """Forgets where an activation ran; its host calls this before it reports the end."""
        self.running.pop(activation_id, None)
        timer = self.timeouts.pop(activation_id, None)
        if timer is not None:
            timer.cancel()
        self._dispatcher.ended(self, activation_id)

    @property
    def has_ended(self) -> bool:
        """The terminal event is in the log."""
        return self.log.is_closed

    @property
    def takes_input(self) -> bool:
        """The call is queued or runs. Before its terminal event what it has given may still be on its way to the log."""
        return self.scheduler.phase is not CallPhase.ENDED

    @property
    def state(self) -> graph_service_pb2.CallState:
        if self.scheduler.phase is CallPhase.QUEUED:
            return graph_service_pb2.CALL_STATE_QUEUED
        if self.scheduler.phase is CallPhase.RUNNING or not self.log.is_closed:
            return graph_service_pb2.CALL_STATE_RUNNING
        if self.error is None:
            return graph_service_pb2.CALL_STATE_FINISHED
        if self.scheduler.active_count:
            return graph_service_pb2.CALL_STATE_CANCELLING
        return graph_service_pb2.CALL_STATE_FAILED

    # --- commands out ----------------------------------------------------------------------------------------------

    def _start(self, command: StartActivation) -> None:
        self._dispatcher.start(self, command)

    def _ack(self, command: AckYields) -> None:
        """Yields are delivered when what they emitted is in the log, and the log has room."""
        if self._pump_task is not None:
            self._waiting.append(command)
        else:
            self._ack_in_turn(command)

    def _ack_in_turn(self, command: AckYields) -> None:
        if self.log.is_full:
            if not self._held_acks:
                self.log.when_drained(self._send_held_acks)
            self._held_acks[command.activation_id] = command.next_ordinal
        else:
            self._send_ack(command.activation_id, command.next_ordinal)

    def _cancel_activations(self, command: CancelActivations) -> None:
        self._dispatcher.cancel(self, command.reason)

    def _send_ack(self, activation_id: int, next_ordinal: int) -> None:
        host = self.running.get(activation_id)
        if host is not None:
            host.ack(self.call_id, activation_id, next_ordinal)

    def _send_held_acks(self) -> None:
        held, self._held_acks = self._held_acks, {}
        for activation_id, next_ordinal in held.items():
            self._send_ack(activation_id, next_ordinal)

    def _release(self, command: ReleaseCall) -> None:
        self._held_acks.clear()
        self._wants_release = True
        self._release_when_read()

    def _release_when_read(self) -> None:
        """A large output may still be read from the replica that keeps it."""
        if self._wants_release and self._pump_task is None:
            self._wants_release = False
            self._dispatcher.release(self)
            self._shrink()

    def _shrink(self) -> None:
        """Lets go of what an ended call needs no more: it is kept for a while, and short calls are many."""
        self.scheduler = _ENDED_SCHEDULER
        self.recorder.close()
        self._events = self._waiting = _NOTHING
        self._on_input_room = None
        self._frames = {}
        self.replicas = CallReplicas()
        self.used_replicas = self.keeping_replicas = set()

    # --- the log ---------------------------------------------------------------------------------------------------

    def append_event(self, event: graph_event_pb2.GraphEvent) -> None:
        """Logs an event that is not a value, in turn. Nothing once the call has ended.

        No window bounds progress, so a report is left out while the log is full, and replaces one that still waits.
        """
        is_progress = event.HasField("progress")
        if not self.takes_input or (is_progress and self.log.is_full):
            return
        if self._pump_task is None:
            self._append_message(event)
            return
        last = self._waiting[-1] if len(self._waiting) > 1 else None  # the first is being logged
        if is_progress and isinstance(last, graph_event_pb2.GraphEvent) and last.node == event.node:
            self._waiting.pop()
        self._waiting.append(event)

    def _emit(self, command: Emit) -> None:
        value = command.value
        assert isinstance(value, CarriedValue)
        if self._pump_task is None and not value.is_larger_than(CHUNK_BYTES):
            self._append_value(command, value.message)
            return
        self._waiting.append(command)
        if self._pump_task is None:
            self._pump_task = self._spawn(self._pump())

    def _finish(self, command: FinishCall) -> None:
        if self._unlogged is not None:  # by a command of the same step, so the scheduler hears of it too late
            self._fail(FailCall(self._unlogged, command.usage))
        elif self._pump_task is None:
            self._append_finished(command)
        else:
            self._waiting.append(command)

    def _fail(self, command: FailCall) -> None:
        """The failure goes out at once: what the caller has not been given yet is dropped with it."""
        self.error = command.error
        self._waiting.clear()
        pump, self._pump_task = self._pump_task, None
        if pump is not None and pump is not asyncio.current_task():
            pump.cancel()  # it may wait for a reader that never comes
        event = graph_event_pb2.GraphEvent()
        event.failed.status.CopyFrom(status_to_proto(command.error))
        event.failed.usage.CopyFrom(_usage_message(command.usage))
        self._append_message(event)
        self._release_when_read()

    def _append_value(self, command: Emit, message: value_pb2.Value) -> None:
        key = (command.node, command.output)
        frames = self._frames.get(key)
        if frames is None:
            frames = ValueFrames(node=command.node, field=command.output, call_key=self.spec.call_key)
            self._frames[key] = frames
        fragment = frames.fragment(self.log.last + 1, command.origin_path, message)
        if len(fragment) > EVENT_LIMIT_BYTES:
            raise _too_large(command, len(fragment))
        self.log.append(fragment)

    def _append_message(self, event: graph_event_pb2.GraphEvent) -> None:
        event.sequence = self.log.last + 1
        event.call_key = self.spec.call_key
        is_terminal = event.WhichOneof("event") in ("finished", "failed")
        self.log.append(fragment(event), is_terminal=is_terminal)
        if is_terminal:
            self._on_terminal(self)

    def _append_finished(self, command: FinishCall) -> None:
        event = graph_event_pb2.GraphEvent()
        event.finished.reason = _FINISH_REASONS[command.finish_reason]
        event.finished.usage.CopyFrom(_usage_message(command.usage))
        self.finished = event.finished
        self._append_message(event)

    async def _pump(self) -> None:
        """Logs what waits, one item after another."""
        try:
            while self._waiting:
                item = self._waiting[0]
                if isinstance(item, Emit):
                    await self._emit_in_turn(item)
                elif isinstance(item, AckYields):
                    self._ack_in_turn(item)
                elif isinstance(item, FinishCall):
                    self._append_finished(item)
                else:
                    self._append_message(item)
                if self._waiting and self._waiting[0] is item:
                    self._waiting.popleft()
        except Exception as error:
            log.error("call %s cannot log its outputs", self.call_id, exc_info=error)
            self.cancel(
                Reason.INTERNAL, "The outputs of the call could not be logged; the server's log has the details."
            )
        finally:
            if self._pump_task is asyncio.current_task():
                self._pump_task = None
        self._release_when_read()

    async def _emit_in_turn(self, command: Emit) -> None:
        value = command.value
        assert isinstance(value, CarriedValue)
        try:
            if value.is_larger_than(CHUNK_BYTES):
                await self._emit_chunks(command, value)
            else:
                self._append_value(command, value.message)
        except (OmniFlowError, TypeError, ValueError) as error:
            self.cancel_with(_unperformed(command, error))

    async def _emit_chunks(self, command: Emit, value: CarriedValue) -> None:
        announced, place = value.split()
        total = place.size_bytes if isinstance(place, tensor_pb2.RemoteRef) else place.nbytes
        payload = payload_of(announced)
        assert payload is not None
        if not total:
            self._append_value(command, announced)
            return
        payload.chunked.transfer_id = transfer_id = self._next_transfer_id
        payload.chunked.total_bytes = total
        self._next_transfer_id += 1
        self._append_value(command, announced)
        offset = 0
        async with contextlib.aclosing(self._pieces(place)) as pieces:
            async for piece in pieces:
                await self.log.wait_drained()
                event = graph_event_pb2.GraphEvent(
                    node=command.node, field=command.output, origin_path=command.origin_path
                )
                event.chunk.transfer_id = transfer_id
                event.chunk.offset_bytes = offset
                event.chunk.data = piece
                offset += len(piece)
                event.chunk.last = offset == total
                self._append_message(event)

    async def _pieces(self, place: tensor_pb2.RemoteRef | memoryview) -> AsyncGenerator[bytes, None]:
        if isinstance(place, tensor_pb2.RemoteRef):
            async with contextlib.aclosing(self._dispatcher.stream_payload(place)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        for start in range(0, place.nbytes, CHUNK_BYTES):
            yield bytes(place[start : start + CHUNK_BYTES])
            await asyncio.sleep(0)  # other calls go on between the pieces

    def read(self, after_sequence: int, notify: Callable[[LogReader], None]) -> LogReader:
        """A reader of the call's events."""
        return self.log.attach(after_sequence, notify)


# A table of the class and not of each call: bound methods would make every call garbage that only the collector finds.
_NOTHING: deque[Any] = deque(maxlen=0)
_ENDED_SCHEDULER = CallScheduler.ended(plan_graph(GraphSpec(name="", nodes=(), edges=(), placeholders=(), outputs=())))
"""Stands for the schedulers of all ended calls."""

_PERFORM: Mapping[type, Callable[..., None]] = {
    StartActivation: Call._start,
    AckYields: Call._ack,
    Emit: Call._emit,
    CancelActivations: Call._cancel_activations,
    FinishCall: Call._finish,
    FailCall: Call._fail,
    ReleaseCall: Call._release,
}


def _deadline_of(spec: graph_service_pb2.CallSpec) -> float | None:
    return spec.deadline.seconds + spec.deadline.nanos / 1e9 if spec.HasField("deadline") else None


def _unperformed(command: Command, error: Exception) -> ErrorInfo:
    """What the caller is told of a command that raised. Values are made by interfaces, so a bad one is their mistake."""
    if isinstance(command, StartActivation):
        subject, metadata = f"The input of node {command.node.name!r}", {"node": command.node.name}
    elif isinstance(command, Emit):
        subject = f"The value of node {command.node!r} for output {command.output!r}"
        metadata = {"node": command.node, "output": command.output}
    else:
        subject, metadata = "The call", {}
    if isinstance(error, OmniFlowError):
        is_bad_value = error.code is Code.INVALID_ARGUMENT
        return ErrorInfo(
            reason=Reason.INVALID_OUTPUT if is_bad_value else error.reason,
            message=f"{subject} cannot be sent: {error.message}",
            metadata={**metadata, **error.info.metadata},
            retry_after_s=error.info.retry_after_s,
        )
    if isinstance(error, TypeError | ValueError):
        return ErrorInfo(reason=Reason.INVALID_OUTPUT, message=f"{subject} cannot be sent.", metadata=metadata)
    return ErrorInfo(
        reason=Reason.INTERNAL, message=f"{subject} failed here; the server's log has the details.", metadata=metadata
    )


def _too_large(command: Emit, size_bytes: int) -> OmniFlowError:
    return OmniFlowError(
        Reason.MESSAGE_TOO_LARGE,
        f"one event has {size_bytes} bytes, the limit is {EVENT_LIMIT_BYTES}; give it in parts, or as bytes",
        metadata={"output": command.output, "size_bytes": str(size_bytes)},
    )


def _usage_message(usage: CallUsage) -> graph_event_pb2.Usage:
    return graph_event_pb2.Usage(
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        activations=usage.activations,
    )
