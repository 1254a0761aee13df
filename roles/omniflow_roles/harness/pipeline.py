"""One stage of a pipeline's run in this process: activations whose yields go on by themselves, in the order of their starts.

    start(1) ─▶ StageSink 1 ─yields─┐ head of the line: goes on at once
    start(2) ─▶ StageSink 2 ─yields─┤ held by their sink until it is the head      waiting ─▶ outlet ─▶ the next stage
    start(3) ─▶ StageSink 3 ─yields─┘                                                                or the exit

A sink gives up its place in the line with its last yield, and completes when all its yields have been handed on and all
that they have started has completed. A failure ends the whole pipeline, so nothing goes on after one: what comes later in
the order must not leave before what has failed.

Whoever has the run's links and windows is its outlet; what is told upstream goes to the sink that the link has given.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from omniflow.common.v1 import tensor_pb2
from omniflow.interface import Context, Interface, Outputs
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.control.windows import YieldWindow
from omniflow_core.errors import ErrorInfo
from omniflow_roles.harness.results import PipelineTotals
from omniflow_roles.harness.sink import ResultSink

if TYPE_CHECKING:
    from omniflow_roles.harness.execution import Execution

RunKey = tuple[str, int, int, int]
"""Call, activation of the first node, handle of the exit, stage."""


class StageHost(Protocol):
    """What a sink needs of the process that it is in."""

    def halt(self, execution: Execution, error: ErrorInfo, *, is_retryable: bool = False) -> bool:
        """Stops one execution."""

    def forget(self, execution: Execution) -> None:
        """Nothing of what was started with the execution runs any more."""


class PipelineChild(Protocol):
    """An activation of the next stage."""

    def cancel(self, reason: str) -> None:
        """It has nobody to work for; nothing more is heard of it."""


class Item:
    """What one yield gives on, ready to be sent but for what depends on the order."""

    __slots__ = ("body", "ordinal", "refs", "sink", "size_bytes")

    def __init__(
        self, sink: StageSink, ordinal: int, body: bytes, stored_bytes: int, refs: Collection[tensor_pb2.RemoteRef] = ()
    ) -> None:
        self.sink = sink
        self.ordinal = ordinal
        self.body = body
        self.size_bytes = len(body) + stored_bytes
        self.refs = refs
        """Payloads that this process keeps for it until its receiver has ended."""


class Outlet(Protocol):
    """Where a stage's yields go."""

    @property
    def is_lasting(self) -> bool:
        """Its run is to be known also while no activation of the stage is under way, until the outlet says its end."""

    @property
    def has_room(self) -> bool:
        """It takes another item now; when there is room again it calls `PipelineRun.pump`."""

    def item(self, sink: StageSink, ordinal: int, outputs: Outputs) -> Item | None:
        """What a yield gives on; None when it is skipped. Raises OmniFlowError for one that cannot be given on."""

    def send(self, item: Item) -> None: ...
    def drop(self, item: Item) -> None:
        """An item that will not be sent."""

    def close(self) -> None:
        """Nothing will be sent any more. Repeats change nothing."""


class PipelineRun:
    """The line of one stage's activations, and what waits for the outlet's windows."""

    __slots__ = (
        "_head",
        "_line",
        "_on_empty",
        "_sinks",
        "_waiting",
        "byte_credit",
        "is_broken",
        "key",
        "outlet",
        "yield_window",
    )

    def __init__(
        self, key: RunKey, *, yield_window: int, byte_credit: int, on_empty: Callable[[PipelineRun], None]
    ) -> None:
        self.key = key
        self.yield_window = yield_window
        """Of each activation, as the credit is."""
        self.byte_credit = byte_credit
        self.is_broken = False
        """Something in it has failed: nothing goes on any more."""
        self.outlet: Outlet
        self._sinks: set[StageSink] = set()
        """Those that have not told their end upstream."""
        self._line: OrderedDict[StageSink, None] = OrderedDict()
        self._head: StageSink | None = None
        self._waiting: deque[Item] = deque()
        self._on_empty = on_empty

    def join(self, sink: StageSink) -> None:
        """An activation has started."""
        self._sinks.add(sink)
        self._line[sink] = None
        if self._head is None:
            self._head = sink

    def forward(self, item: Item) -> None:
        """Hands an item on, when it is its turn."""
        if item.sink is not self._head:
            item.sink.held.append(item)
        elif self._waiting or not self.outlet.has_room:
            self._waiting.append(item)
        else:
            self.outlet.send(item)

    def pump(self) -> None:
        """The outlet may have room."""
        waiting, outlet = self._waiting, self.outlet
        while waiting and outlet.has_room and not self.is_broken:
            outlet.send(waiting.popleft())

    def given_all(self, sink: StageSink) -> None:
        """The activation yields nothing more. When it is the head, the next one is."""
        if sink is not self._head:
            if not sink.held:
                self._line.pop(sink, None)
            return
        head: StageSink | None = sink
        while head is not None and head.has_given_all:
            del self._line[head]
            head = self._head = next(iter(self._line), None)
            if head is not None:
                held, head.held = head.held, []
                for item in held:
                    self.forward(item)

    def fail(self, sink: StageSink) -> None:
        """The activation has failed, or was stopped."""
        self.is_broken = True
        self._head = None
        for item in sink.held:
            self.outlet.drop(item)
        if self._waiting:
            for item in self._waiting:
                if item.sink is sink:
                    self.outlet.drop(item)
            self._waiting = deque(item for item in self._waiting if item.sink is not sink)
        self.leave(sink)

    def leave(self, sink: StageSink) -> None:
        """The activation's end has been told upstream."""
        self._sinks.discard(sink)
        if not self._sinks:
            self._on_empty(self)

    def stop(self, error: ErrorInfo) -> None:
        """Nothing can leave any more: every activation fails."""
        for sink in tuple(self._sinks):
            sink.stop(error, is_retryable=False)


