"""The scheduler of one graph call: composes windows and return order into `handle(event) -> commands`.

Decides which activations start, what the caller is given and in which order, and when the call ends. Does not know
replicas, sockets, clocks or the content of values; a call's place in its session is `calls`. Paper: section 3 and A.3.

    CallAdmitted{text}           -> Start(1: parser)
    Yielded(1, 0, {text})        -> Start(2: llm.typed), Ack
    Finished(1)                  ->
    Yielded(2, 0, {tokens})      -> Emit(tokens)
    Finished(2)                  -> FinishCall, ReleaseCall

Never raises for what a peer did: events of unknown or ended activations, repeated yields and late acceptances change
nothing. After the terminal command only ReleaseCall follows, once the last activation has ended.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

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
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    CancelRequested,
    Event,
    InputArrived,
    Value,
)
from omniflow_core.control.ordering import OrderNode, OrderTree
from omniflow_core.control.windows import YieldWindow
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.plan import Delivery, GraphPlan, NodePlan
from omniflow_core.graph.spec import OnFailure, OnImpossible

_FINISH_REASON_RANK = {"": 0, "stop": 1, "length": 2, "tool_calls": 3}


class CallPhase(enum.Enum):
    """Where a call is: QUEUED -> RUNNING -> ENDED, or QUEUED -> ENDED."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


class _Activation:
    """One execution that has not ended. The call's source is one too, with id 0."""

    __slots__ = (
        "activation_id",
        "caused_by",
        "caused_ordinal",
        "is_accepted",
        "node",
        "order_nodes",
        "origin_path",
        "window",
    )

    def __init__(
        self,
        activation_id: int,
        node: NodePlan,
        origin_path: tuple[int, ...],
        order_nodes: dict[int, OrderNode],
        window: YieldWindow,
        caused_by: _Activation | None,
        caused_ordinal: int,
    ) -> None:
        self.activation_id = activation_id
        self.node = node
        self.origin_path = origin_path
        self.order_nodes = order_nodes
        self.window = window
        self.caused_by = caused_by
        self.caused_ordinal = caused_ordinal
        self.is_accepted = False


