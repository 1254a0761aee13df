"""The scheduler of one graph call: composes order, joins, counts, chunks and windows into `handle(event) -> commands`.

Decides which activations start, what the caller is given and in which order, and when the call ends. Does not know
replicas, sockets, clocks or the content of values; a call's place in its session is `calls`. Paper: section 3 and A.3.

    CallAdmitted{image}          -> Start(1: parser)
    Yielded(1, 0, {image})       -> Start(2: vit), Start(3: vae), Ack       a bucket of llm.pictured opens below 1:0
    Finished(1)                  ->
    Yielded(3, 0, {latent})      ->                                         into the bucket
    Yielded(2, 0, {embedding})   ->
    Finished(2), Finished(3)     -> Start(4: llm.pictured)                  nothing below 1:0 can contribute any more
    Finished(4)                  -> FinishCall, ReleaseCall

Never raises for what a peer did: events of unknown, ended or earlier attempts of activations, repeated yields and late
acceptances change nothing. After the terminal command only ReleaseCall follows, once the last activation has ended.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Callable, Mapping
from typing import NoReturn

from omniflow_core.control.chunk_feeds import ChunkFeeds
from omniflow_core.control.commands import (
    AckYields,
    CallUsage,
    CancelActivations,
    Command,
    FailCall,
    FinishCall,
    ReleaseCall,
)
from omniflow_core.control.count_joins import CountJoins, CountOf
from omniflow_core.control.delivery import YieldDelivery
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    CancelRequested,
    Event,
    ExitYielded,
    InputArrived,
    Value,
)
from omniflow_core.control.failures import CallFailure, broken_protocol, replay_diverged
from omniflow_core.control.inspection import CallInspection, check_integrity, inspect
from omniflow_core.control.joins import PrefixJoins
from omniflow_core.control.work import CallWork
from omniflow_core.control.work_items import NO_SCOPES, Activation, HostedSegment
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.plan import GraphPlan
from omniflow_core.graph.spec import OnFailure, Replay

_FINISH_REASON_RANK = {"": 0, "stop": 1, "length": 2, "tool_calls": 3}

DigestOf = Callable[[Mapping[str, Value]], bytes]
"""What two yields are compared by when a deterministic node runs again."""


class CallPhase(enum.Enum):
    """Where a call is: QUEUED -> RUNNING -> ENDED, or QUEUED -> ENDED."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


