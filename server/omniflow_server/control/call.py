"""One graph call: drives its scheduler, and gives the caller's log what comes out.

The scheduler decides, the dispatcher runs activations, the log keeps events; this file performs commands between them.
Emissions whose payload another process keeps are fetched and logged in chunks, and what follows them waits its turn, so
the log has the order that the scheduler gave.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Protocol

from omniflow.codec.common import payload_of
from omniflow.codec.error import status_to_proto
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2
from omniflow.interface import Sampling
from omniflow_core.control.commands import (
    AckYields,
    CallUsage,
    CancelActivations,
    Emit,
    FailCall,
    FinishCall,
    ReleaseCall,
    StartActivation,
)
from omniflow_core.control.events import CancelRequested, Event
from omniflow_core.control.scheduler import CallPhase, CallScheduler
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_core.graph.plan import GraphPlan

from omniflow_server.control.carried import CarriedValue
from omniflow_server.control.event_log import EventLog, LogReader
from omniflow_server.control.frames import ValueFrames, fragment

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
"""Size of the pieces of a large output: big enough to be cheap, small enough not to hold up other streams."""

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

    def stream_payload(self, ref: tensor_pb2.RemoteRef) -> AsyncIterator[bytes]: ...


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
        log_limit_bytes: int,
        sampling: Sampling,
        dispatcher: Dispatcher,
        spawn: Callable[[Coroutine[None, None, None]], object],
        on_terminal: Callable[[Call], None],
    ) -> None:
        self.call_id = call_id
        self.tenant = tenant
        self.spec = spec
        self.plan = plan
        self.scheduler = scheduler
        self.sampling = sampling
        self.log = EventLog(log_limit_bytes)
        self.create_time_s = time.time()
        self.error: ErrorInfo | None = None
        self.finished: graph_event_pb2.CallFinished | None = None
        self.pushed_ordinal = 0
        """Highest ordinal of PushInput taken in."""
        self.replicas: dict[str, object] = {}
        """The replica of each node, fixed by the first delivery."""
        self.running: dict[int, ActivationHost] = {}
        """Where each activation runs that has been sent somewhere."""
        self.timeouts: dict[int, asyncio.TimerHandle] = {}
        self._dispatcher = dispatcher
        self._spawn = spawn
        self._on_terminal = on_terminal
        self._frames: dict[tuple[str, str], ValueFrames] = {}
        self._waiting: deque[Emit | FinishCall | FailCall | graph_event_pb2.GraphEvent] = deque()
        self._is_pumping = False
        self._held_acks: dict[int, int] = {}
        self._next_transfer_id = 1

    # --- events in -----------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Gives an event to the scheduler and performs what it commands."""
        for command in self.scheduler.handle(event):
            _PERFORM[type(command)](self, command)

    def cancel(self, reason: Reason, message: str) -> bool:
        """Ends the call; False when it had ended before."""
        return self.cancel_with(ErrorInfo(reason=reason, message=message))

    def cancel_with(self, error: ErrorInfo) -> bool:
        """Ends the call with an error of its own; False when it had ended before."""
        if self.scheduler.phase is CallPhase.ENDED:
            return False
        self.handle(CancelRequested(error))
        return True

    def activation_ended(self, activation_id: int) -> None:
        """Forgets where an activation ran; its host calls this before it reports the end."""
        self.running.pop(activation_id, None)
        timer = self.timeouts.pop(activation_id, None)
        if timer is not None:
            timer.cancel()

    @property
    def deadline_unix_s(self) -> float | None:
        """The call's own deadline."""
        deadline = self.spec.deadline
        return deadline.seconds + deadline.nanos / 1e9 if self.spec.HasField("deadline") else None

    @property
    def has_ended(self) -> bool:
        """The terminal event is in the log."""
        return self.log.is_closed

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
        if not self._is_pumping:  # a large output may still be read from the replica that keeps it
            self._dispatcher.release(self)

    # --- the log ---------------------------------------------------------------------------------------------------

    def append_event(self, event: graph_event_pb2.GraphEvent) -> None:
        """Logs an event that is not a value, in turn."""
        if self._is_pumping:
            self._waiting.append(event)
        elif not self.log.is_closed:
            self._append_message(event)

    def _emit(self, command: Emit) -> None:
        value = command.value
        assert isinstance(value, CarriedValue)
        if self._is_pumping or _large_payload(value.message) is not None:
            self._log_in_turn(command)
        else:
            self._append_value(command, value.message)

    def _append_value(self, command: Emit, message: value_pb2.Value) -> None:
        key = (command.node, command.output)
        frames = self._frames.get(key)
        if frames is None:
            frames = ValueFrames(node=command.node, field=command.output, call_key=self.spec.call_key)
            self._frames[key] = frames
        self.log.append(frames.fragment(self.log.last + 1, command.origin_path, message))

    def _append_message(self, event: graph_event_pb2.GraphEvent) -> None:
        event.sequence = self.log.last + 1
        event.call_key = self.spec.call_key
        is_terminal = event.WhichOneof("event") in ("finished", "failed")
        self.log.append(fragment(event), is_terminal=is_terminal)
        if is_terminal:
            self._on_terminal(self)

    def _log_in_turn(self, item: Emit | FinishCall | FailCall) -> None:
        if isinstance(item, FailCall):
            self.error = item.error
            self._waiting.clear()  # what the caller has not been given yet is dropped with the failure
        if not self._is_pumping and not isinstance(item, Emit):
            self._append_terminal(item)
            return
        self._waiting.append(item)
        if not self._is_pumping:
            self._is_pumping = True
            self._spawn(self._pump())

    def _append_terminal(self, item: FinishCall | FailCall) -> None:
        event = graph_event_pb2.GraphEvent()
        if isinstance(item, FinishCall):
            event.finished.reason = _FINISH_REASONS[item.finish_reason]
            event.finished.usage.CopyFrom(_usage_message(item.usage))
            self.finished = event.finished
        else:
            event.failed.status.CopyFrom(status_to_proto(item.error))
            event.failed.usage.CopyFrom(_usage_message(item.usage))
        self._append_message(event)

    async def _pump(self) -> None:
        """Logs what waits, one item after another."""
        try:
            while self._waiting:
                item = self._waiting.popleft()
                if isinstance(item, Emit):
                    await self._emit_in_turn(item)
                elif isinstance(item, graph_event_pb2.GraphEvent):
                    self._append_message(item)
                else:
                    self._append_terminal(item)
        finally:
            self._is_pumping = False
        if self.scheduler.phase is CallPhase.ENDED and not self.scheduler.active_count:
            self._dispatcher.release(self)

    async def _emit_in_turn(self, command: Emit) -> None:
        value = command.value
        assert isinstance(value, CarriedValue)
        payload = _large_payload(value.message)
        if payload is None:
            self._append_value(command, value.message)
            return
        try:
            await self._emit_chunks(command, value.message, payload)
        except OmniFlowError as error:
            self.cancel(error.reason, f"Output {command.output!r} could not be read: {error.message}")

    async def _emit_chunks(self, command: Emit, message: value_pb2.Value, payload: tensor_pb2.Payload) -> None:
        total = payload.remote.size_bytes if payload.HasField("remote") else len(payload.inline)
        transfer_id = self._next_transfer_id
        self._next_transfer_id += 1
        announced = value_pb2.Value()
        announced.CopyFrom(message)
        place = payload_of(announced)
        assert place is not None
        place.chunked.transfer_id = transfer_id
        place.chunked.total_bytes = total
        self._append_value(command, announced)
        offset = 0
        async for piece in self._pieces(payload):
            await self.log.wait_drained()
            if self.error is not None:
                return  # the call failed meanwhile; its terminal event waits behind this output
            event = graph_event_pb2.GraphEvent(node=command.node, field=command.output, origin_path=command.origin_path)
            event.chunk.transfer_id = transfer_id
            event.chunk.offset_bytes = offset
            event.chunk.data = piece
            offset += len(piece)
            event.chunk.last = offset == total
            self._append_message(event)

    async def _pieces(self, payload: tensor_pb2.Payload) -> AsyncIterator[bytes]:
        if payload.HasField("remote"):
            async for piece in self._dispatcher.stream_payload(payload.remote):
                yield piece
            return
        data = memoryview(payload.inline)  # once: each read of the field copies all of it
        for start in range(0, len(data), CHUNK_BYTES):
            yield bytes(data[start : start + CHUNK_BYTES])
            await asyncio.sleep(0)  # other calls go on between the pieces

    def read(self, after_sequence: int, notify: Callable[[LogReader], None]) -> LogReader:
        """A reader of the call's events."""
        return self.log.attach(after_sequence, notify)


# A table of the class and not of each call: bound methods would make every call garbage that only the collector finds.
_PERFORM: Mapping[type, Callable[..., None]] = {
    StartActivation: Call._start,
    AckYields: Call._ack,
    Emit: Call._emit,
    CancelActivations: Call._cancel_activations,
    FinishCall: Call._log_in_turn,
    FailCall: Call._log_in_turn,
    ReleaseCall: Call._release,
}


def _large_payload(message: value_pb2.Value) -> tensor_pb2.Payload | None:
    """The payload of a value that is too large for one event, or is kept elsewhere."""
    payload = payload_of(message)
    if payload is None:
        return None
    if payload.HasField("remote"):
        return payload
    return payload if len(payload.inline) > CHUNK_BYTES else None


def _usage_message(usage: CallUsage) -> graph_event_pb2.Usage:
    return graph_event_pb2.Usage(
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        activations=usage.activations,
    )