class CallScheduler:
    """State of one call. `handle` is the only way to change it."""

    def __init__(
        self,
        plan: GraphPlan,
        *,
        yield_window: int = 64,
        byte_credit: int = 1024 * 1024,
        hold_limit_bytes: int = 64 * 1024 * 1024,
        max_activations: int = 1_000_000,
    ) -> None:
        self._plan = plan
        self._yield_window = yield_window
        self._byte_credit = byte_credit
        self._hold_limit_bytes = hold_limit_bytes
        self._max_activations = max_activations
        self.phase = CallPhase.QUEUED
        self.open_inputs: frozenset[str] = frozenset()
        self._trees = tuple(OrderTree() for _ in plan.ordered_outputs)
        self._source = _Activation(
            0,
            plan.source,
            (),
            {i: self._trees[i].root for i in plan.source.reaches},
            YieldWindow(yield_window, byte_credit),
            None,
            0,
        )
        self._is_source_open = True
        self._active: dict[int, _Activation] = {}
        self._next_id = 1
        self._is_released = False
        self._iterations: dict[str, int] = {}
        self._finish_reason = ""
        self._input_tokens = self._cached_input_tokens = self._output_tokens = 0

    @classmethod
    def ended(cls, plan: GraphPlan) -> CallScheduler:
        """What is left of any call that has ended and been released: it answers every event with nothing.

        Drivers keep ended calls for a while; one such scheduler stands for all of them.
        """
        scheduler = cls(plan)
        scheduler.phase = CallPhase.ENDED
        scheduler._is_released = True
        return scheduler

    @property
    def active_count(self) -> int:
        """Activations that have not ended."""
        return len(self._active)

    @property
    def undelivered_inputs(self) -> int:
        """Values of streaming inputs that some receiver has not accepted yet."""
        return self._source.window.undelivered

    def handle(self, event: Event) -> list[Command]:
        """Takes one event in and says what to do, in order."""
        return _HANDLERS[type(event)](self, event)

    # --- the call's source ----------------------------------------------------------------------------------------

    def _on_admitted(self, event: CallAdmitted) -> list[Command]:
        if self.phase is not CallPhase.QUEUED:
            return []
        self.phase = CallPhase.RUNNING
        self.open_inputs = event.open_inputs
        commands: list[Command] = []
        if event.inputs:
            self._yield_from(self._source, event.inputs, 0, commands)
        self._close_source_if_done(commands)
        return self._settle(commands)

    def _on_input(self, event: InputArrived) -> list[Command]:
        if self.phase is not CallPhase.RUNNING or event.name not in self.open_inputs:
            return []
        commands: list[Command] = []
        if event.value is not None:
            self._yield_from(self._source, {event.name: event.value}, event.size_bytes, commands)
        if event.is_last:
            self.open_inputs -= {event.name}
            self._close_source_if_done(commands)
        return self._settle(commands)

    def _close_source_if_done(self, commands: list[Command]) -> None:
        if not self.open_inputs and self._is_source_open:
            self._is_source_open = False
            self._finish_orders(self._source, commands)

    # --- activations ----------------------------------------------------------------------------------------------

    def _on_accepted(self, event: ActivationAccepted) -> list[Command]:
        activation = self._active.get(event.activation_id)
        if activation is None or activation.is_accepted:
            return []
        commands: list[Command] = []
        self._accept(activation, commands)
        return commands

    def _on_yielded(self, event: ActivationYielded) -> list[Command]:
        activation = self._active.get(event.activation_id)
        if activation is None or self.phase is not CallPhase.RUNNING:
            return []
        if event.ordinal != activation.window.next_ordinal:
            return self._on_yield_out_of_order(activation, event.ordinal)
        commands: list[Command] = []
        if not activation.is_accepted:
            self._accept(activation, commands)
        self._yield_from(activation, event.fields, event.size_bytes, commands, stored_bytes=event.stored_bytes)
        return self._settle(commands)

    def _on_yield_out_of_order(self, activation: _Activation, ordinal: int) -> list[Command]:
        if ordinal < activation.window.next_ordinal:
            return []  # a repeat
        return self._on_failed(
            ActivationFailed(
                activation.activation_id,
                ErrorInfo(
                    reason=Reason.INTERNAL,
                    message=f"Node {activation.node.name!r} skipped from yield {activation.window.next_ordinal} "
                    f"to {ordinal}.",
                ),
            )
        )

    def _on_finished(self, event: ActivationFinished) -> list[Command]:
        activation = self._active.get(event.activation_id)
        if activation is None:
            return []
        if self.phase is CallPhase.RUNNING and event.yield_count != activation.window.next_ordinal:
            return self._on_yield_out_of_order(activation, max(event.yield_count, activation.window.next_ordinal + 1))
        self._input_tokens += event.input_tokens
        self._cached_input_tokens += event.cached_input_tokens
        self._output_tokens += event.output_tokens
        if _FINISH_REASON_RANK.get(event.finish_reason, 0) > _FINISH_REASON_RANK[self._finish_reason]:
            self._finish_reason = event.finish_reason
        commands: list[Command] = []
        self._end_activation(activation, commands)
        return self._settle(commands)

    def _on_failed(self, event: ActivationFailed) -> list[Command]:
        activation = self._active.get(event.activation_id)
        if activation is None:
            return []
        commands: list[Command] = []
        self._end_activation(activation, commands)
        spec = activation.node.spec
        is_skipped = spec is not None and spec.on_failure is OnFailure.SKIP
        if self.phase is CallPhase.RUNNING and not is_skipped:
            self._fail(event.error, commands)
        return self._settle(commands)

    def _on_cancel(self, event: CancelRequested) -> list[Command]:
        if self.phase is CallPhase.ENDED:
            return []
        commands: list[Command] = []
        self._fail(event.error, commands)
        return self._settle(commands)

    # --- what a yield does ------------------------------------------------------------------------------------------

    def _yield_from(
        self,
        producer: _Activation,
        fields: Mapping[str, Value],
        size_bytes: int,
        commands: list[Command],
        *,
        stored_bytes: int = 0,
    ) -> None:
        """Hands one yield to every output and input group that it feeds."""
        ordinal = producer.window.next_ordinal
        path = (*producer.origin_path, ordinal)
        released: list[Emit] = []
        for emission in producer.node.emissions:
            if emission.source_field in fields:
                event = Emit(emission.output, producer.node.name, path, fields[emission.source_field])
                if emission.order < 0:
                    released.append(event)
                else:
                    tree = self._trees[emission.order]
                    tree.emit(producer.order_nodes[emission.order], ordinal, event, size_bytes, released)
                    if tree.held_bytes > self._hold_limit_bytes:
                        self._fail(_hold_full(emission.output, self._hold_limit_bytes), commands)
                        return
        started: list[StartActivation] = []
        for delivery in producer.node.deliveries:
            start = self._deliver(delivery, producer, ordinal, path, fields)
            if isinstance(start, ErrorInfo):
                self._take_back(started)
                self._fail(start, commands)
                return
            if start is not None:
                started.append(start)
        for order, node in producer.order_nodes.items():
            self._trees[order].complete_yield(node, ordinal, released)
        commands.extend(released)
        commands.extend(started)
        ack = producer.window.register(len(started), size_bytes + stored_bytes)
        if ack is not None and producer is not self._source:
            commands.append(AckYields(producer.activation_id, ack))

    def _deliver(
        self,
        delivery: Delivery,
        producer: _Activation,
        ordinal: int,
        path: tuple[int, ...],
        fields: Mapping[str, Value],
    ) -> StartActivation | ErrorInfo | None:
        """The start of the group's activation, None for a skipped delivery, or the error that ends the call."""
        present = {target: (fields[source],) for source, target in delivery.fields if source in fields}
        if not present:
            return None
        missing = delivery.required - fields.keys()
        spec = delivery.node.spec
        assert spec is not None, "only the source has no spec"
        if missing:
            return _impossible(delivery, missing) if spec.on_impossible is OnImpossible.FAIL else None
        error = self._count_iteration(delivery.node)
        if error is not None:
            return error
        activation = _Activation(
            self._next_id,
            delivery.node,
            path,
            {i: self._trees[i].add_child(producer.order_nodes[i], ordinal) for i in delivery.node.reaches},
            YieldWindow(spec.yield_window or self._yield_window, self._byte_credit),
            producer,
            ordinal,
        )
        self._next_id += 1
        self._active[activation.activation_id] = activation
        return StartActivation(activation.activation_id, delivery.node, delivery.group, present, path)

    def _take_back(self, started: list[StartActivation]) -> None:
        """Activations whose start has not been commanded and never will be: the call ends in the same step."""
        for unsent in started:
            del self._active[unsent.activation_id]
        self._next_id -= len(started)

    def _count_iteration(self, node: NodePlan) -> ErrorInfo | None:
        """The error when a loop has run too often or too much was started."""
        if self._next_id > self._max_activations:
            return _too_many(f"The call started more than {self._max_activations} activations.", node)
        if not node.loop_bound:
            return None
        count = self._iterations[node.name] = self._iterations.get(node.name, 0) + 1
        if count <= node.loop_bound:
            return None
        return _too_many(f"Node {node.name!r} ran more than loop_bound = {node.loop_bound} times.", node)

    def _accept(self, activation: _Activation, commands: list[Command]) -> None:
        activation.is_accepted = True
        producer = activation.caused_by
        activation.caused_by = None
        if producer is None:
            return
        ack = producer.window.accept(activation.caused_ordinal)
        if ack is not None and producer.activation_id in self._active and self.phase is CallPhase.RUNNING:
            commands.append(AckYields(producer.activation_id, ack))

    def _end_activation(self, activation: _Activation, commands: list[Command]) -> None:
        del self._active[activation.activation_id]
        if not activation.is_accepted:
            self._accept(activation, commands)
        self._finish_orders(activation, commands)

    def _finish_orders(self, activation: _Activation, commands: list[Command]) -> None:
        released: list[Emit] = []
        for order, node in activation.order_nodes.items():
            self._trees[order].finish(node, activation.window.next_ordinal, released)
        if self.phase is CallPhase.RUNNING:
            commands.extend(released)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _fail(self, error: ErrorInfo, commands: list[Command]) -> None:
        """Ends the call with an error: what runs is told to stop, then the terminal event goes out."""
        if self.phase is CallPhase.ENDED:
            return
        self.phase = CallPhase.ENDED
        self.open_inputs = frozenset()
        if self._active:
            commands.append(CancelActivations(error.message))
        commands.append(FailCall(error, self._usage()))

    def _settle(self, commands: list[Command]) -> list[Command]:
        """Ends the call when nothing is left to do, and releases it when nothing runs any more."""
        if self._active:
            return commands
        if self.phase is CallPhase.RUNNING and not self._is_source_open:
            self.phase = CallPhase.ENDED
            commands.append(FinishCall(self._finish_reason or "stop", self._usage()))
        if self.phase is CallPhase.ENDED and not self._is_released:
            self._is_released = True
            commands.append(ReleaseCall())
        return commands

    def _usage(self) -> CallUsage:
        return CallUsage(
            input_tokens=self._input_tokens,
            cached_input_tokens=self._cached_input_tokens,
            output_tokens=self._output_tokens,
            activations=self._next_id - 1,
        )

    def check_integrity(self) -> None:
        """Recomputes the invariants. For tests, after every step."""
        for tree in self._trees:
            if self.phase is CallPhase.RUNNING:
                tree.check_integrity()
        if self.phase is CallPhase.ENDED and not self._active:
            assert self._is_released, "an ended call without activations was not released"


