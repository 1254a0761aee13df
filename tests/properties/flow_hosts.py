"""The control plane's side of a segment that a replica runs itself: it hears of everything in order, later, in batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from omniflow_core.control.events import ActivationFailed, ActivationFinished, ActivationYielded
from omniflow_core.control.segments import ENTRY, EndSegment, RunInner
from omniflow_core.control.work_items import HostedSegment
from omniflow_core.errors import ErrorInfo
from tests.properties.flow_evaluator import Script
from tests.properties.flow_hosting import (
    HostingReplica,
    InnerEnded,
    InnerStarted,
    InnerYielded,
    Report,
    activation_of,
    feed,
    new_run,
)
from tests.properties.flow_record import YIELD_BYTES, Registered
from tests.properties.flow_running import Running
from tests.properties.flow_values import Activation, Value

if TYPE_CHECKING:
    from tests.properties.flow_driver import FlowDriver


class _Inside:
    """Stands for a value that never left its segment."""

    def __repr__(self) -> str:
        return "inside"


INSIDE = _Inside()


class Host:
    """A run of a segment, as the control plane knows it.

    A second run is told the same as the control plane, when it is told: what either starts then, the other must start too.
    """

    def __init__(self, driver: FlowDriver, hosted: HostedSegment, entry: Running) -> None:
        self._driver = driver
        self._hosted = hosted
        self.replica = HostingReplica(driver.shape, driver.plan, hosted.plan, entry)
        self._heard = new_run(hosted.plan, driver.plan)
        self._ids = {ENTRY: entry.activation_id}
        """The call's id of each activation inside, once it is registered."""
        self._inner_ids = {entry.activation_id: ENTRY}
        self._reported = {entry.activation_id}
        self._due: list[RunInner] = []
        """What the next step of the call is to start inside."""
        self._has_due_end = False
        self._taken = {(edge.source_node, edge.source_field) for edge in hosted.plan.edges}
        self._left = {(node, field) for node, fields in hosted.plan.exits.items() for field in fields}

    @property
    def is_over(self) -> bool:
        """Everything has been heard, and the call goes on: what a failed call has registered is still to be failed."""
        is_heard = self._heard.has_ended and not self.replica.log and not self._own()
        return is_heard and self._driver.record.terminal is None

    def _own(self) -> list[Running]:
        return [running for running in self._driver.running.values() if running.host is self]

    # --- what it hears ------------------------------------------------------------------------------------------------

    def hear(self) -> None:
        """Some of what has happened."""
        chance, log = self._driver.chance, self.replica.log
        for _ in range(chance.choice([1, chance.randint(1, len(log)), len(log)])):
            if self._driver.record.is_released or not log:
                return
            self._hear(log.popleft())

    def _hear(self, report: Report) -> None:
        if isinstance(report, InnerStarted):
            self._report(report)
            return
        if self._driver.record.terminal is None:
            assert len(self._reported) == len(self._ids), "what an event starts is told before the next event"
        activation_id = self._ids.get(report.inner_id)
        running = self._driver.running.get(-1 if activation_id is None else activation_id)
        if activation_id is None or running is None:
            assert self._driver.record.terminal is not None, f"{report} is of nothing that runs"
            return
        self._expect(report)
        running.is_accepted = True
        if isinstance(report, InnerYielded):
            self._driver.send(self._yielded(running, report.ordinal, report.fields))
            return
        last = None if report.last is None else self._yielded(running, report.yield_count - 1, report.last).fields
        self._driver.end(running)
        if report.error is not None:
            self._driver.send(ActivationFailed(activation_id, report.error))
        else:
            finished = ActivationFinished(activation_id, report.yield_count, output_tokens=report.yield_count)
            finished.last, finished.size_bytes = last, YIELD_BYTES
            self._driver.send(finished)

    def _yielded(self, running: Running, ordinal: int, fields: Mapping[str, Value]) -> ActivationYielded:
        """A yield, without the values that do not leave the segment."""
        running.sent += 1
        self._driver.note_yield(running.activation, ordinal)
        return ActivationYielded(
            running.activation_id, ordinal, self._fields_of(running.spec.name, fields), YIELD_BYTES
        )

    def _report(self, report: InnerStarted) -> None:
        parent = self._ids.get(report.parent_id)
        found = self._hosted.take(report.node, report.group, -1 if parent is None else parent, report.parent_ordinal)
        if self._driver.record.terminal is not None:
            if found is not None and report.inner_id not in self._ids:  # registered in the step that ended the call
                self._add(report.inner_id, found, report.activation)
            return
        assert found is not None, f"{report.activation} was started on the replica, and nothing asked for it"
        assert found == self._ids[report.inner_id], f"{report.activation} is taken for another activation"
        assert self._driver.running[found].activation is report.activation, "both have the same inputs"
        self._reported.add(found)

    def _fields_of(self, node: str, fields: Mapping[str, Value]) -> Mapping[str, object]:
        """What leaves the segment as it is; of the rest only that it is there, where somebody inside takes it."""
        return {
            name: value if (node, name) in self._left else INSIDE
            for name, value in fields.items()
            if (node, name) in self._left or (node, name) in self._taken
        }

    # --- what it registers --------------------------------------------------------------------------------------------

    def _expect(self, report: InnerYielded | InnerEnded) -> None:
        """The next step of the call is to start what a run starts that is told this."""
        for command in feed(self._heard, report):
            if isinstance(command, RunInner):
                self._due.append(command)
            elif isinstance(command, EndSegment):
                self._has_due_end = command.error is not None

    def enlist(self) -> None:
        """After each step of the call: what was registered inside is what a run starts that was told the same."""
        due, self._due = self._due, []
        if self._driver.record.terminal is not None:
            return
        assert not self._has_due_end, "the segment has failed, and the call goes on"
        if not due:
            return
        scheduler = self._driver.scheduler
        views = {
            (view.node, view.group, *scheduler.origin_of(view.activation_id)): view
            for view in scheduler.inspect().activations
            if view.activation_id not in self._driver.running and view.state == "sent"
        }
        for command in due:
            key = (command.node, command.group, self._ids[command.parent_id], command.parent_ordinal)
            assert key in views, f"{command} was started on the replica, and is not registered"
            view = views[key]
            activation = activation_of(self._driver.shape, command)
            self._add(command.inner_id, view.activation_id, activation)
            self._driver.record.register(
                Registered(view.activation_id, activation, view.origin_path), self._hosted.plan
            )

    def _add(self, inner_id: int, activation_id: int, activation: Activation) -> None:
        self._ids[inner_id] = activation_id
        self._inner_ids[activation_id] = inner_id
        spec = self._driver.shape.routes.nodes[activation.node]
        running = Running(activation_id, activation, spec, 0, Script(()), host=self)
        self._driver.running[activation_id] = running

    def acknowledge(self, running: Running, next_ordinal: int) -> None:
        """The control plane has yields of an activation inside: the replica is told."""
        assert running.spec.name in self._hosted.plan.exits, "nobody waits for what stays inside"
        self.replica.acks.append((self._inner_ids[running.activation_id], next_ordinal))

    # --- its end ------------------------------------------------------------------------------------------------------

    def fail(self, error: ErrorInfo) -> None:
        """The replica is lost, or has been told to stop: all that it ran has failed, and what that starts inside too."""
        driver = self._driver
        driver.record.broken_hosts += 1
        while own := self._own():
            known = [running for running in own if running.activation_id in self._reported] or own
            self._fail(driver.chance.choice(known), error)
        while left := self._hosted.forget_unreported():
            for activation_id in left:
                driver.send(ActivationFailed(activation_id, error))
        driver.hosts.remove(self)

    def _fail(self, running: Running, error: ErrorInfo) -> None:
        inner_id = self._inner_ids[running.activation_id]
        report = InnerEnded(inner_id, running.sent, error)
        self._expect(report)
        if self._driver.record.terminal is None:
            script = self._driver.shape.script(running.activation)
            self._driver.record.cuts[running.activation] = Script(script.yields[: running.sent], fails=True)
        self._driver.end(running)
        self._driver.send(ActivationFailed(running.activation_id, error))