def integer_count(value: Value) -> int | None:
    """The count that a plain integer gives."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def digest_of_text(fields: Mapping[str, Value]) -> bytes:
    """Digest of values that tell themselves apart when printed."""
    return hashlib.blake2b(repr(sorted(fields.items())).encode(), digest_size=16).digest()


class CallScheduler:
    """State of one call. `handle` is the only way to change it."""

    def __init__(
        self,
        plan: GraphPlan,
        *,
        yield_window: int = 64,
        byte_credit: int = 1024 * 1024,
        store_limit_bytes: int = 64 * 1024 * 1024,
        max_activations: int = 1_000_000,
        max_attempts: int = 3,
        count_of: CountOf = integer_count,
        digest_of: DigestOf = digest_of_text,
    ) -> None:
        self.phase = CallPhase.QUEUED
        self.open_inputs: frozenset[str] = frozenset()
        self._max_attempts = max_attempts
        self._digest_of = digest_of
        self._work = CallWork(
            plan,
            yield_window=yield_window,
            byte_credit=byte_credit,
            store_limit_bytes=store_limit_bytes,
            max_activations=max_activations,
        )
        self._counts = CountJoins(plan, self._work, count_of)
        self._joins = PrefixJoins(self._work, self._counts)
        self._chunks = ChunkFeeds(self._work, self._joins)
        self._delivery = YieldDelivery(plan, self._work, self._joins, self._counts, self._chunks)
        roots = {tree: self._work.trees[tree].root for tree in plan.source.reaches}
        self._source = Activation(0, plan.source, -1, None, (), roots, NO_SCOPES, self._work.new_window(plan.source))
        self._is_source_open = True
        self._is_released = False
        self._finish_reason = ""
        self._input_tokens = self._cached_input_tokens = self._output_tokens = 0
        self._histories: list[object] = []

    @classmethod
    def ended(cls, plan: GraphPlan) -> CallScheduler:
        """What is left of any call that has ended and been released: it answers every event with nothing.

        Drivers keep ended calls for a while; one such scheduler stands for all of them.
        """
        scheduler = cls(plan)
        scheduler.phase = CallPhase.ENDED
        scheduler._is_released = True
        scheduler._forget()
        return scheduler

    @property
    def active_count(self) -> int:
        """Activations that have not ended."""
        return len(self._work.active)

    @property
    def held_count(self) -> int:
        """Activations that wait for their turn at a gate."""
        return sum(activation.is_held for activation in self._work.active.values())

    @property
    def open_buckets(self) -> int:
        """Prefix-join buckets that have not settled, and count joins that something has come for."""
        return len(self._work.buckets) + sum(entry.join.has_data for entry in self._counts)

    @property
    def lease_count(self) -> int:
        """Leases that are held."""
        return len(self._work.leases)

    @property
    def undelivered_inputs(self) -> int:
        """Values of streaming inputs that some receiver has not accepted yet."""
        return self._source.window.undelivered

    def handle(self, event: Event) -> list[Command]:
        """Takes one event in and says what to do, in order."""
        work = self._work
        out = work.out = []
        try:
            _HANDLERS[type(event)](self, event)
            while work.closed:
                self._joins.settle(work.closed.popleft())
            if work.room.debts:
                work.room.settle()
            self._settle()
        except CallFailure as failure:
            self._fail(failure.error)
            self._settle()
        return out

    def segment_of(self, activation_id: int) -> HostedSegment | None:
        """The run of a segment that an activation belongs to."""
        activation = self._work.active.get(activation_id)
        return activation.hosted if activation is not None else None

    def origin_of(self, activation_id: int) -> tuple[int, int]:
        """Last token of the path of an activation that has not ended: activation and yield ordinal; (0, 0) for none."""
        origin = self._work.active[activation_id].origin
        return (origin.activation_id, origin.ordinal) if origin is not None else (0, 0)

    # --- the call's source ----------------------------------------------------------------------------------------

    def _on_admitted(self, event: CallAdmitted) -> None:
        if self.phase is not CallPhase.QUEUED:
            return
        self.phase = CallPhase.RUNNING
        self.open_inputs = event.open_inputs
        if event.inputs:
            self._delivery.deliver(self._source, event.inputs, 0, 0, port="")
        self._close_source_if_done()

    def _on_input(self, event: InputArrived) -> None:
        if self.phase is not CallPhase.RUNNING or event.name not in self.open_inputs:
            return
        if event.value is not None:
            self._delivery.deliver(self._source, {event.name: event.value}, event.size_bytes, 0, port=event.name)
        if event.is_last:
            self.open_inputs -= {event.name}
            self._chunks.close_inputs(self._source, self.open_inputs)
            self._close_source_if_done()

    def _close_source_if_done(self) -> None:
        if not self.open_inputs and self._is_source_open:
            self._is_source_open = False
            self._chunks.close(self._source)
            yields = self._source.window.next_ordinal + self._source.virtual_yields
            for tree, place in self._source.order_nodes.items():
                self._work.trees[tree].finish(place, yields, self._work.freed)
            self._work.flush()

    # --- activations ----------------------------------------------------------------------------------------------

    def _find(self, activation_id: int, attempt: int) -> Activation | None:
        """The activation that an event is about; None when it has ended, or the event is of an earlier attempt."""
        activation = self._work.active.get(activation_id)
        return activation if activation is not None and activation.attempt == attempt else None

    def _on_accepted(self, event: ActivationAccepted) -> None:
        activation = self._find(event.activation_id, event.attempt)
        if activation is None or activation.is_accepted or self.phase is not CallPhase.RUNNING:
            return
        segment = activation.node.segment
        if event.hosts_segment and segment is not None and segment.entry == activation.node.name:
            activation.hosted = HostedSegment(segment)
        self._work.accept(activation)

    def _on_yielded(self, event: ActivationYielded) -> None:
        activation = self._find(event.activation_id, event.attempt)
        if activation is not None and self.phase is CallPhase.RUNNING:
            self._take_yield(activation, event.ordinal, event.fields, event.size_bytes, event.stored_bytes)

    def _take_yield(
        self, activation: Activation, given: int, fields: Mapping[str, Value], size_bytes: int, stored_bytes: int
    ) -> None:
        """One output of a running call; `given` is the ordinal that it says it has."""
        if activation.repeated:
            if not activation.is_accepted:
                self._work.accept(activation)
            self._on_repeated(activation, given, fields)
            return
        ordinal = activation.window.next_ordinal
        if given != ordinal:
            if given > ordinal:
                self._break(activation, f"skipped from yield {ordinal} to {given}")
            return
        spec = activation.node.spec
        if ordinal and spec is not None and not spec.is_streaming:
            self._break(activation, "yields more than once, but is not declared streaming")
        if not activation.is_accepted:
            self._work.accept(activation)
        if stored_bytes:
            activation.start = None  # its replica keeps what it gave, so another one cannot take over
        if activation.digests is not None:
            activation.digests.append(self._digest_of(fields))
        elif activation.delivered is not None:
            activation.delivered.append(fields)
        self._delivery.deliver(activation, fields, size_bytes, stored_bytes)

    def _on_repeated(self, activation: Activation, given: int, fields: Mapping[str, Value]) -> None:
        """A yield that an earlier attempt gave: compared, not delivered again."""
        digests = activation.digests
        assert digests is not None, "only a deterministic node repeats yields"
        ordinal = len(digests) - activation.repeated
        if given < ordinal:
            return
        if given > ordinal or self._digest_of(fields) != digests[ordinal]:
            raise CallFailure(replay_diverged(activation.node, ordinal))
        activation.repeated -= 1
        if ordinal < activation.window.delivered:  # the others are acknowledged when their receivers have them
            self._work.out.append(AckYields(activation.activation_id, ordinal + 1))

    def _on_exit(self, event: ExitYielded) -> None:
        activation = self._find(event.activation_id, event.attempt)
        if activation is None or self.phase is not CallPhase.RUNNING:
            return
        pipeline = activation.node.pipeline
        if pipeline is None:
            self._break(activation, "yields out of a pipeline, but is the first node of none")
        ordinal = activation.window.next_ordinal
        if event.ordinal != ordinal:
            if event.ordinal > ordinal:
                self._break(activation, f"skipped from exit {ordinal} to {event.ordinal} of its pipeline")
            return
        above, path = activation.origin_path, event.origin_path
        if path[: len(above)] != above or len(path) != len(above) + len(pipeline.nodes):
            self._break(activation, f"yields out of its pipeline at {path}, but its own path is {above}")
        if not activation.is_accepted:
            self._work.accept(activation)
        if not ordinal:
            activation.window = self._work.new_exit_window(pipeline)
        self._delivery.give_out(activation, pipeline, event.fields, path, event.size_bytes + event.stored_bytes)

    def _break(self, activation: Activation, what: str) -> NoReturn:
        """The activation did what it must not do. It still runs, so it is told to stop with the rest of the call."""
        raise CallFailure(broken_protocol(activation.node, what))

    def _on_finished(self, event: ActivationFinished) -> None:
        activation = self._find(event.activation_id, event.attempt)
        if activation is None:
            return
        if self.phase is CallPhase.RUNNING:
            if event.last is not None:
                self._take_last(activation, event)
            came = activation.window.next_ordinal
            if activation.repeated or event.yield_count != came:
                del self._work.active[activation.activation_id]
                if activation.repeated:
                    raise CallFailure(replay_diverged(activation.node, event.yield_count))
                self._break(activation, f"gave {came} yields and says {event.yield_count}")
        self._input_tokens += event.input_tokens
        self._cached_input_tokens += event.cached_input_tokens
        self._output_tokens += event.output_tokens
        self._histories.extend(event.histories)
        if event.started_activations:
            self._work.started += event.started_activations
        if _FINISH_REASON_RANK.get(event.finish_reason, 0) > _FINISH_REASON_RANK[self._finish_reason]:
            self._finish_reason = event.finish_reason
        self._end(activation)

    def _take_last(self, activation: Activation, event: ActivationFinished) -> None:
        """The yield that came with the end."""
        assert event.last is not None
        try:
            self._take_yield(activation, event.yield_count - 1, event.last, event.size_bytes, event.stored_bytes)
            while self._work.closed:
                self._joins.settle(self._work.closed.popleft())
        except CallFailure:
            del self._work.active[activation.activation_id]  # it has ended, whatever its yield was
            raise

    def _on_failed(self, event: ActivationFailed) -> None:
        activation = self._find(event.activation_id, event.attempt)
        if activation is None:
            return
        if event.error.reason is Reason.REPLICA_LOST and self._try_again(activation):
            return
        self._end_failed(activation, event.error)

    def _end_failed(self, activation: Activation, error: ErrorInfo) -> None:
        """Ends the activation, and with it the call unless its interface says otherwise."""
        spec = activation.node.spec
        is_skipped = spec is not None and spec.on_failure is OnFailure.SKIP
        if self.phase is CallPhase.RUNNING and not is_skipped:
            del self._work.active[activation.activation_id]
            raise CallFailure(error)
        self._end(activation)

    def _end(self, activation: Activation) -> None:
        if self.phase is CallPhase.RUNNING:
            try:
                self._chunks.close(activation)
            except CallFailure:
                del self._work.active[activation.activation_id]
                raise
            self._work.end(activation)
        else:
            del self._work.active[activation.activation_id]

    def _try_again(self, activation: Activation) -> bool:
        """Starts a lost activation elsewhere, when its interface allows it and what it gave can be continued or repeated."""
        start = activation.start
        if start is None or self.phase is not CallPhase.RUNNING or activation.attempt >= self._max_attempts:
            return False
        spec = activation.node.spec
        assert spec is not None
        came = activation.window.next_ordinal
        delivered: tuple[Mapping[str, Value], ...] = ()
        if spec.replay is Replay.CONTINUE:
            delivered = tuple(activation.delivered or ())
        elif came and activation.digests is None:
            return False
        else:
            activation.repeated = came
        activation.attempt += 1
        self._work.send(activation, dataclasses.replace(start, attempt=activation.attempt, delivered=delivered))
        return True

    # --- the end ------------------------------------------------------------------------------------------------------

    def _on_cancel(self, event: CancelRequested) -> None:
        if self.phase is not CallPhase.ENDED:
            raise CallFailure(event.error)

    def _fail(self, error: ErrorInfo) -> None:
        """Ends the call with an error: what runs is told to stop, then the terminal event goes out."""
        if self.phase is CallPhase.ENDED:
            return
        self.phase = CallPhase.ENDED
        self._work.abandon()
        if self._work.active:
            self._work.out.append(CancelActivations(error.message))
        self._work.out.append(FailCall(error, self._usage()))
        self._forget()

    def _settle(self) -> None:
        """Ends the call when nothing is left to do, and releases it when nothing runs any more."""
        work = self._work
        if work.active:
            return
        while self.phase is CallPhase.RUNNING and not self._is_source_open and not work.active:
            if self._counts.give_up():
                while work.closed:
                    self._joins.settle(work.closed.popleft())
            else:
                self.phase = CallPhase.ENDED
                histories = tuple(self._histories)
                work.out.append(FinishCall(self._finish_reason or "stop", self._usage(), histories))
                assert not work.buckets, "a bucket is open although nothing can contribute to it"
                self._forget()
        if self.phase is CallPhase.ENDED and not work.active and not self._is_released:
            self._is_released = True
            work.out.append(ReleaseCall())

    def _forget(self) -> None:
        """Lets go of what an ended call needs no more."""
        self.open_inputs = frozenset()
        self._counts.clear()
        self._histories.clear()
        self._work.trees = ()
        self._source.order_nodes = {}
        self._source.feeds = None

    def _usage(self) -> CallUsage:
        return CallUsage(
            input_tokens=self._input_tokens,
            cached_input_tokens=self._cached_input_tokens,
            output_tokens=self._output_tokens,
            activations=self._work.started,
        )

    # --- sight --------------------------------------------------------------------------------------------------------

    def inspect(self) -> CallInspection:
        """What the call is doing now."""
        return inspect(self.phase.value, self._work, self._counts)

    def check_integrity(self) -> None:
        """Recomputes the invariants. For tests, after every step, and idle drivers."""
        check_integrity(self._work, self._counts, self._source)
        if self.phase is CallPhase.ENDED and not self._work.active:
            assert self._is_released, "an ended call without activations was not released"


_HANDLERS: Mapping[type, Callable[..., None]] = {
    CallAdmitted: CallScheduler._on_admitted,
    InputArrived: CallScheduler._on_input,
    ActivationAccepted: CallScheduler._on_accepted,
    ActivationYielded: CallScheduler._on_yielded,
    ExitYielded: CallScheduler._on_exit,
    ActivationFinished: CallScheduler._on_finished,
    ActivationFailed: CallScheduler._on_failed,
    CancelRequested: CallScheduler._on_cancel,
}