_HANDLERS: Mapping[type, Callable[..., list[Command]]] = {
    CallAdmitted: CallScheduler._on_admitted,
    InputArrived: CallScheduler._on_input,
    ActivationAccepted: CallScheduler._on_accepted,
    ActivationYielded: CallScheduler._on_yielded,
    ActivationFinished: CallScheduler._on_finished,
    ActivationFailed: CallScheduler._on_failed,
    CancelRequested: CallScheduler._on_cancel,
}


def _impossible(delivery: Delivery, missing: frozenset[str]) -> ErrorInfo:
    targets = sorted(target for source, target in delivery.fields if source in missing)
    where = f"{delivery.node.name}.{delivery.group}"
    return ErrorInfo(
        reason=Reason.IMPOSSIBLE_INPUT,
        message=f"Input group {where} got some of its fields but can never get {', '.join(targets)}.",
        metadata={"node": delivery.node.name, "group": delivery.group, "missing": ",".join(targets)},
    )


def _hold_full(output: str, limit_bytes: int) -> ErrorInfo:
    return ErrorInfo(
        reason=Reason.BUFFER_FULL,
        message=f"More than {limit_bytes} bytes of output {output!r} wait for an earlier sibling.",
        metadata={"output": output},
    )


def _too_many(message: str, node: NodePlan) -> ErrorInfo:
    return ErrorInfo(reason=Reason.LOOP_BOUND_EXCEEDED, message=message, metadata={"node": node.name})
