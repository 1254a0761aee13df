"""One run of a segment: the activation of its entry, and all that starts below it here.

    StartActivation{segment}  ─▶ entry ─yielded─▶ SegmentRun ─RunInner─▶ execution at its interface's seat ─yielded─▶ …
                                   └────────────────┬─────────────────────────────────────┘
                                                    └▶ SegmentSteps: what happened, in order

The run decides (pure), the host gives places, the steps tell the control plane. Whatever ends one of them before the run
has ended ends all of them, and the start's handle has one last result.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Collection, Iterable
from typing import Protocol

from omniflow.interface import Context, Interface, Outputs
from omniflow.large_values import ValueFetcher
from omniflow.threads import ThreadPool
from omniflow_core.control.segments import ENTRY, AckInner, RunInner, SegmentCommand, SegmentRun
from omniflow_core.errors import ErrorInfo
from omniflow_roles.harness.execution import Execution, context_of, inner_execution, started_execution
from omniflow_roles.harness.inputs import StartActivation
from omniflow_roles.harness.segment_graphs import SegmentGraph
from omniflow_roles.harness.segment_steps import SegmentSteps
from omniflow_roles.harness.sink import ResultSink

MAX_PER_NODE = 64
"""Activations of a node that run or wait at the same time; the next one keeps its producer waiting. As for inline nodes."""


class SegmentHost(Protocol):
    """What a run needs of the process that it is in."""

    @property
    def fetcher(self) -> ValueFetcher: ...
    @property
    def threads(self) -> ThreadPool: ...
    def interface(self, name: str) -> Interface:
        """One that the process serves."""

    def enter(self, execution: Execution) -> None:
        """Gives the execution its place, or lets it wait for one."""

    def halt(self, execution: Execution, error: ErrorInfo) -> bool:
        """Stops one execution."""

    def forget(self, execution: Execution) -> None:
        """Nothing of what was started with the execution runs any more."""


class SegmentRunner:
    """Runs a segment. All methods belong to the loop's thread."""

    def __init__(self, start: StartActivation, graph: SegmentGraph, sink: ResultSink, host: SegmentHost) -> None:
        """Raises OmniFlowError for inputs of the entry that cannot be decoded."""
        self._sink = sink
        self._host = host
        self._steps = SegmentSteps(sink, graph)
        self._run = SegmentRun(
            graph.plan,
            graph.entry,
            graph.exits,
            yield_window=start.yield_window,
            byte_credit=start.byte_credit,
        )
        self._byte_credit = start.byte_credit
        self._context = context_of(start)
        self._has_ended = False
        self._acks: dict[int, int] = {}
        self._queues = {name: NodeQueue(graph.plan.nodes[name].loop_bound) for name in graph.interfaces}
        self.interfaces: Collection[Interface] = [host.interface(name) for name in {*graph.interfaces.values()}]
        interface = host.interface(graph.interfaces[graph.entry])
        self.entry = started_execution(
            start, InnerSink(self, ENTRY, graph.entry), interface, host.fetcher, host.threads, scope=self
        )
        self._executions: dict[int, Execution] = {ENTRY: self.entry}
        """Those that have not left their seats."""

    def acknowledge(self, inner_id: int, next_ordinal: int) -> None:
        """The control plane has the yields below the ordinal."""
        self._perform(self._run.acknowledged(inner_id, next_ordinal))

    def stop(self, error: ErrorInfo, *, is_retryable: bool) -> bool:
        """Reports the failure at once, then stops what runs. False when the end has been reported before."""
        if self._has_ended:
            return False
        self._end(error, is_retryable=is_retryable)
        return True

    def left(self, execution: Execution) -> None:
        """An execution has given up its place. Repeats change nothing."""
        self._executions.pop(execution.inner_id, None)
        self._forget_if_over()

    # --- what executions report ---------------------------------------------------------------------------------------

    def yielded(self, inner_id: int, node: str, ordinal: int, outputs: Outputs) -> int:
        """Returns the bytes that the control plane and the run count it for."""
        size_bytes, stored_bytes = self._steps.yielded(inner_id, node, ordinal, outputs)
        self._perform(self._run.yielded(inner_id, ordinal, outputs, size_bytes, stored_bytes))
        self._steps.flush()
        return size_bytes + stored_bytes

    def answered(self, inner_id: int, node: str, ordinal: int, outputs: Outputs, context: Context) -> None:
        size_bytes, stored_bytes = self._steps.answered(inner_id, node, ordinal, outputs, context)
        self._perform(self._run.finished(inner_id, ordinal + 1, outputs, size_bytes, stored_bytes))
        self._make_room(inner_id, node)
        self._steps.flush()

    def progress(self, completed: int, total: int, message: str) -> None:
        self._sink.progress(completed, total, message)

    def completed(self, inner_id: int, node: str, yield_count: int, context: Context) -> None:
        self._steps.completed(inner_id, yield_count, context)
        self._perform(self._run.finished(inner_id, yield_count))
        self._make_room(inner_id, node)
        self._steps.flush()

    def failed(self, inner_id: int, node: str, error: ErrorInfo, is_retryable: bool) -> None:
        if self._has_ended:
            return  # it is stopped with the rest
        error = _named(error, node)
        self._steps.failed(inner_id, error, is_retryable)
        self._perform(self._run.failed(inner_id, error), is_retryable=is_retryable)
        self._make_room(inner_id, node)
        self._steps.flush()

    # --- what the run decides -----------------------------------------------------------------------------------------

    def _perform(self, commands: Iterable[SegmentCommand], *, is_retryable: bool = False) -> None:
        """In order; what a command brings about comes after those that were there before it."""
        queue = deque(commands)
        while queue:
            command = queue.popleft()
            if isinstance(command, RunInner):
                self._steps.started(command)
                if self._queues[command.node].admit(command):
                    queue.extend(self._enter(command))
            elif isinstance(command, AckInner):
                self._hand_over(command)
            else:
                self._end(command.error, is_retryable=is_retryable)

    def _enter(self, command: RunInner) -> list[SegmentCommand]:
        sink = InnerSink(self, command.inner_id, command.node)
        interface = self._host.interface(command.interface)
        execution = inner_execution(
            command, self._context, sink, interface, self._host.threads, self, byte_credit=self._byte_credit
        )
        self._executions[command.inner_id] = execution
        self._host.enter(execution)
        return self._run.accepted(command.inner_id)

    def _make_room(self, inner_id: int, node: str) -> None:
        """An activation has ended: the next of its node that was held back may enter."""
        if inner_id == ENTRY or self._has_ended:
            return
        following = self._queues[node].leave()
        if following is not None:
            self._perform(self._enter(following))

    def _hand_over(self, command: AckInner) -> None:
        """In the next turn of the loop: an activation hears of a yield's delivery only after it has counted the yield."""
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._hand_over_all)
        self._acks[command.inner_id] = command.next_ordinal

    def _hand_over_all(self) -> None:
        acks, self._acks = self._acks, {}
        for inner_id, next_ordinal in acks.items():
            execution = self._executions.get(inner_id)
            if execution is not None:
                execution.activation.ack(next_ordinal)

    def _end(self, error: ErrorInfo | None, *, is_retryable: bool) -> None:
        self._has_ended = True
        self._steps.flush()
        if error is None:
            self._sink.completed(0, self._context)
        else:
            self._sink.failed(error, is_retryable)
            for execution in tuple(self._executions.values()):
                self._host.halt(execution, error)
        self._forget_if_over()

    def _forget_if_over(self) -> None:
        if self._has_ended and not self._executions:
            self._host.forget(self.entry)


