"""The interfaces of one role process, and the activations that run and wait at them.

    admit ─▶ refused (failed at once)
         └─▶ waiting ─▶ running ─▶ left            at its InterfaceSeat
                └──── stop ────▶ left              the failure is reported before the cleanup

What is started with a segment counts once, from its start until nothing inside runs any more; activations inside have
their places at the same seats as all others. What is started with a pipeline counts until all that it has started elsewhere
has ended too, unless it was granted with the pipeline's first activation.

Knows nothing of gRPC: links hand in StartActivation messages with a sink each.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from omniflow.interface import Interface
from omniflow.large_values import ValueFetcher
from omniflow.role.v1 import replica_pb2
from omniflow.threads import ThreadPool
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_roles.harness.execution import DEFAULT_TENANT, Execution, started_execution
from omniflow_roles.harness.fences import CancelledCalls, FenceAge, SessionFences
from omniflow_roles.harness.inputs import StartActivation
from omniflow_roles.harness.pipelines import Pipelines
from omniflow_roles.harness.replica import State
from omniflow_roles.harness.seat import InterfaceSeat
from omniflow_roles.harness.segment import SegmentRunner
from omniflow_roles.harness.segment_graphs import SegmentGraphs
from omniflow_roles.harness.sink import ResultSink

logger = logging.getLogger(__name__)

_MAX_THREADS = 64
_TEARDOWN_S = 5.0
_NEWER_OWNER = ErrorInfo(reason=Reason.STALE_OWNER, message="the session has a newer owner")


class RoleHost:
    """Runs activations. `async with` holds their tasks; leaving it stops what still runs."""

    def __init__(
        self,
        interfaces: Sequence[Interface],
        *,
        fetcher: ValueFetcher,
        pipelines: Pipelines,
        max_activations: int,
        cleanup_grace_s: float,
    ) -> None:
        self._seats = {interface.name: InterfaceSeat(interface) for interface in interfaces}
        if len(self._seats) != len(interfaces):
            raise OmniFlowError(Reason.INVALID_CONFIG, "an interface is given twice")
        blocking = sum(i.max_concurrency for i in interfaces if i.is_blocking())
        self.threads = ThreadPool(min(_MAX_THREADS, max(1, blocking)), name="interface")
        self.fetcher = fetcher
        self._max_activations = max_activations
        self._cleanup_grace_s = cleanup_grace_s
        self._segments = SegmentGraphs(self._seats)
        self._pipelines = pipelines
        self._executions: set[Execution] = set()
        """What links have started; not what runs inside segments."""
        self._granted: set[Execution] = set()
        """Those of them that do not count."""
        self._by_call: dict[str, set[Execution]] = {}
        self._cancelled = CancelledCalls()
        self._told = {interface.name: CancelledCalls() for interface in interfaces}
        self._fences = SessionFences()
        self._tasks = asyncio.TaskGroup()
        self._idle = asyncio.Event()
        self._idle.set()
        self._set_up: list[Interface] = []
        self.state = State.STARTING

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for execution in tuple(self._executions):
            self._stop(
                execution, ErrorInfo(reason=Reason.DRAINING, message="the replica has stopped"), is_retryable=True
            )
        # Without the error: everything is stopped already, and the caller's error should arrive as it is.
        await self._tasks.__aexit__(None, None, None)
        self.threads.shutdown(wait=False, cancel_futures=True)

    @property
    def interfaces(self) -> list[Interface]:
        return [seat.interface for seat in self._seats.values()]

    @property
    def abandoned_threads(self) -> int:
        """Threads that still block in activations that were stopped."""
        return self.threads.abandoned_count

    def load(self) -> replica_pb2.ReplicaLoad:
        return replica_pb2.ReplicaLoad(
            running=sum(len(seat.running) for seat in self._seats.values()),
            waiting=sum(len(seat.waiting) for seat in self._seats.values()),
        )

    async def setup(self) -> None:
        """Sets up the interfaces, one after another; raises what the first that fails raises."""
        for interface in self.interfaces:
            started = time.monotonic()
            await self._call(interface.setup)
            self._set_up.append(interface)
            logger.info("%s is set up after %.2f s", interface.name, time.monotonic() - started)

    async def teardown(self) -> None:
        """Tears down what was set up, the last first; failures are logged, and what takes too long is left."""
        while self._set_up:
            interface = self._set_up.pop()
            try:
                async with asyncio.timeout(_TEARDOWN_S):
                    await self._call(interface.teardown)
            except Exception:
                logger.exception("teardown of %s failed", interface.name)

    async def wait_idle(self) -> None:
        """Returns when nothing runs or waits."""
        await self._idle.wait()

    def admit(self, start: StartActivation, sink: ResultSink) -> Execution | None:
        """Takes an activation in, or reports at once why not."""
        refusal = self._refusal(start)
        if refusal is not None:
            error, is_retryable = refusal
            sink.refused(error, is_retryable)
            return None
        seat = self._seats[start.activation.interface]
        try:
            execution = self._execution_of(start, sink, seat.interface)
        except OmniFlowError as error:
            sink.failed(error.info, False)
            return None
        sink.accepted(is_told=start.HasField("segment"))  # of a segment: it says who starts what follows
        is_granted = start.pipeline.stage > 0
        if is_granted:
            self._granted.add(execution)
        self._executions.add(execution)
        self._by_call.setdefault(execution.call_id, set()).add(execution)
        self._idle.clear()
        self.enter(execution)
        if start.HasField("deadline") and not is_granted:  # what has granted it ends it
            self._watch_deadline(execution, start.deadline.seconds + start.deadline.nanos / 1e9)
        return execution

    def cancel(self, execution: Execution, reason: str) -> None:
        """Stops one activation, with what it has started if it has a scope; the failure is reported before this returns."""
        for interface in execution.interfaces:
            self._tell_interface(interface, execution.call_id)
        self._stop(execution, ErrorInfo(reason=Reason.CALL_CANCELLED, message=reason or "the activation was cancelled"))

    def cancel_call(self, call_id: str, reason: str) -> int:
        """Stops a call's activations, and those of it that arrive later. Returns how many were told to stop."""
        executions = tuple(self._by_call.get(call_id, ()))
        if self._cancelled.add(call_id) or executions:
            for interface in self.interfaces:
                self._tell_interface(interface, call_id)
        error = ErrorInfo(reason=Reason.CALL_CANCELLED, message=reason or "the call was cancelled")
        count = sum(self._stop(execution, error) for execution in executions)
        self._pipelines.end_call(call_id)
        return count

    def end_call(self, call_id: str) -> None:
        """The call has had its terminal event: what still runs of it has nobody to work for."""
        if call_id in self._by_call:
            self.cancel_call(call_id, "the call has ended")
        else:
            self._pipelines.end_call(call_id)

    def stop_all(self, error: ErrorInfo) -> None:
        """Stops everything; other replicas may take it over."""
        for execution in tuple(self._executions):
            self._stop(execution, error, is_retryable=True)

    def _refusal(self, start: StartActivation) -> tuple[ErrorInfo, bool] | None:
        """Why an activation is not taken in, and whether another replica may."""
        ref = start.activation
        if self.state is State.DRAINING and not start.pipeline.stage:  # what was granted before comes in
            return ErrorInfo(reason=Reason.DRAINING, message="the replica is shutting down"), True
        if self.state is State.STARTING:
            return ErrorInfo(reason=Reason.NO_REPLICA, message="the replica is not set up yet", retry_after_s=1.0), True
        if ref.interface not in self._seats:
            served = ", ".join(self._seats)
            message = f"this replica does not serve {ref.interface!r}; it serves {served}"
            return ErrorInfo(reason=Reason.UNKNOWN_INTERFACE, message=message), False
        if ref.call_id in self._cancelled:
            return ErrorInfo(reason=Reason.CALL_CANCELLED, message="the call was cancelled"), False
        if start.session and self._is_stale(start):
            return _NEWER_OWNER, False
        count = len(self._executions) - len(self._granted)
        if self._max_activations and count >= self._max_activations and not start.pipeline.stage:
            message = f"the replica has {self._max_activations} activations, and takes no more"
            return ErrorInfo(reason=Reason.TOO_MANY_CALLS, message=message, retry_after_s=0.1), True
        return None

    def _is_stale(self, start: StartActivation) -> bool:
        """Whether the session has a newer owner than the one that starts this. What an older one has started ends."""
        age = self._fences.see(start.tenant, start.session, start.session_fence)
        if age is FenceAge.NEWER:
            session = (start.tenant or DEFAULT_TENANT, start.session)
            for execution in [e for e in self._executions if e.session == session]:
                self._stop(execution, _NEWER_OWNER)
        return age is FenceAge.STALE

    def _execution_of(self, start: StartActivation, sink: ResultSink, interface: Interface) -> Execution:
        if start.HasField("segment"):
            return SegmentRunner(start, self._segments.of(start), sink, self).entry
        if start.HasField("pipeline"):
            return self._pipelines.begin(start, sink, interface, self)
        return started_execution(start, sink, interface, self.fetcher, self.threads)

    # For runs of segments and pipelines.

    def interface(self, name: str) -> Interface:
        """One that is served here."""
        return self._seats[name].interface

    def enter(self, execution: Execution) -> None:
        """Gives the execution its place, or lets it wait for one."""
        seat = self._seats[execution.interface.name]
        seat.waiting.append(execution)
        self._fill(seat)

    def halt(self, execution: Execution, error: ErrorInfo, *, is_retryable: bool = False) -> bool:
        """Stops one execution and nothing else. False when it had reported its end before."""
        if execution.activation.has_ended:
            return False
        seat = self._seats[execution.interface.name]
        execution.activation.stop(error, is_retryable=is_retryable)
        if execution in seat.running:
            asyncio.get_running_loop().call_later(self._cleanup_grace_s, self._evict, execution, seat)
        else:
            self._leave(execution, seat)
        return True

    def forget(self, execution: Execution) -> None:
        """Nothing of what was started with the execution runs any more. Repeats change nothing."""
        if execution.deadline_timer is not None:
            execution.deadline_timer.cancel()
        self._executions.discard(execution)
        self._granted.discard(execution)
        of_call = self._by_call.get(execution.call_id)
        if of_call is not None:
            of_call.discard(execution)
            if not of_call:
                del self._by_call[execution.call_id]
        if not self._executions:
            self._idle.set()

    # Places.

    def _fill(self, seat: InterfaceSeat) -> None:
        while (execution := seat.take_next()) is not None:
            self._tasks.create_task(self._run(execution, seat))

    async def _run(self, execution: Execution, seat: InterfaceSeat) -> None:
        try:
            await execution.activation.run(execution.fetch_inputs)
        finally:
            self._leave(execution, seat)

    def _leave(self, execution: Execution, seat: InterfaceSeat) -> None:
        """Repeats change nothing."""
        seat.leave(execution)
        self._fill(seat)
        if execution.scope is None:
            self.forget(execution)
        else:
            execution.scope.left(execution)

    def _stop(self, execution: Execution, error: ErrorInfo, *, is_retryable: bool = False) -> bool:
        """Stops what was started with the execution. False when it had reported its end before."""
        if execution.scope is None:
            return self.halt(execution, error, is_retryable=is_retryable)
        return execution.scope.stop(error, is_retryable=is_retryable)

    def _evict(self, execution: Execution, seat: InterfaceSeat) -> None:
        if execution in seat.running:
            logger.warning(
                "%s still cleans up activation of call %s %.1f s after it was stopped; its place is given away",
                seat.interface.name,
                execution.call_id,
                self._cleanup_grace_s,
            )
            self._leave(execution, seat)

    def _watch_deadline(self, execution: Execution, deadline_unix_s: float) -> None:
        error = ErrorInfo(reason=Reason.DEADLINE_EXCEEDED, message="the deadline of the call has passed")
        delay_s = max(0.0, deadline_unix_s - time.time())
        loop = asyncio.get_running_loop()
        execution.deadline_timer = loop.call_later(delay_s, self._stop, execution, error)

    def _tell_interface(self, interface: Interface, call_id: str) -> None:
        """Once for each call: a cancel comes on two paths."""
        if not self._told[interface.name].add(call_id):
            return
        try:
            interface.on_cancel(call_id)
        except Exception:
            logger.exception("on_cancel of %s failed", interface.name)

    async def _call(self, hook: Callable[[], Awaitable[None] | None]) -> None:
        """A hook of an interface: a coroutine function runs on the loop, a plain function in a thread."""
        if inspect.iscoroutinefunction(hook):
            await hook()
            return
        result = await asyncio.wrap_future(self.threads.submit(hook))
        if result is not None:
            await result
