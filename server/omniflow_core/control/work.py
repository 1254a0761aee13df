"""What runs in a call, and what may still come to be: places in the order, leases, gates and windows of activations.

The parts of a step (`delivery`, `joins`, `count_joins`, `chunk_feeds`) decide what is started; here it is registered, so
that leases and order are right before anything else can see it. Commands are collected in `out` for the step that is being
handled. Lease roots that close wait in `closed`, for `joins` to settle once the step has registered all it starts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from omniflow_core.control.buckets import Bucket
from omniflow_core.control.commands import AckYields, Command, Emit, Facet, StartActivation
from omniflow_core.control.failures import CallFailure, loop_bound_exceeded, store_full, too_many_activations
from omniflow_core.control.gates import ExecutionGate
from omniflow_core.control.leases import Holder, LeaseRoot, LeaseTable
from omniflow_core.control.ordering import Freed, OrderNode, OrderTree
from omniflow_core.control.paths import Path
from omniflow_core.control.windows import Debt, StoreBudget, YieldWindow
from omniflow_core.control.work_items import NO_SCOPES, Activation, GivenYield, Reservation, Scopes
from omniflow_core.graph.routing import GraphPlan, NodePlan
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
        self.stores = StoreBudget(store_limit_bytes)
        self.buckets: dict[LeaseRoot, Bucket] = {}
        """Open buckets, oldest first."""
        self.active: dict[int, Activation] = {}
        self.started = 0
        """Activations that were commanded, or wait at a gate."""
        self.closed: deque[LeaseRoot] = deque()
        self.out: list[Command] = []
        self.freed: Freed = []
        """What order trees let go, until `flush`."""
        self.count_holders: set[Holder] = set()
        """Holders that are count joins: they wait for anything in the call."""
        self._unaccepted: dict[tuple[str, str], int] = {}
        """Starts that are sent and not accepted, by role."""
        self._iterations: dict[str, int] = {}
        self._last_reservation: Holder = 0

    def new_window(self, node: NodePlan) -> YieldWindow:
        window = node.spec.yield_window if node.spec is not None else 0
        return YieldWindow(window or self._yield_window, self._byte_credit)

    # --- reservations -----------------------------------------------------------------------------------------------

    def new_holder(self) -> Holder:
        """A holder of leases that is no activation."""
        self._last_reservation -= 1
        return self._last_reservation

    def reserve(self, node: NodePlan, producer: Activation, ordinal: int, scopes: Scopes) -> Reservation:
        """Keeps place and leases for an activation of the node below a yield."""
        holder = self.new_holder()
        places = self._places(node, producer, ordinal)
        held = {join: scopes[join] for join in node.tracks} if node.tracks else NO_SCOPES
        for root in held.values():
            self.leases.acquire(root, holder)
        return Reservation(holder, places, held)

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
        activation = self._register(node, group, (facet,), given.path, given.ordinals, places, scopes)
        if activation.is_held:
            self._charge(activation, given.size_bytes + HELD_START_BYTES)
            self.check_stores(node.name, facet.group, 0)
            return self.owe(given)
        activation.caused_by = given.producer
        activation.caused_ordinal = given.path.ordinal
        return 1

    def owe(self, given: GivenYield) -> int:
        """Something of the yield is stored: it counts as delivered at once (0), or when its producer need not wait (1)."""
        if not self.must_wait(given.producer):
            return 0
        self.stores.debts.append(Debt(given.producer, given.path.ordinal))
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
        activation = self._register(node, group, facets, origin, path, places, scopes)
        self.release(scopes, reservation.holder)
        self._charge(activation, size_bytes)
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
    ) -> Activation:
        self._count(node)
        self.started += 1
        activation_id = self.started
        activation = Activation(activation_id, node, group, origin, origin_path, places, scopes, self.new_window(node))
        self.active[activation_id] = activation
        for root in scopes.values():
            self.leases.acquire(root, activation_id)
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
        place = _place_of(activation.node)
        self._unaccepted[place] = self._unaccepted.get(place, 0) + 1
        activation.is_accepted = False
        activation.is_sent = True
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
            place = _place_of(activation.node)
            self._unaccepted[place] -= 1
            if not self._unaccepted[place]:
                del self._unaccepted[place]
        if activation.charge_bytes:
            self.uncharge(activation.charge_bytes)
            activation.charge_bytes = 0
        producer = activation.caused_by
        if producer is not None:
            activation.caused_by = None
            self._deliver(producer, activation.caused_ordinal)

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

    def _deliver(self, producer: Activation, ordinal: int) -> None:
        ack = producer.window.accept(ordinal)
        if ack is not None and producer.activation_id in self.active:
            self.out.append(AckYields(producer.activation_id, ack))

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
                self._pay(item)
            elif type(item) is StartActivation:
                node = item.node
                start = self.gates[node.gate].enter(item)
                if start is not None:
                    self._let_in(start)

    def _let_in(self, start: StartActivation) -> None:
        activation = self.active[start.activation_id]
        activation.is_held = False
        self.send(activation, start)

    # --- stores -----------------------------------------------------------------------------------------------------

    def _charge(self, activation: Activation, size_bytes: int) -> None:
        """Keeps bytes charged until the activation is accepted."""
        activation.charge_bytes += size_bytes
        self.stores.total_bytes += size_bytes

    def uncharge(self, size_bytes: int) -> None:
        """Bytes are no longer kept."""
        self.stores.total_bytes -= size_bytes

    def must_wait(self, producer: Activation) -> bool:
        """There is no room, and room can be made without the producer.

        Room is made when the oldest bucket with something in it closes, so whoever holds its leases goes on; while one of
        those waits at a gate or is a count join, everybody does, as it needs others. Room is also made when a start that
        is held goes on, so whoever stands before it does. A producer whose role is asked for another activation that it
        has not accepted goes on too: that one may wait for the producer's place, and be what room depends on.
        """
        if not self.stores.is_over or self._is_place_wanted(producer) or self._holds_up_a_start(producer):
            return False
        oldest = next((bucket.bucket_id for bucket in self.buckets.values() if bucket.fields), 0)
        holders = self.leases.holders_of(oldest)
        if not holders:
            return True
        return producer.activation_id not in holders and not any(self._needs_others(holder) for holder in holders)

    def is_held_back(self, tree: int, producer: Activation) -> bool:
        """Too much of an ordered output is held, and what it waits for needs neither the producer's end nor its place.

        Not while the stores are over their limit too: what they wait for could then be what the output waits for.
        """
        is_over = self.trees[tree].held_bytes > self.stores.limit_bytes and not self.stores.is_over
        return is_over and not self._is_place_wanted(producer) and not self._holds_up_a_start(producer)

    def _is_place_wanted(self, producer: Activation) -> bool:
        return self._unaccepted.get(_place_of(producer.node), 0) > 0

    def _holds_up_a_start(self, producer: Activation) -> bool:
        """The next activation of some gate can only run after the producer has ended."""
        for tree, gate in self.gates.items():
            if gate.running == producer.activation_id != 0:
                if gate.waiting or self.trees[tree].held_starts:
                    return True
            elif not gate.waiting and tree in producer.order_nodes:
                following = self.trees[tree].next_start()
                if following is not None and self.trees[tree].stands_before(producer.order_nodes[tree], following):
                    return True
        return False

    def _needs_others(self, holder: Holder) -> bool:
        if holder > 0:
            return self.active[holder].is_held
        return holder in self.count_holders

    def check_stores(self, node: str, group: str, size_bytes: int) -> None:
        """Raises CallFailure when one bucket or buffer, or all together, are past what may be kept."""
        if size_bytes > self.stores.limit_bytes or self.stores.total_bytes > self.stores.hard_limit_bytes:
            raise CallFailure(store_full(node, group, self.stores.limit_bytes))

    def settle_debts(self) -> None:
        """Counts stored contributions as delivered when their producers need not wait any more. At the end of a step.

        All of them when otherwise nobody could go on: waiting must never be what a call ends in.
        """
        debts, self.stores.debts = self.stores.debts, []
        for debt in debts:
            if debt.is_paid:
                continue
            is_held = debt.tree >= 0
            if self.is_held_back(debt.tree, debt.producer) if is_held else self.must_wait(debt.producer):
                self.stores.debts.append(debt)
            else:
                self._pay(debt)

        if self.stores.debts and self._is_stalled():
            debts, self.stores.debts = self.stores.debts, []
            for debt in debts:
                self._pay(debt)

    def _is_stalled(self) -> bool:
        """Nobody can go on: what runs waits for an acknowledgement, what is sent may wait for the place of one of those."""
        taken: set[tuple[str, str]] = set()
        for activation in self.active.values():
            if activation.is_accepted:
                if not activation.window.is_closed:
                    return False
                taken.add(_place_of(activation.node))
        return self._unaccepted.keys() <= taken

    def _pay(self, debt: Debt) -> None:
        if not debt.is_paid:
            debt.is_paid = True
            self._deliver(debt.producer, debt.ordinal)

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
        self.stores.clear()
        self.buckets.clear()
        self.closed.clear()
        self.freed.clear()

    @property
    def iterations(self) -> Mapping[str, int]:
        """How often each node with a loop bound has run."""
        return self._iterations


def _place_of(node: NodePlan) -> tuple[str, str]:
    """What activations of a node share with others: the places of its role, or for an inline node its own."""
    return (node.spec.role, "") if node.spec is not None and node.spec.role else ("", node.name)
