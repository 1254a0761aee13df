"""Which replica an activation goes to: what is known of the replicas, given to the policies of the core.

    links of a role ──ready, connected, serving the interface──▶ those whose circuit is closed ──policy──▶ one of them

It counts what each replica was given, measures what that took, and remembers which replica served a session last. Queues and
streams are the dispatcher's.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from omniflow_core.control.balancing import Candidate, Choice
from omniflow_core.control.circuit import CircuitReport, Circuits
from omniflow_core.control.commands import StartActivation
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.spec import Balance, NodeSpec
from omniflow_server.control.call import Call
from omniflow_server.control.costs import DEFAULT_COST, Costs, cost_of
from omniflow_server.control.link import ReplicaLink

SESSIONS_REMEMBERED = 16_384
"""Sessions whose last replica is known; the one that was served longest ago goes."""

_SPEAKS_AGAINST = frozenset(
    {Reason.INTERFACE_FAILED, Reason.INTERNAL, Reason.INVALID_OUTPUT, Reason.DEADLINE_EXCEEDED, Reason.REPLICA_LOST}
)
"""Failures that a healthy replica mostly does not give. What is refused, or is the input's fault, is not among them."""


@dataclass(frozen=True, slots=True)
class _Given:
    """An activation that a replica was given."""

    replica: str
    cost: float
    work: float
    """Cost of all that the replica had to do then, this activation included. What it took for all of that is what the next
    activation must expect, however many it runs at once."""
    begin_s: float


@dataclass(slots=True)
class _Work:
    cost: float = 0.0
    count: int = 0


_NO_WORK = _Work()


class ReplicaChoice:
    """Chooses replicas, and keeps the figures that choices are made by."""

    def __init__(self, *, queued: Callable[[ReplicaLink], int], draw: Callable[[], float] = random.random) -> None:
        """`queued` counts the activations that wait for a replica; `draw` gives chance, uniform in [0, 1)."""
        self._queued = queued
        self._draw = draw
        self._costs = Costs()
        self._circuits: dict[str, Circuits] = defaultdict(Circuits)
        self._turns: dict[str, int] = defaultdict(int)
        self._served: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        """Name of the replica that served a session last, by tenant, session and role."""
        self._given: dict[tuple[str, int], _Given] = {}
        """Activations whose node is balanced by cost, by call and activation, until they end."""
        self._work: dict[str, _Work] = defaultdict(_Work)
        """What they cost together, by replica."""

    def choose(self, call: Call, command: StartActivation, spec: NodeSpec, links: Sequence[ReplicaLink]) -> ReplicaLink:
        """One of the links, for the first activation of a call's node, or for each of a node that spreads."""
        links = self._sound(spec.role, links)
        if len(links) == 1:
            return links[0]
        self._turns[spec.name] += 1
        choice = Choice(
            turn=self._turns[spec.name],
            affinity=call.session or call.call_id,
            draws=(self._draw(), self._draw()),
            cost=self.cost_of(command, spec),
            last=self._served.get((call.tenant, call.session, spec.role), "") if call.session else "",
        )
        chosen = call.replicas.replica_for(spec, [self._candidate(link, spec) for link in links], choice)
        assert chosen is not None, "one of several is chosen"
        return next(link for link in links if link.name == chosen.key)

    def cost_of(self, command: StartActivation, spec: NodeSpec) -> float:
        """The cost that the activation's input declares."""
        if spec.balance is not Balance.COST_AWARE or not spec.cost_field:
            return DEFAULT_COST
        return (
            sum(cost_of(value) for facet in command.facets for value in facet.fields.get(spec.cost_field, ()))
            or DEFAULT_COST
        )

    def _sound(self, role: str, links: Sequence[ReplicaLink]) -> Sequence[ReplicaLink]:
        circuits = self._circuits.get(role)
        if circuits is None or len(links) < 2:
            return links
        admissible = set(circuits.admissible([link.name for link in links], time.monotonic()))
        return [link for link in links if link.name in admissible]

    def _candidate(self, link: ReplicaLink, spec: NodeSpec) -> Candidate:
        load = link.in_flight + self._queued(link)
        work = self._work.get(link.name, _NO_WORK)
        cost = work.cost + max(0, load - work.count) * DEFAULT_COST
        return Candidate(
            key=link.name,
            load=load,
            foreign_load=link.foreign_load,
            capacity=link.replica.max_activations,
            cost=cost,
            foreign_cost=link.foreign_load * (cost / load if load else DEFAULT_COST),
            seconds_per_cost=self._costs.expected(spec.name, link.name),
        )

    # --- figures ------------------------------------------------------------------------------------------------------

    def given(self, link: ReplicaLink, call: Call, command: StartActivation, spec: NodeSpec) -> None:
        """A replica was given an activation, which it may have no room for yet."""
        if spec.balance is not Balance.COST_AWARE:
            return
        cost = self.cost_of(command, spec)
        work = self._work[link.name]
        work.cost += cost
        work.count += 1
        self._given[call.call_id, command.activation_id] = _Given(link.name, cost, work.cost, time.monotonic())

    def taken_back(self, call: Call, activation_id: int) -> _Given | None:
        """It has ended there, or goes elsewhere."""
        given = self._given.pop((call.call_id, activation_id), None)
        if given is not None:
            work = self._work[given.replica]
            work.cost -= given.cost
            work.count -= 1
            if not work.count:
                del self._work[given.replica]
        return given

    def started(self, link: ReplicaLink, call: Call, spec: NodeSpec) -> None:
        """An activation was sent to a replica."""
        circuits = self._circuits.get(spec.role)
        if circuits is not None:
            circuits.started(link.name, time.monotonic())
        if call.session and spec.balance is Balance.SESSION_AFFINITY:
            key = (call.tenant, call.session, spec.role)
            self._served[key] = link.name
            self._served.move_to_end(key)
            if len(self._served) > SESSIONS_REMEMBERED:
                self._served.popitem(last=False)

    def ended(self, link: ReplicaLink, call: Call, command: StartActivation, error: ErrorInfo | None) -> bool:
        """An activation has ended on a replica. True when that opened the replica's circuit."""
        spec = command.node.spec
        assert spec is not None
        given = self.taken_back(call, command.activation_id)
        if error is not None:
            return error.reason in _SPEAKS_AGAINST and self._circuits[spec.role].failed(link.name, time.monotonic())
        if spec.role in self._circuits:
            self._circuits[spec.role].succeeded(link.name)
        if given is not None:
            self._costs.observe(spec.name, link.name, given.work, time.monotonic() - given.begin_s)
        return False

    def forget(self, link: ReplicaLink) -> None:
        """That life of the replica is over."""
        self._costs.forget(link.name)
        circuits = self._circuits.get(link.replica.role)
        if circuits is not None:
            circuits.forget(link.name)

    def reports(self, roles: Collection[str]) -> list[CircuitReport]:
        """Replicas of the roles that have failed since their last success."""
        now_s = time.monotonic()
        return [
            report for role in sorted(roles) if role in self._circuits for report in self._circuits[role].reports(now_s)
        ]
