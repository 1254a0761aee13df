"""Drives a scheduler through one random interleaving, with repeats, and holds it to what must be true after every step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from omniflow_core.control.commands import (
    AckYields,
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
)
from omniflow_core.control.scheduler import CallPhase, CallScheduler
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.spec import Replay
from tests.properties.flow_evaluator import Script
from tests.properties.flow_graphs import Shape
from tests.properties.flow_hosts import Host
from tests.properties.flow_piping import PipeRun
from tests.properties.flow_record import YIELD_BYTES, Plan, Record, Start
from tests.properties.flow_routes import STATIC, Kind
from tests.properties.flow_running import Running
from tests.properties.flow_values import Activation, Value, facet, values_of

CANCELLED = ErrorInfo(reason=Reason.CALL_CANCELLED, message="stop")
BROKEN = ErrorInfo(reason=Reason.INTERFACE_FAILED, message="it broke")
LOST = ErrorInfo(reason=Reason.REPLICA_LOST, message="gone")

MOST_STEPS = 20_000


@dataclass(slots=True)
class FlowDriver:
    """One call. `run` ends it; then `record` says what came out."""

    shape: Shape
    chance: random.Random
    plan: Plan = field(default_factory=Plan)
    scheduler: CallScheduler = field(init=False)
    record: Record = field(default_factory=Record)
    running: dict[int, Running] = field(default_factory=dict)
    """Activations that have not ended, as the control plane knows it."""
    hosts: list[Host] = field(default_factory=list)
    """Replicas that run a segment."""
    _past: list[Event] = field(default_factory=list)
    _unsent: list[InputArrived] = field(default_factory=list)
    _most_sent: dict[int, int] = field(default_factory=dict)
    """Yields of all attempts together, of activations that were started again."""

    def __post_init__(self) -> None:
        self.scheduler = CallScheduler(
            self.shape.plan,
            yield_window=self.plan.default_window,
            byte_credit=self.plan.byte_credit * YIELD_BYTES,
            store_limit_bytes=self.plan.store_limit * YIELD_BYTES,
            count_of=lambda value: cast("Value", value).counted,
            digest_of=_digest,
        )

    def run(self) -> None:
        """Goes on until the call is released."""
        if self.plan.stop_after == 0:
            self._give(CancelRequested(CANCELLED))
        self._admit()
        steps = 0
        while not self.record.is_released:
            steps += 1
            if self.plan.stop_after == steps:
                self._give(CancelRequested(CANCELLED))
            elif not self._befall(steps):
                self._step()
            assert steps < MOST_STEPS, "the call does not end"
        for event in (*self._past, CancelRequested(CANCELLED)):
            assert self.scheduler.handle(event) == [], "something follows the release"
        self._check_nothing_is_left()

    # --- events -----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        streaming = [p.field.name for p in self.shape.spec.placeholders if p.is_streaming]
        single: Mapping[str, Value] = {}
        last = dict.fromkeys(streaming, -1)
        for port, ordinal, fields in self.shape.source:
            (name, *_) = fields
            if name in last:
                last[name] = len(self._unsent)
                self._unsent.append(InputArrived(name, fields[name], size_bytes=YIELD_BYTES))
            else:
                single = fields
                self.record.times.yielded[port, ordinal] = 1
        self._close_inputs(last)
        self._close_port(STATIC)
        self._give(CallAdmitted(single, frozenset(last)))

    def _close_inputs(self, last: Mapping[str, int]) -> None:
        """The end of each placeholder: with its last value, or after it at any time."""
        for name, index in sorted(last.items(), key=lambda item: -item[1]):
            if index >= 0 and self.chance.random() < 0.5:
                self._unsent[index] = InputArrived(
                    name, self._unsent[index].value, is_last=True, size_bytes=YIELD_BYTES
                )
            else:
                self._unsent.insert(self.chance.randint(index + 1, len(self._unsent)), InputArrived(name, is_last=True))

    def _close_port(self, name: str) -> None:
        """The next event is the last of a port of the call."""
        port = self.shape.identities.activation(name, ())
        self.record.times.ended[port] = self.record.times.now + 1

    def _befall(self, steps: int) -> bool:
        """Perhaps something bad happens to some activation."""
        if self.record.terminal is not None or not self.running:
            return False
        injure_after = self.plan.injure_after
        if injure_after is not None and steps >= injure_after and not self.record.cuts:
            return self._injure_any()
        if self.chance.random() < self.plan.losses:
            self._lose(self._any_running())
            return True
        return False

    def _any_running(self) -> Running:
        return self.chance.choice(list(self.running.values()))

    def _injure_any(self) -> bool:
        """Something fails, if anything still runs. Inside a segment it does so on the replica, and is heard of later."""
        running = self._any_running()
        if running.host is None:
            self._injure(running, BROKEN)
            return True
        replica = running.host.replica
        if not replica.running:
            return False
        inner = self.chance.choice(list(replica.running.values()))
        self.record.cuts[inner.activation] = replica.injure(inner, BROKEN)
        return True

    def _step(self) -> None:
        """One event of somebody who can go on, or the repeat of an old one."""
        if self._past and self.chance.random() < self.plan.repeats:
            self._give(self.chance.choice(self._past))
            return
        has_ended = self.record.terminal is not None
        if has_ended and self.running and self.chance.random() < 0.5:
            self._stop(self._any_running())  # it has been told to
            return
        turns = list(self._turns(has_ended=has_ended))
        if not turns or self.chance.random() >= self.plan.lag:
            turns += [host.hear for host in self.hosts if host.replica.log]
        assert turns, "nothing can go on, and the call has not ended"
        self.chance.choice(turns)()
        self.record.most_hosts = max(self.record.most_hosts, len(self.hosts))
        self.hosts = [host for host in self.hosts if not host.is_over]

    def _turns(self, *, has_ended: bool) -> Iterator[Callable[[], None]]:
        """What can happen next, besides that the control plane hears of what has happened."""
        for running in self.running.values():
            if running.pipe is not None:
                yield from running.pipe.turns(BROKEN)
                if has_ended:
                    yield partial(self._stop, running)
            elif running.host is None and (has_ended or self._can_go_on(running)):
                yield partial(self._go_on, running)
        if self._can_send_input():
            yield self._send_input
        for host in self.hosts:
            yield from self._turns_of(host)

    def _turns_of(self, host: Host) -> Iterator[Callable[[], None]]:
        """What can happen on a replica that runs a segment, and nobody else hears of."""
        replica = host.replica
        for inner in replica.ready():
            yield partial(replica.go_on, inner, self.chance, BROKEN)
        if replica.acks:
            yield partial(replica.acknowledge, self.chance)
        if self.record.terminal is not None:
            yield partial(host.fail, CANCELLED)

    def _can_go_on(self, running: Running) -> bool:
        if running.is_accepted or self.shape.is_cyclic(running.spec.name):
            return not running.is_stuck
        return self.has_place_for(running)

    def has_place_for(self, running: Running) -> bool:
        """A replica can take it in beside others of its node."""
        beside = sum(r.is_accepted and r.spec.name == running.spec.name for r in self.running.values())
        return beside < self.plan.workers

    def _can_send_input(self) -> bool:
        if not self._unsent:
            return False
        return self._unsent[0].value is None or self.scheduler.undelivered_inputs < self.plan.input_window

    def _send_input(self) -> None:
        event = self._unsent.pop(0)
        if event.value is not None:
            value = cast("Value", event.value)
            self.note_yield(value.producer, value.ordinal)
        if event.is_last:
            self._close_port(f"@{event.name}")
        self._give(event)

    def _go_on(self, running: Running) -> None:
        if not running.is_accepted and self._is_hosted(running):
            running.is_accepted = True
            self.send(ActivationAccepted(running.activation_id, hosts_segment=True))
            self._host(running)
        elif not running.is_accepted and self.chance.random() < 0.7:
            running.is_accepted = True
            self.send(ActivationAccepted(running.activation_id, running.attempt))
        elif running.sent < len(running.script.yields):
            running.is_accepted = True  # the first yield says so too
            self._yield(running)
        elif running.script.fails:
            self.end(running)
            self.send(ActivationFailed(running.activation_id, BROKEN, running.attempt))
        else:
            self.end(running)
            self.send(
                ActivationFinished(
                    running.activation_id, running.sent, output_tokens=running.sent, attempt=running.attempt
                )
            )

    def _yield(self, running: Running) -> None:
        """The next yield, perhaps with the end when it is the last."""
        ordinal, number, attempt = running.sent, running.activation_id, running.attempt
        fields = running.script.yields[ordinal]
        running.sent += 1
        self.note_yield(running.activation, ordinal)
        if running.gave_all and self.chance.random() < 0.3:
            self.end(running)
            finished = ActivationFinished(number, running.sent, output_tokens=running.sent, attempt=attempt)
            finished.last, finished.size_bytes = fields, YIELD_BYTES
            self.send(finished)
        else:
            self.send(ActivationYielded(number, ordinal, fields, YIELD_BYTES, attempt))

    def _is_hosted(self, running: Running) -> bool:
        """Whether the replica that is about to accept an activation runs what follows itself."""
        segment = self.shape.plan.nodes[running.spec.name].segment
        is_entry = segment is not None and segment.entry == running.spec.name
        return is_entry and self.record.terminal is None and self.chance.random() < self.plan.hosts

    def _host(self, running: Running) -> None:
        hosted = self.scheduler.segment_of(running.activation_id)
        assert hosted is not None, f"{running.activation} was accepted with its segment"
        running.host = Host(self, hosted, running)
        self.hosts.append(running.host)

    def note_yield(self, activation: Activation, ordinal: int) -> None:
        if self.record.terminal is None:
            self.record.times.yielded.setdefault((activation, ordinal), self.record.times.now + 1)

    def send(self, event: Event) -> None:
        self._past.append(event)
        self._give(event)

    def end(self, running: Running) -> None:
        """The next event ends the activation."""
        del self.running[running.activation_id]
        if self.record.terminal is None:
            self.record.times.ended[running.activation] = self.record.times.now + 1
            self.record.last_failed = running.spec.name

    def _stop(self, running: Running) -> None:
        if running.host is not None:
            running.host.fail(CANCELLED)
            return
        self.end(running)
        self.send(ActivationFailed(running.activation_id, CANCELLED, running.attempt))

    def _injure(self, running: Running, error: ErrorInfo) -> None:
        """Ends an activation early, or one of its pipeline."""
        if running.pipe is not None:
            running.pipe.injure(error)
            return
        came = max(running.sent, self._most_sent.get(running.activation_id, 0))
        self.record.cuts[running.activation] = Script(running.script.yields[:came], fails=True)
        self.end(running)
        self.send(ActivationFailed(running.activation_id, error, running.attempt))

    def _lose(self, running: Running) -> None:
        """The replica is lost: the activation runs again elsewhere, or has failed."""
        if running.host is not None:
            running.host.fail(LOST)
            return
        if not running.can_run_again:
            self._injure(running, LOST)
            return
        attempt = running.attempt
        self.send(ActivationFailed(running.activation_id, LOST, attempt))
        assert running.attempt == attempt + 1, f"{running.activation} was not started again"

    # --- commands ---------------------------------------------------------------------------------------------------

    def _give(self, event: Event) -> None:
        record = self.record
        record.times.now += 1
        record.history.append(event)
        commands = self.scheduler.handle(event)
        record.history.extend(commands)
        for command in commands:
            self._take(command)
        for host in self.hosts:
            host.enlist()
        self.scheduler.check_integrity()
        if record.terminal is None:
            known = len(self.running) + self.scheduler.held_count
            assert self.scheduler.active_count == known, "the call waits for what nobody was asked to start"
        record.most_held = max(record.most_held, self.scheduler.held_count)
        if self.chance.random() < 0.1:
            self._inspect()

    def _take(self, command: Command) -> None:
        record = self.record
        assert not record.is_released, "the release is the last command"
        if isinstance(command, ReleaseCall):
            assert record.terminal is not None, "released before its terminal event"
            assert not self.running, "released while something runs"
            record.is_released = True
            return
        assert record.terminal is None, f"{type(command).__name__} follows the terminal event"
        match command:
            case StartActivation() if command.activation_id in self.running:
                self._start_again(command)
            case StartActivation():
                self._start(command)
            case AckYields():
                self._ack(command)
            case Emit():
                self._emit(command)
            case FinishCall() | FailCall():
                record.terminal = command
                record.times.terminal = record.times.now
            case CancelActivations():
                assert self.running or self.hosts, "nothing is there to cancel"

    def _start(self, command: StartActivation) -> None:
        spec = command.node.spec
        assert spec is not None
        for given in command.facets:
            for values in given.fields.values():
                assert all(isinstance(v, Value) for v in values), "a value came out of a segment that never left it"
        inputs = tuple(
            facet(f.group, cast("Mapping[str, tuple[Value, ...]]", f.fields), f.context) for f in command.facets
        )
        activation = self.shape.identities.activation(spec.name, inputs, command.origin_path)
        self.record.started.append(Start(activation, command.origin_path, {f.group: f.paths for f in command.facets}))
        self.record.times.started.setdefault(activation, self.record.times.now)
        assert (command.attempt, command.delivered) == (1, ()), "a first start is attempt 1"
        if self.shape.has_gate(spec.name):
            beside = [r for r in self.running.values() if r.spec.name == spec.name]
            assert not beside, f"two activations of {spec.name} run at a time"
        window = min(spec.yield_window or self.plan.default_window, self.plan.byte_credit)
        script = self.shape.script(activation)
        running = Running(command.activation_id, activation, spec, window, script)
        self.running[command.activation_id] = running
        pipeline = command.node.pipeline
        if pipeline is not None and self.chance.random() < self.plan.pipes:
            running.pipe = PipeRun(self, running, pipeline, command.origin_path)
            self.record.most_pipes = max(self.record.most_pipes, sum(r.pipe is not None for r in self.running.values()))

    def _start_again(self, command: StartActivation) -> None:
        running = self.running[command.activation_id]
        assert command.attempt == running.attempt + 1, "attempts are counted one by one"
        came = running.script.yields[: running.sent] if running.spec.replay is Replay.CONTINUE else ()
        assert command.delivered == came, "an attempt continues after all yields that came"
        self._most_sent[command.activation_id] = max(running.sent, self._most_sent.get(command.activation_id, 0))
        self.record.retried += 1
        running.attempt = command.attempt
        running.is_accepted = False
        running.sent = running.acked = len(came)

    def _ack(self, command: AckYields) -> None:
        running = self.running.get(command.activation_id)
        if running is None:  # its last event may have crossed the acknowledgement
            return
        if running.attempt > 1:  # it may be about yields of an earlier attempt
            running.acked = max(running.acked, min(command.next_ordinal, running.sent))
            return
        assert running.acked < command.next_ordinal <= running.sent, "an ack goes forward, over what was sent"
        came, running.acked = command.next_ordinal - running.acked, command.next_ordinal
        if running.host is not None:
            running.host.acknowledge(running, command.next_ordinal)
        if running.pipe is not None:
            running.pipe.acknowledge(came)
        for other in self.running.values():
            if (
                not other.is_accepted
                and other.host is None
                and other.attempt == 1
                and not self._may_wait(other.activation)
            ):
                causes = [v.ordinal for v in values_of(other.activation) if v.producer is running.activation]
                is_early = bool(causes) and max(causes) < running.acked
                assert not is_early, f"a yield was acked before {other.activation}, which it started, was accepted"

    def _may_wait(self, activation: Activation) -> bool:
        """Whether its inputs counted as delivered before it started: those of buckets and of starts that were held."""
        kinds = self.shape.routes.kinds
        if self.shape.has_gate(activation.node):
            return True
        return any(kinds[activation.node, group] in (Kind.PREFIX, Kind.COUNT) for group in activation.groups)

    def _emit(self, command: Emit) -> None:
        value = command.value
        assert isinstance(value, Value), "a value came out of a segment that never left it"
        assert command.node == ("" if value.producer.node.startswith("@") else value.producer.node)
        self.record.emitted[command.output].append(value)
        self.record.paths[value.producer, value.ordinal] = command.origin_path
        self.record.times.emitted[command.output, value] = self.record.times.now

    # --- what the scheduler says of itself ----------------------------------------------------------------------------

    def _inspect(self) -> None:
        view = self.scheduler.inspect()
        states = {a.activation_id: a.state for a in view.activations if a.state != "held"}
        if self.record.terminal is None:
            expected = {r.activation_id: "running" if r.is_accepted else "sent" for r in self.running.values()}
            assert states == expected, f"inspection says {states}, it is {expected}"
        assert view.started - view.finished == self.scheduler.active_count

    def _check_nothing_is_left(self) -> None:
        scheduler = self.scheduler
        assert scheduler.phase is CallPhase.ENDED
        left = {
            "activations": scheduler.active_count,
            "buckets": scheduler.open_buckets,
            "leases": scheduler.lease_count,
            "held starts": scheduler.held_count,
            "open inputs": len(scheduler.open_inputs),
            "stored bytes": scheduler.inspect().stored_bytes,
        }
        assert not any(left.values()), f"left after the release: {left}"


def _digest(fields: Mapping[str, object]) -> bytes:
    parts = sorted((name, cast("Value", v).producer.digest, cast("Value", v).ordinal) for name, v in fields.items())
    return repr(parts).encode()
