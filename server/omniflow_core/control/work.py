"""What runs in a call, and what may still come to be: places in the order, leases, gates and windows of activations.

The parts of a step (`delivery`, `joins`, `count_joins`, `chunk_feeds`) decide what is started; here it is registered, so
that leases and order are right before anything else can see it. Commands are collected in `out` for the step that is being
handled. Lease roots that close wait in `closed`, for `joins` to settle once the step has registered all it starts.
"""

from __future__ import annotations

from collections import deque

from omniflow_core.control.buckets import Bucket
from omniflow_core.control.commands import AckYields, Command, Emit, Facet, StartActivation
from omniflow_core.control.failures import CallFailure, loop_bound_exceeded, too_many_activations
from omniflow_core.control.gates import ExecutionGate
from omniflow_core.control.leases import Holder, LeaseRoot, LeaseTable
from omniflow_core.control.ordering import Freed, OrderNode, OrderTree
from omniflow_core.control.paths import Path
from omniflow_core.control.room import Room
from omniflow_core.control.windows import Debt, YieldWindow
from omniflow_core.control.work_items import NO_SCOPES, Activation, GivenYield, HostedSegment, Reservation, Scopes
from omniflow_core.graph.routing import GraphPlan, NodePlan, PipelinePlan
from omniflow_core.graph.spec import Replay

HELD_START_BYTES = 256
"""What a start that waits at a gate costs besides its values."""


