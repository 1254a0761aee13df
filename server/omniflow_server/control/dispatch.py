"""Runs activations: inline here, or on a replica that is chosen once per call and node.

    start ─▶ the session is ours for certain? ─▶ its gate is open? ─▶ inline
                                                                   └▶ a replica is ready? ─▶ it has room? ─▶ sent
                  each question may have to wait; what waits is dropped when its call ends

Knows replicas and their streams; does not know graphs or order, nor how a replica is chosen (`replica_choice`). A restart of
a role's only replica takes a second or two, and what is for it waits. Activations that wait for room of one replica are
served fairly between tenants. What a replica does not take in after all (it drains, or others have filled it) is placed
anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from omniflow.common.v1 import tensor_pb2
from omniflow.large_values import ValueFetcher, ValueStore
from omniflow_core.control.circuit import CircuitReport
from omniflow_core.control.commands import StartActivation
from omniflow_core.control.events import ActivationFailed
from omniflow_core.control.fair_queue import FairQueue
from omniflow_core.control.gates import GateKey, SessionGates
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason, Violation
from omniflow_core.graph.plan import GraphPlan, PipelinePlan
from omniflow_core.graph.spec import NodeSpec
from omniflow_server.control.call import Call
from omniflow_server.control.inline import InlineExecutor
from omniflow_server.control.link import ControlIdentity, ReplicaLink
from omniflow_server.control.pipelines import PipelineMessages, PipelineRun
from omniflow_server.control.registry import Registry, ReplicaKey
from omniflow_server.control.replica_choice import ReplicaChoice
from omniflow_server.control.replica_links import ReplicaLinks
from omniflow_server.control.segments import SegmentMessages
from omniflow_server.control.starts import StartMessages
from omniflow_server.control.tasks import BackgroundTasks

log = logging.getLogger(__name__)

RELEASE_INTERVAL_S = 0.05
"""Releases of ended calls are collected this long: nobody waits for them, and short calls are many."""
LAZY_RELEASE_INTERVAL_S = 1.0
"""The same for calls of which no replica is known to keep a value."""


FULL_S = 0.1
"""How long a replica that others have filled is left alone, unless it says otherwise."""
OVERLOAD_RETRY_S = 1.0
RESERVED_SHARE = 1 / 8
"""Of what may wait for a role: not for those who have their share of it."""


class Lease(Protocol):
    """Whether what this process owns is its own for certain."""

    @property
    def has_lease(self) -> bool: ...

    def when_decided(self, callback: Callable[[], None]) -> None:
        """Calls back once that is known again."""


class _Forever:
    """The lease of a process that shares nothing."""

    has_lease = True

    def when_decided(self, callback: Callable[[], None]) -> None:
        callback()


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiting:
    """An activation that no replica has been found for."""

    call: Call
    command: StartActivation
    give_up: asyncio.TimerHandle


class ReplicaDispatcher:
    """The `Dispatcher` of a control-plane process."""

    def __init__(
        self,
        *,
        registry: Registry,
        identity: ControlIdentity,
        inline: InlineExecutor,
        store: ValueStore,
        fetcher: ValueFetcher,
        tasks: BackgroundTasks,
        replica_wait_s: float,
        byte_credit: int,
        yield_window: int,
        runs_segments: bool,
        runs_pipelines: bool,
        on_connections_changed: Callable[[], object],
        lease: Lease | None = None,
        max_queue: float = 0.0,
    ) -> None:
        """`max_queue`: activations that may wait for a role, as a multiple of those that its replicas run at once."""
        self._lease = lease or _Forever()
        self._max_queue = max_queue
        self._unsure: list[tuple[Call, StartActivation]] = []
        """Starts of sessions' calls that wait until it is known whether the sessions are still ours."""
        self._choice = ReplicaChoice(queued=lambda link: len(self._queued[link.registration.key]))
        self._inline = inline
        self._store = store
        self._fetcher = fetcher
        self._tasks = tasks
        self._replica_wait_s = replica_wait_s
        self._starts = StartMessages(yield_window=yield_window, byte_credit=byte_credit, store=store)
        self._segments = SegmentMessages(is_enabled=runs_segments, yield_window=yield_window)
        self._pipelines = PipelineMessages(yield_window=yield_window) if runs_pipelines else None
        self.links = ReplicaLinks(
            registry=registry, identity=identity, tasks=tasks, listener=self, on_changed=on_connections_changed
        )
        self._waiting: dict[str, deque[_Waiting]] = defaultdict(deque)
        self._queued: dict[ReplicaKey, FairQueue[tuple[Call, StartActivation]]] = defaultdict(FairQueue)
        self._gates = SessionGates()
        self._gated: dict[tuple[str, int], tuple[Call, StartActivation]] = {}
        """Starts that wait for an earlier call of their session, by call and activation."""
        self._inside: dict[tuple[str, int], GateKey] = {}
        """Activations that entered a session's gate, waiting ones too."""
        self._to_release: dict[ReplicaLink, list[str]] = {}
        self._release_timer: asyncio.TimerHandle | None = None

    # --- Dispatcher -------------------------------------------------------------------------------------------------

    def start(self, call: Call, command: StartActivation) -> None:
        """Runs an activation; what comes of it arrives at the call as events."""
        if call.fence and not self._lease.has_lease:
            if not self._unsure:
                self._lease.when_decided(self._start_unsure)
            self._unsure.append((call, command))
        else:
            self._start(call, command)

    def _start_unsure(self) -> None:
        """Calls that were lost meanwhile have dropped their starts."""
        waiting, self._unsure = self._unsure, []
        for call, command in waiting:
            if not self._is_wanted(call, command):
                continue
            try:
                self.start(call, command)
            except Exception as error:
                call.fail_command(command, error)

    def _start(self, call: Call, command: StartActivation) -> None:
        if command.node.gate < 0 or not call.session or self._enter_gate(call, command):
            self._begin(call, command)
        else:
            self._gated[call.call_id, command.activation_id] = call, command

    def _enter_gate(self, call: Call, command: StartActivation) -> bool:
        """False when an earlier call of the session still has an activation of a session-ordered interface."""
        spec = command.node.spec
        assert spec is not None, "the call's source is not run"
        key = GateKey(call.tenant, call.session, spec.interface)
        self._inside[call.call_id, command.activation_id] = key
        return self._gates.enter(key, call.call_id, command.activation_id) is not None

    def ended(self, call: Call, activation_id: int) -> None:
        """An activation has ended, or will not start: the session's next call may go on."""
        key = self._inside.pop((call.call_id, activation_id), None)
        if key is None:
            return
        for entry in self._gates.leave(key, call.call_id, activation_id):
            gated = self._gated.pop((entry.call_id, entry.activation_id), None)
            if gated is None:
                continue  # its call has ended with one that was let in just before
            following, command = gated
            try:
                self._begin(following, command)
            except Exception as error:
                following.fail_command(command, error)  # no trouble of the call that has made way

    def _begin(self, call: Call, command: StartActivation) -> None:
        spec = command.node.spec
        assert spec is not None
        if spec.timeout_s is not None:
            call.timeouts[command.activation_id] = asyncio.get_running_loop().call_later(
                spec.timeout_s, self._time_out, call, command
            )
        if spec.is_inline:
            call.running[command.activation_id] = self._inline
            self._inline.start(call, command)
        else:
            self._find_replica(call, command)

    def cancel(self, call: Call, reason: str) -> None:
        """Stops everything that runs for the call, at once and on its own path."""
        self._inline.announce_cancel(call)
        for link in self._links_of(call):
            self._tasks.create_task(link.cancel_call(call.call_id, reason))
        for activation_id, host in tuple(call.running.items()):
            host.cancel(call.call_id, activation_id, reason)
        error = ErrorInfo(reason=Reason.CALL_CANCELLED, message=reason)
        for command in self._drop_unsent(call):
            self._fail(call, command, error)

    def release(self, call: Call) -> None:
        """Nothing of the call runs any more."""
        self._store.release_call(call.call_id)
        for link in call.used_replicas:
            if not isinstance(link, ReplicaLink) or not self.links.is_current(link):
                continue  # that life of the replica is over, and what it kept with it
            self._to_release.setdefault(link, []).append(call.call_id)
        # A replica that keeps no values of the call has nothing to drop; it is told all the same, in good time.
        delay_s = RELEASE_INTERVAL_S if call.keeping_replicas else LAZY_RELEASE_INTERVAL_S
        if self._to_release:
            self._release_within(delay_s)

    def _release_within(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + delay_s
        if self._release_timer is not None:
            if self._release_timer.when() <= due_s:
                return
            self._release_timer.cancel()
        self._release_timer = loop.call_at(due_s, self._send_releases)

    def stream_payload(self, ref: tensor_pb2.RemoteRef) -> AsyncGenerator[bytes, None]:
        return self._fetcher.stream(ref)

    # --- choice of a replica ------------------------------------------------------------------------------------------

    def _replica_for(self, call: Call, command: StartActivation, spec: NodeSpec) -> ReplicaLink | None:
        """The replica of the call's node: the first choice holds until that replica is lost, or takes nothing more.

        Until a draining replica refuses, it keeps what it has begun: its caches are warm for the call.
        """
        kept = call.replicas.kept(spec)
        known = self.links.named(kept) if kept is not None else None
        if known is not None and known.is_connected and not known.is_refusing:
            call.used_replicas.add(known)  # it may be a new life of the replica that was chosen
            return known
        ready = [
            link
            for link in self.links.of_role(spec.role)
            if link.is_connected
            and not link.is_refusing
            and link.registration.is_ready
            and spec.interface in link.interfaces
        ]
        if not ready:
            return None
        ready = [link for link in ready if not link.is_quiet] or ready
        link = ready[0] if len(ready) == 1 else self._choice.choose(call, command, spec, ready)
        call.replicas.keep(spec, link.name)
        call.used_replicas.add(link)
        return link

    def _links_of(self, call: Call) -> set[ReplicaLink]:
        """Replicas that have worked for the call: with `spread` a node has more than its last choice."""
        return {link for link in call.used_replicas if isinstance(link, ReplicaLink) and link.is_connected}

    def _wait(self, call: Call, command: StartActivation, spec: NodeSpec) -> None:
        give_up = asyncio.get_running_loop().call_later(
            self._replica_wait_s, self._give_up, call, command.activation_id, spec.role
        )
        self._waiting[spec.role].append(_Waiting(call=call, command=command, give_up=give_up))

    def _give_up(self, call: Call, activation_id: int, role: str) -> None:
        for command in self._drop_unsent(call, activation_id):
            self._fail(call, command, _no_replica(role, command, self._replica_wait_s))

    def _retry_waiting(self, role: str) -> None:
        """Starts what waits for the role. What finds no replica still has the rest of its time."""
        waiting, self._waiting[role] = self._waiting[role], deque()
        for item in waiting:
            if not self._is_wanted(item.call, item.command):
                item.give_up.cancel()
                continue
            spec = item.command.node.spec
            assert spec is not None
            link = self._replica_for(item.call, item.command, spec)
            if link is None:
                self._waiting[role].append(item)
            else:
                item.give_up.cancel()
                self._start_on(link, item.call, item.command)

    def _find_replica(self, call: Call, command: StartActivation, *, is_first: bool = False) -> None:
        """Starts the activation on a replica, or lets it wait for one; `is_first`: before the tenant's others."""
        spec = command.node.spec
        assert spec is not None
        link = self._replica_for(call, command, spec)
        if link is None:
            self._wait(call, command, spec)
        else:
            self._start_on(link, call, command, is_first=is_first)

    # --- starting -----------------------------------------------------------------------------------------------------

    def _start_on(self, link: ReplicaLink, call: Call, command: StartActivation, *, is_first: bool = False) -> None:
        key = link.registration.key
        spec = command.node.spec
        assert spec is not None
        self._choice.given(link, call, command, spec)
        if self._queued[key] or not link.has_room:
            queue = self._queued[key]
            (queue.push_first if is_first else queue.push)(call.tenant, (call, command))
            return
        self._send_start(link, call, command)

    def _send_start(self, link: ReplicaLink, call: Call, command: StartActivation) -> None:
        spec = command.node.spec
        assert spec is not None
        self._choice.started(link, call, spec)
        if command.node.pipeline is not None and self._pipelines is not None:
            stages = self._stages_of(call, command, command.node.pipeline, link)
            if stages:
                self._send_pipeline(link, call, command, stages, self._pipelines)
                return
        try:
            segment = None
            if command.node.segment is not None:
                segment = self._segments.for_start(command.node, link.registration.replica)
            ordinal = self._session_ordinal(call, command.activation_id) if self._inside else 0
            start = self._starts.serialized(call, command, session_ordinal=ordinal, segment=segment)
            link.start(call, command, start, has_segment=segment is not None)
        except Exception as error:
            self._choice.taken_back(call, command.activation_id)
            call.fail_command(command, error)  # its input does not fit the wire or the store: nobody else's trouble
            return
        call.running[command.activation_id] = link

    def _stages_of(
        self, call: Call, command: StartActivation, plan: PipelinePlan, first: ReplicaLink
    ) -> list[ReplicaLink]:
        """Replicas of a pipeline's nodes after the first; empty when one is missing or cannot: then it runs node by node."""
        if not first.replica.runs_pipelines:
            return []
        links: list[ReplicaLink] = []
        for spec in plan.nodes[1:]:
            link = self._replica_for(call, command, spec)
            if link is None or link.is_interrupted or not link.replica.runs_pipelines:
                return []
            links.append(link)
        return links

    def _send_pipeline(
        self,
        link: ReplicaLink,
        call: Call,
        command: StartActivation,
        stages: list[ReplicaLink],
        messages: PipelineMessages,
    ) -> None:
        run = PipelineRun(call, command, stages[-1])
        try:
            pipeline = messages.message(command, stages[-1], run.handle, [stage.replica for stage in stages])
            start = self._starts.serialized(call, command, session_ordinal=0, segment=None, pipeline=pipeline)
            link.start(call, command, start, pipeline=run)
        except Exception as error:
            run.drop()
            self._choice.taken_back(call, command.activation_id)
            call.fail_command(command, error)
            return
        call.running[command.activation_id] = run

    def _session_ordinal(self, call: Call, activation_id: int) -> int:
        """Its place in the order of a session-ordered interface; 0 without one."""
        key = self._inside.get((call.call_id, activation_id))
        entry = self._gates.entry_of(key, call.call_id, activation_id) if key is not None else None
        return entry.ordinal if entry is not None else 0

    # --- LinkListener ---------------------------------------------------------------------------------------------------

    def on_idle(self, link: ReplicaLink) -> None:
        """Sends what waits for room of the replica."""
        key = link.registration.key
        # The queue is looked up each time: a start that cannot be sent ends its call, which may replace the queue.
        while self.links.is_current(link) and link.has_room and self._queued[key]:
            self._send_start(link, *self._queued[key].pop())

    def on_ended(self, link: ReplicaLink, call: Call, command: StartActivation, error: ErrorInfo | None) -> None:
        """Notes how the replica did."""
        if self._choice.ended(link, call, command, error):
            log.warning("%s fails again and again, and is left alone for a while", link.name)

    def on_refused(self, link: ReplicaLink, call: Call, command: StartActivation, error: ErrorInfo) -> bool:
        """Places an activation anew that a replica has not taken in; not when its call wants nothing more."""
        self._choice.taken_back(call, command.activation_id)
        if call.running.pop(command.activation_id, None) is None or not call.takes_input:
            return False  # its time is over, or its call is
        if error.reason is Reason.DRAINING:
            link.is_refusing = True
        else:
            self._leave_alone(link, error.retry_after_s or FULL_S)
        self._find_replica(call, command, is_first=True)
        return True

    def _leave_alone(self, link: ReplicaLink, seconds: float) -> None:
        """Others have filled the replica: this process does not know when it has room again."""
        if link.full_timer is not None:
            link.full_timer.cancel()
        link.full_timer = asyncio.get_running_loop().call_later(seconds, self._try_again, link)

    def _try_again(self, link: ReplicaLink) -> None:
        link.full_timer = None
        self.on_idle(link)

    # --- overload -------------------------------------------------------------------------------------------------------

    def check_room(self, plan: GraphPlan, tenant: str) -> None:
        """Raises TOO_MANY_CALLS when too much waits for a role of the graph already: more would only wait longer.

        The last part of the limit is for tenants that have less waiting than their share, and these are let in beyond it, up
        to twice the limit: else a flood of another tenant would keep them out for as long as it lasts.
        """
        if not self._max_queue:
            return
        for role in plan.roles:
            links = [link for link in self.links.of_role(role) if link.is_connected]
            limits = [link.replica.max_activations for link in links]
            queues = [queue for link in links if (queue := self._queued.get(link.registration.key))]
            waiting = sum(map(len, queues)) + len(self._waiting.get(role, ()))
            limit = max(1.0, self._max_queue * sum(limits))
            if not links or not all(limits) or waiting < limit * (1 - RESERVED_SHARE):
                continue
            own = sum(queue.count_of(tenant) for queue in queues)
            tenants = max((queue.tenant_count for queue in queues), default=0) + (not own)
            if own >= limit / tenants or waiting >= 2 * limit:
                raise _overloaded(role, waiting, sum(limits), self._max_queue)

    # --- ends that replicas do not report -----------------------------------------------------------------------------

    def _time_out(self, call: Call, command: StartActivation) -> None:
        spec = command.node.spec
        assert spec is not None
        host = call.running.get(command.activation_id)
        self._drop_unsent(call, command.activation_id)
        error = ErrorInfo(
            reason=Reason.DEADLINE_EXCEEDED,
            message=f"Node {spec.name!r} ran longer than its timeout of {spec.timeout_s} s.",
            metadata={"node": spec.name},
        )
        self._fail(call, command, error)
        if host is not None:  # afterwards: an inline activation reports its cancel at once, and the first report counts
            host.cancel(call.call_id, command.activation_id, "timeout")

    def _is_wanted(self, call: Call, command: StartActivation) -> bool:
        """False when the call has ended while its start waited among others that were taken up just now."""
        if call.takes_input:
            return True
        self._fail(call, command, ErrorInfo(reason=Reason.CALL_CANCELLED, message="the call has ended"))
        return False

    def _drop_unsent(self, call: Call, activation_id: int = 0) -> list[StartActivation]:
        """Takes activations of the call that no replica has seen out of the queues: one of them, or all."""

        def is_meant(owner: Call, command: StartActivation) -> bool:
            return owner is call and activation_id in (0, command.activation_id)

        dropped: list[StartActivation] = []
        unsure = [command for owner, command in self._unsure if is_meant(owner, command)]
        if unsure:
            self._unsure = [item for item in self._unsure if not is_meant(*item)]
            dropped.extend(unsure)
        for place, gated in list(self._gated.items()):
            if is_meant(*gated):
                del self._gated[place]
                dropped.append(gated[1])
        for role, waiting in self._waiting.items():
            meant = [item for item in waiting if is_meant(item.call, item.command)]
            if meant:
                self._waiting[role] = deque(item for item in waiting if item not in meant)
            for item in meant:
                item.give_up.cancel()
                dropped.append(item.command)
        for queue in self._queued.values():
            for _, command in queue.remove(lambda item: is_meant(*item)) if queue else ():
                self._choice.taken_back(call, command.activation_id)
                dropped.append(command)
        return dropped

    def _fail(self, call: Call, command: StartActivation, error: ErrorInfo) -> None:
        call.activation_ended(command.activation_id)
        call.handle(ActivationFailed(command.activation_id, error, command.attempt))

    # --- LinksListener --------------------------------------------------------------------------------------------------

    def on_ready(self, role: str) -> None:
        self._retry_waiting(role)

    def on_gone(self, link: ReplicaLink) -> None:
        self._choice.forget(link)

    def on_down(self, link: ReplicaLink) -> None:
        """What was not sent yet looks for another replica."""
        queue = self._queued.pop(link.registration.key, None)
        for call, command in queue or ():
            self._choice.taken_back(call, command.activation_id)
            if self._is_wanted(call, command):
                self._find_replica(call, command)

    def circuits(self, roles: Collection[str]) -> list[CircuitReport]:
        """Replicas of the roles that have failed since their last success."""
        return self._choice.reports(roles)

    def connected_roles(self, roles: Iterable[str]) -> set[str]:
        """Those of the roles that work can be given to now."""
        return self.links.connected_roles(roles)

    def _send_releases(self) -> None:
        self._release_timer = None
        to_release, self._to_release = self._to_release, {}
        for link, call_ids in to_release.items():
            self._tasks.create_task(link.release_calls(call_ids))


def _overloaded(role: str, waiting: int, capacity: int, max_queue: float) -> OmniFlowError:
    return OmniFlowError(
        Reason.TOO_MANY_CALLS,
        f"{waiting} activations wait for role {role!r}, whose replicas run {capacity} at once; try again later.",
        violations=(Violation(field="max_queue", description=f"the limit is {max_queue:g} x {capacity}"),),
        metadata={"role": role},
        retry_after_s=OVERLOAD_RETRY_S,
    )


def _no_replica(role: str, command: StartActivation, waited_s: float) -> ErrorInfo:
    return ErrorInfo(
        reason=Reason.NO_REPLICA,
        message=f"No replica of role {role!r} became ready within {waited_s:.0f} s; "
        "look at `omniflow status` and the role's log.",
        metadata={"node": command.node.name, "role": role},
        retry_after_s=waited_s,
    )