class InnerSink:
    """Implements `omniflow.activation.Sink` for one activation of a segment."""

    __slots__ = ("_inner_id", "_node", "_runner")

    def __init__(self, runner: SegmentRunner, inner_id: int, node: str) -> None:
        self._runner = runner
        self._inner_id = inner_id
        self._node = node

    def yielded(self, ordinal: int, outputs: Outputs) -> int:
        return self._runner.yielded(self._inner_id, self._node, ordinal, outputs)

    def progress(self, completed: int, total: int, message: str) -> None:
        self._runner.progress(completed, total, message)

    def answered(self, ordinal: int, outputs: Outputs, context: Context) -> None:
        self._runner.answered(self._inner_id, self._node, ordinal, outputs, context)

    def completed(self, yield_count: int, context: Context) -> None:
        self._runner.completed(self._inner_id, self._node, yield_count, context)

    def failed(self, error: ErrorInfo, is_retryable: bool) -> None:
        self._runner.failed(self._inner_id, self._node, error, is_retryable)


class NodeQueue:
    """Activations of one node in a run: those that were taken in, and those that are held back.

    Nothing is held back of a node with a loop bound. Each cycle has one, so no cycle can wait for itself, and its bound is
    on all its activations already.
    """

    __slots__ = ("_count", "_held", "_limit")

    def __init__(self, loop_bound: int) -> None:
        self._limit = max(MAX_PER_NODE, loop_bound)
        self._count = 0
        self._held: deque[RunInner] = deque()

    def admit(self, command: RunInner) -> bool:
        """False when it is held back."""
        if self._count >= self._limit:
            self._held.append(command)
            return False
        self._count += 1
        return True

    def leave(self) -> RunInner | None:
        """One has ended. Returns the one that takes its place."""
        if self._held:
            return self._held.popleft()
        self._count -= 1
        return None


def _named(error: ErrorInfo, node: str) -> ErrorInfo:
    """The error with the node that failed in its metadata."""
    return dataclasses.replace(error, metadata={"node": node, **error.metadata})