class CallWork:
    """Accounts of one call. Raises CallFailure when a limit of the call is passed."""

    def __init__(
        self, plan: GraphPlan, *, yield_window: int, byte_credit: int, store_limit_bytes: int, max_activations: int
    ) -> None:
        self._yield_window = yield_window
        self._byte_credit = byte_credit
        self._max_activations = max_activations
        self.trees = tuple(OrderTree() for _ in (*plan.ordered_outputs, *plan.gates))
        self.gates = {plan.nodes[name].gate: ExecutionGate(name) for name in plan.gates}
        self.leases = LeaseTable()
        self.room = Room(self, store_limit_bytes)
        self.buckets: dict[LeaseRoot, Bucket] = {}
        """Open buckets, oldest first."""
        self.active: dict[int, Activation] = {}
        self.started = 0
        """Activations that were commanded, or wait at a gate, and those that ended pipelines have started."""
        self.closed: deque[LeaseRoot] = deque()
        self.out: list[Command] = []
        self.freed: Freed = []
        """What order trees let go, until `flush`."""
        self.count_holders: set[Holder] = set()
        """Holders that are count joins: they wait for anything in the call."""
        self._iterations: dict[str, int] = {}
        self._last_reservation: Holder = 0

    def new_window(self, node: NodePlan) -> YieldWindow:
        window = node.spec.yield_window if node.spec is not None else 0
        return YieldWindow(window or self._yield_window, self._byte_credit)

    def new_exit_window(self, pipeline: PipelinePlan) -> YieldWindow:
        """Of what leaves the pipeline: no larger than that of one activation of its last node, which waits for its
        acknowledgements, nor than the first node's, which is what all of them together may have undelivered."""
        windows = (node.yield_window or self._yield_window for node in (pipeline.nodes[0], pipeline.nodes[-1]))
        return YieldWindow(min(windows), self._byte_credit)

    # --- reservations -----------------------------------------------------------------------------------------------

    def new_holder(self) -> Holder:
        """A holder of leases that is no activation."""
        self._last_reservation -= 1
        return self._last_reservation

    def reserve(
        self,
        node: NodePlan,
        producer: Activation,
        ordinal: int,
        scopes: Scopes,
        hosted: HostedSegment | None = None,
    ) -> Reservation:
        """Keeps place and leases for an activation of the node below a yield."""
        holder = self.new_holder()
        places = self._places(node, producer, ordinal)
        held = {join: scopes[join] for join in node.tracks} if node.tracks else NO_SCOPES
        for root in held.values():
            self.leases.acquire(root, holder)
        return Reservation(holder, places, held, hosted)

    def drop(self, reservation: Reservation) -> None:
        """The activation will not come to be."""
        for tree, place in reservation.order_nodes.items():
            self.trees[tree].finish(place, 0, self.freed)
        self.release(reservation.scopes, reservation.holder)

    def _places(self, node: NodePlan, producer: Activation, ordinal: int) -> dict[int, OrderNode]:
        trees, above = self.trees, producer.order_nodes
        return {tree: trees[tree].add_child(above[tree], ordinal) for tree in node.reaches}

    def release(self, scopes: Scopes, holder: Holder) -> None:
        """Lets leases go; roots that close are settled later in the step."""
        for root in scopes.values():
            if self.leases.release(root, holder):
                self.closed.append(root)

    # --- activations ------------------------------------------------------------------------------------------------

    def start_below(self, given: GivenYield, node: NodePlan, group: int, facet: Facet) -> int:
        """Starts an activation that one yield causes. Returns how many acceptances the yield waits for because of it."""
        scopes = {join: given.scopes[join] for join in node.tracks} if node.tracks else NO_SCOPES
        places = self._places(node, given.producer, given.path.ordinal)
        hosted = given.producer.hosted
        if hosted is not None and node.segment is not hosted.plan:
            hosted = None
        activation = self._register(node, group, (facet,), given.path, given.ordinals, places, scopes, hosted)
        if hosted is not None:
            return 0  # its replica counts who has taken the yield in
        if activation.is_held:
            self.room.charge(activation, given.size_bytes + HELD_START_BYTES)
            self.room.check(node.name, facet.group, 0)
            return self.room.owe(given)
        activation.caused_by = given.producer
        activation.caused_ordinal = given.path.ordinal
        return 1

    def start_reserved(
        self,
        reservation: Reservation,
        origin: Path | None,
        node: NodePlan,
        group: int,
        facets: tuple[Facet, ...],
        size_bytes: int,
    ) -> Activation:
        """Starts the activation that a place was kept for; what it takes stays charged until it is accepted."""
        path = origin.ordinals() if origin is not None else ()
        places, scopes = reservation.order_nodes, reservation.scopes
        activation = self._register(node, group, facets, origin, path, places, scopes, reservation.hosted)
        self.release(scopes, reservation.holder)
        if reservation.hosted is None:
            self.room.charge(activation, size_bytes)
        return activation

    def _register(
        self,
        node: NodePlan,
        group: int,
        facets: tuple[Facet, ...],
        origin: Path | None,
        origin_path: tuple[int, ...],
        places: dict[int, OrderNode],
        scopes: Scopes,
        hosted: HostedSegment | None,
    ) -> Activation:
        self._count(node)
        self.started += 1
        activation_id = self.started
        activation = Activation(activation_id, node, group, origin, origin_path, places, scopes, self.new_window(node))
        self.active[activation_id] = activation
        for root in scopes.values():
            self.leases.acquire(root, activation_id)
        if hosted is not None:
            assert origin is not None, "what starts inside a segment stems from a yield there"
            activation.hosted = hosted
            activation.is_sent = True  # until its first result it may wait for a place there
            self.room.ask_for_place(node)
            hosted.expect(activation_id, node.name, facets[0].group, origin)
            return activation
        start = StartActivation(activation_id, node, facets, origin_path)
        spec = node.spec
        assert spec is not None, "the source is not started"
        if spec.replay is not Replay.NONE:
            activation.start = start
            if spec.replay is Replay.CONTINUE:
                activation.delivered = []
            elif spec.is_deterministic:
                activation.digests = []
        if node.gate >= 0:
            activation.is_held = True
            self.trees[node.gate].hold_start(places[node.gate], start, self.freed)
            self.flush()
        else:
            self.send(activation, start)
        return activation

    def send(self, activation: Activation, start: StartActivation) -> None:
        """Commands a start; until it is accepted it may wait for a place on a replica."""
        activation.is_accepted = False
        activation.is_sent = True
        self.room.ask_for_place(activation.node)
        self.out.append(start)

    def _count(self, node: NodePlan) -> None:
        """Raises CallFailure when a loop has run too often or too much was started."""
        if self.started >= self._max_activations:
            raise CallFailure(too_many_activations(node, self._max_activations))
        if node.loop_bound:
            count = self._iterations[node.name] = self._iterations.get(node.name, 0) + 1
            if count > node.loop_bound:
                raise CallFailure(loop_bound_exceeded(node))

    def accept(self, activation: Activation) -> None:
        """A replica has taken the activation in: what caused it is delivered."""
        activation.is_accepted = True
        if activation.is_sent:
            activation.is_sent = False
            self.room.take_place(activation.node)
        if activation.charge_bytes:
            self.room.total_bytes -= activation.charge_bytes
            activation.charge_bytes = 0
        producer = activation.caused_by
        if producer is not None:
            activation.caused_by = None
            self.deliver(producer, activation.caused_ordinal)

    def end(self, activation: Activation) -> None:
        """The activation will give nothing more; its chunks have been flushed."""
        del self.active[activation.activation_id]
        if not activation.is_accepted:
            self.accept(activation)
        yields = activation.window.next_ordinal + activation.virtual_yields
        for tree, place in activation.order_nodes.items():
            self.trees[tree].finish(place, yields, self.freed)
        if activation.node.gate >= 0:
            following = self.gates[activation.node.gate].leave(activation.activation_id)
            if following is not None:
                self._let_in(following)
        self.flush()
        self.release(activation.scopes, activation.activation_id)

    def deliver(self, producer: Activation, ordinal: int) -> None:
        """One receiver more has a yield."""
        ack = producer.window.accept(ordinal)
        if ack is not None and producer.activation_id in self.active:
            self.acknowledge(producer, ack)

    def acknowledge(self, producer: Activation, next_ordinal: int) -> None:
        """Its yields below the ordinal are delivered. Where all receivers are inside its segment, nobody waits for that."""
        if producer.hosted is None or producer.node.has_exits:
            self.out.append(AckYields(producer.activation_id, next_ordinal))

    # --- order ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Turns what order trees let go into commands."""
        if not self.freed:
            return
        freed, self.freed = self.freed, []
        for item in freed:
            if type(item) is Emit:
                self.out.append(item)
            elif type(item) is Debt:
                self.room.pay(item)
            elif type(item) is StartActivation:
                node = item.node
                start = self.gates[node.gate].enter(item)
                if start is not None:
                    self._let_in(start)

    def _let_in(self, start: StartActivation) -> None:
        activation = self.active[start.activation_id]
        activation.is_held = False
        self.send(activation, start)

    # --- the end ----------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """The call has failed: forgets all but the activations that somebody runs. Starts of this step are taken back."""
        for command in self.out:
            if isinstance(command, StartActivation) and command.attempt == 1:
                self.active.pop(command.activation_id, None)
                self.started -= 1
        self.out[:] = [c for c in self.out if not isinstance(c, StartActivation)]
        for activation_id in [a for a, activation in self.active.items() if activation.is_held]:
            del self.active[activation_id]
            self.started -= 1
        for activation in self.active.values():
            activation.order_nodes = {}
            activation.scopes = NO_SCOPES
            activation.caused_by = activation.feeds = activation.start = None
            activation.digests = activation.delivered = None
            activation.charge_bytes = 0
        for gate in self.gates.values():
            gate.clear()
        self.trees = ()
        self.leases.clear()
        self.room.clear()
        self.buckets.clear()
        self.closed.clear()
        self.freed.clear()
