"""One link of a control plane: commands in, results out, a heartbeat while it is silent.

    in:      hello | start | yield_ack | cancel | heartbeat      handled where it is read, no task per message
    pump:    everything that is queued ─▶ one message
    pulse:   what is queued, or else a heartbeat, when nothing was written for `heartbeat_s`

Knows nothing of transports: `Links` gives it what they bring, and they take from its pump.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from omniflow.large_values import ValueStore
from omniflow.links.outbox import Outbox
from omniflow.links.receipts import Receipts
from omniflow.role.v1 import role_execution_service_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.harness import results
from omniflow_roles.harness.execution import Execution
from omniflow_roles.harness.fences import Remembered
from omniflow_roles.harness.host import RoleHost
from omniflow_roles.harness.pipeline_exit import PipelineExit
from omniflow_roles.harness.retention import RetainedCalls
from omniflow_roles.harness.sink import ResultSink

LOAD_INTERVAL_S = 0.2
"""How often a control plane is told of the load: it starts work between two reports, and knows of that itself."""
_COMPANY_S = 0.001
"""An acceptance waits so long for a first result, which says the same: nobody waits for it alone, and writing it at once
would keep the interpreter from the thread that is to start the work."""


class ExecuteLink:
    """A link from its hello to its end; then every activation that it started is cancelled."""

    def __init__(
        self,
        host: RoleHost,
        store: ValueStore,
        retained: RetainedCalls,
        *,
        owner: str,
        link_id: str,
        heartbeat_s: float,
    ) -> None:
        """`owner` is the incarnation of the control plane. A link without an identifier ends with its transport."""
        self.link_id = link_id
        self._host = host
        self._store = store
        self._retained = retained
        self.owner = owner
        self._heartbeat_s = heartbeat_s
        self._executions: dict[int, Execution] = {}
        self._exits: dict[int, PipelineExit] = {}
        """Where pipelines end that were started elsewhere, by the handles that the control plane has chosen."""
        self._closed_exits: Remembered[int] = Remembered()
        self._unaccepted: list[ResultSink] = []
        """Sinks of activations that were taken in, and whose peer has not been told."""
        self._is_acceptance_due = False
        self._pulse: asyncio.TimerHandle | None = None
        self._told_load = (0, 0)
        self._has_ended = False
        self.pump = Outbox(keeps=bool(link_id))
        self.receipts = Receipts()

    @property
    def activation_count(self) -> int:
        """Activations that run or wait."""
        return len(self._executions)

    def attach(self, wake: Callable[[], None]) -> None:
        """The link has a transport, its first or another, which `wake` tells of what is queued."""
        self._stop_pulse()
        self.pump.attach(wake)
        self._pulse = asyncio.get_running_loop().call_later(self._heartbeat_s, self._beat)

    def detach(self) -> None:
        """The link has no transport; what runs goes on, and what it reports is queued."""
        self._stop_pulse()
        self.pump.detach()

    def end(self) -> None:
        """Cancels what runs; what is queued may still be written. Repeats change nothing."""
        if self._has_ended:
            return
        self._has_ended = True
        self._stop_pulse()
        for execution in tuple(self._executions.values()):
            self._host.cancel(execution, "the stream of the control plane ended")
        for end in tuple(self._exits.values()):
            end.lose()
        self.pump.close()

    def accepted(self, sink: ResultSink) -> None:
        """An activation was taken in; to be told unless it says something else soon."""
        self._unaccepted.append(sink)

    def ended(self, handle: int) -> None:
        self._executions.pop(handle, None)

    def open_exit(self, handle: int, end: PipelineExit) -> None:
        if handle == 0 or handle in self._executions or handle in self._exits:
            raise OmniFlowError(Reason.PROTOCOL_VIOLATION, f"an exit with the handle {handle}, which is 0 or in use")
        if handle in self._closed_exits:
            raise OmniFlowError(Reason.CALL_CANCELLED, "the pipeline's exit was cancelled")
        self._exits[handle] = end

    def close_exit(self, handle: int) -> None:
        self._exits.pop(handle, None)

    def retained(self, call_id: str) -> None:
        self._retained.note(self.owner, call_id)

    def received(self, message: bytes) -> None:
        """Takes a message in. Raises PROTOCOL_VIOLATION, and DecodeError for what is no message."""
        request = role_execution_service_pb2.ExecuteRequest.FromString(message)
        if request.received_messages:
            self.pump.received(request.received_messages)
        self.handle(request.commands)
        if self.receipts.add(len(message)):
            self.pump.send(self.receipts.frame())

    def handle(self, commands: Sequence[role_execution_service_pb2.ExecuteCommand]) -> None:
        """Takes the commands of one message in. Raises PROTOCOL_VIOLATION."""
        for command in commands:
            self._handle(command)
        if (self._unaccepted or not self.pump.is_idle) and not self._is_acceptance_due:
            self._is_acceptance_due = True
            asyncio.get_running_loop().call_later(_COMPANY_S, self._accept_all)

    def _accept_all(self) -> None:
        """Says of what has not reported anything yet that it was taken in."""
        self._is_acceptance_due = False
        waiting, self._unaccepted = self._unaccepted, []
        for sink in waiting:
            if not sink.has_reported:
                self.pump.append(results.accepted(sink.handle))
        if not self.pump.is_idle:
            self.pump.wake()

    def _handle(self, command: role_execution_service_pb2.ExecuteCommand) -> None:
        kind = command.WhichOneof("command")
        if kind == "yield_ack":
            execution = self._executions.get(command.handle)
            if execution is not None:
                execution.acknowledge(command.yield_ack.inner_activation_id, command.yield_ack.next_ordinal)
            elif (end := self._exits.get(command.handle)) is not None:  # else it has ended, and the ack is late
                end.acknowledge(command.yield_ack.next_ordinal)
        elif kind == "start":
            self._start(command.handle, command.start)
        elif kind == "cancel":
            execution = self._executions.get(command.handle)
            if execution is not None:
                self._host.cancel(execution, command.cancel.reason)
            else:
                self._close_exit(command.handle, command.cancel.reason)
        elif kind == "hello":
            raise OmniFlowError(Reason.PROTOCOL_VIOLATION, "a second hello on one stream")

    def _start(self, handle: int, start: role_execution_service_pb2.StartActivation) -> None:
        if handle == 0 or handle in self._executions or handle in self._exits:
            raise OmniFlowError(Reason.PROTOCOL_VIOLATION, f"start with the handle {handle}, which is 0 or in use")
        sink = ResultSink(handle, start.activation, self, self._store)
        execution = self._host.admit(start, sink)
        if execution is not None:
            self._executions[handle] = execution

    def _close_exit(self, handle: int, reason: str) -> None:
        """Also before anything of the pipeline has come here: what comes then is late."""
        self._closed_exits.add(handle)
        end = self._exits.get(handle)
        if end is not None:
            end.cancel(reason)

    def _stop_pulse(self) -> None:
        if self._pulse is not None:
            self._pulse.cancel()

    def _beat(self) -> None:
        self._report_load()
        silent_s = time.monotonic() - self.pump.taken_at
        if silent_s >= self._heartbeat_s:
            if self.pump.is_idle:
                self.pump.send(results.heartbeat() + self.receipts.frame())
            else:
                self.pump.wake()  # for what nobody waits for, and what no other result has taken along
            silent_s = 0.0
        delay_s = self._heartbeat_s - silent_s
        if self._executions or self._told_load != (0, 0):
            delay_s = min(delay_s, LOAD_INTERVAL_S)
        self._pulse = asyncio.get_running_loop().call_later(delay_s, self._beat)

    def _report_load(self) -> None:
        """Tells what has changed since the last report; what others have started here is news to this control plane."""
        load = self._host.load()
        now = (load.running, load.waiting)
        if now != self._told_load:
            self._told_load = now
            self.pump.send(results.load(load))