class StageSink:
    """Implements `omniflow.activation.Sink` for one activation, and `Scope`: what it has started ends with it."""

    __slots__ = (
        "_children",
        "_has_ended",
        "_has_left",
        "_host",
        "_run",
        "_totals",
        "_unsent",
        "_upstream",
        "_window",
        "execution",
        "has_given_all",
        "held",
        "path",
    )

    def __init__(self, run: PipelineRun, upstream: ResultSink, path: bytes, host: StageHost) -> None:
        """`path` is the activation's, packed."""
        self.path = path
        self.execution: Execution
        self.held: list[Item] = []
        """Yields that wait for the activation to become the head of its line."""
        self.has_given_all = False
        self._run = run
        self._upstream = upstream
        self._host = host
        self._window: YieldWindow | None = None
        self._totals = PipelineTotals()
        self._unsent = 0
        self._children: set[PipelineChild] = set()
        self._has_ended = False
        """Its end has been told upstream."""
        self._has_left = False

    # --- what the activation reports --------------------------------------------------------------------------------

    def yielded(self, ordinal: int, outputs: Outputs) -> int:
        run, window = self._run, self._window
        if window is None:
            window = self._window = YieldWindow(run.yield_window, run.byte_credit)
        item = run.outlet.item(self, ordinal, outputs)
        if item is None:
            self._acknowledge(window.register(0, 0))
            return 0
        window.register(1, item.size_bytes)
        self._unsent += 1
        run.forward(item)
        return item.size_bytes

    def answered(self, ordinal: int, outputs: Outputs, context: Context) -> None:
        item = self._run.outlet.item(self, ordinal, outputs)
        if item is not None:
            self._unsent += 1
            self._run.forward(item)
        self._give_up_place(context)

    def completed(self, yield_count: int, context: Context) -> None:
        self._give_up_place(context)

    def progress(self, completed: int, total: int, message: str) -> None:
        """Of its own, or of one below it."""
        self._upstream.progress(completed, total, message)

    def failed(self, error: ErrorInfo, is_retryable: bool) -> None:
        """Also when it is stopped, and when something below it has failed."""
        self._has_ended = True
        self._run.fail(self)
        children, self._children = self._children, set()
        for child in children:
            child.cancel("the activation that gave to it has ended")
        self._upstream.failed(error, is_retryable)
        self._forget_if_over()

    # --- what becomes of its yields ---------------------------------------------------------------------------------

    def started(self, child: PipelineChild) -> None:
        """A yield was handed on to the next stage."""
        self._unsent -= 1
        self._totals.started_activations += 1
        self._children.add(child)

    def exited(self, ordinal: int) -> None:
        """A yield was handed on to the exit."""
        self._unsent -= 1
        self._totals.yield_count += 1
        self.delivered(ordinal)
        self._complete_if_over()

    def delivered(self, ordinal: int) -> None:
        """Whoever the yield was given to has it."""
        if self._window is not None and not self.has_given_all:
            self._acknowledge(self._window.accept(ordinal))

    def child_completed(self, child: PipelineChild, message: messages.ActivationCompleted) -> None:
        """A child has completed, and all below it."""
        self._children.discard(child)
        self._totals.add(message)
        self._complete_if_over()

    def child_failed(self, child: PipelineChild, error: ErrorInfo) -> None:
        """A child has failed, and with it the pipeline."""
        self._children.discard(child)
        self.stop(error, is_retryable=False)

    # --- its scope --------------------------------------------------------------------------------------------------

    @property
    def interfaces(self) -> Collection[Interface]:
        return (self.execution.interface,)

    def acknowledge(self, inner_id: int, next_ordinal: int) -> None:
        """Nothing: its yields do not go to who has started it."""

    def stop(self, error: ErrorInfo, *, is_retryable: bool) -> bool:
        """Reports the failure at once, then stops what runs. False when the end has been told before."""
        if self._has_ended:
            return False
        if not self._host.halt(self.execution, error, is_retryable=is_retryable):
            self.failed(error, is_retryable)
        return True

    def left(self, execution: Execution) -> None:
        self._has_left = True
        self._forget_if_over()

    # ----------------------------------------------------------------------------------------------------------------

    def _give_up_place(self, context: Context) -> None:
        self.has_given_all = True
        self._totals.add_own(context)
        self._run.given_all(self)
        self._complete_if_over()

    def _complete_if_over(self) -> None:
        if not self.has_given_all or self._unsent or self._children or self._has_ended:
            return
        self._has_ended = True
        self._upstream.pipeline_completed(self._totals)
        self._run.leave(self)
        self._forget_if_over()

    def _forget_if_over(self) -> None:
        if self._has_ended and self._has_left:
            self._host.forget(self.execution)

    def _acknowledge(self, next_ordinal: int | None) -> None:
        """In the next turn of the loop: an activation hears of a yield's delivery only after it has counted the yield."""
        if next_ordinal is not None:
            asyncio.get_running_loop().call_soon(self.execution.activation.ack, next_ordinal)
