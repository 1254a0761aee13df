"""What one call may keep: in buckets, chunk buffers, held events and starts that no replica has accepted.

Over the limit producers wait: what they gave is stored, but counts as delivered only when there is room (a debt). Waiting
must never be what a call ends in, so whoever room depends on goes on, and when otherwise nobody could, everybody does. What
they add is bounded by a hard limit, at which the call fails. Knows neither replicas nor how many activations they take in;
it only sees which starts have not been accepted.

    limit 100, two buckets of an anchor's yields c0 and c1
    d under c1 gives 120     its bucket is not the oldest with something in it: d waits once its window is full
    h under c0 gives 10      h holds the oldest bucket's lease: it goes on, its bucket closes, runs, and makes room
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omniflow_core.control.failures import CallFailure, store_full
from omniflow_core.control.leases import Holder
from omniflow_core.control.windows import Debt
from omniflow_core.control.work_items import Activation, GivenYield
from omniflow_core.graph.routing import NodePlan

if TYPE_CHECKING:
    from omniflow_core.control.work import CallWork

_Place = tuple[str, str]


class Room:
    """Bytes that a call keeps, and the debts to producers that wait."""

    __slots__ = ("_unaccepted", "_work", "debts", "limit_bytes", "total_bytes")

    def __init__(self, work: CallWork, limit_bytes: int) -> None:
        self._work = work
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self.debts: list[Debt] = []
        """Contributions that are stored and events that are held, whose producers must wait."""
        self._unaccepted: dict[_Place, int] = {}
        """Starts that are sent and not accepted, by what they need a place of."""

    @property
    def is_over(self) -> bool:
        return self.total_bytes > self.limit_bytes

    @property
    def hard_limit_bytes(self) -> int:
        return 2 * self.limit_bytes

    # --- what is kept -----------------------------------------------------------------------------------------------

    def charge(self, activation: Activation, size_bytes: int) -> None:
        """Inputs of an activation are kept until it is accepted."""
        activation.charge_bytes += size_bytes
        self.total_bytes += size_bytes

    def check(self, node: str, group: str, size_bytes: int) -> None:
        """Raises CallFailure when one bucket or buffer, or all together, are past what may be kept."""
        if size_bytes > self.limit_bytes or self.total_bytes > self.hard_limit_bytes:
            raise CallFailure(store_full(node, group, self.limit_bytes))

    def ask_for_place(self, node: NodePlan) -> None:
        """A start was sent: it may wait until a replica has a place for it."""
        place = _place_of(node)
        self._unaccepted[place] = self._unaccepted.get(place, 0) + 1

    def take_place(self, node: NodePlan) -> None:
        """A start that was sent has been accepted, or has ended."""
        place = _place_of(node)
        self._unaccepted[place] -= 1
        if not self._unaccepted[place]:
            del self._unaccepted[place]

    def clear(self) -> None:
        """The call has ended."""
        self.debts.clear()
        self._unaccepted.clear()
        self.total_bytes = 0

    # --- who waits --------------------------------------------------------------------------------------------------

    def owe(self, given: GivenYield) -> int:
        """Something of the yield is stored: it counts as delivered at once (0), or when its producer need not wait (1)."""
        if not self._must_wait(given.producer):
            return 0
        self.debts.append(Debt(given.producer, given.path.ordinal))
        return 1

    def owe_held(self, debt: Debt) -> int:
        """An event of the yield is held in an order tree: the same."""
        if not self._is_held_back(debt):
            debt.is_paid = True
            return 0
        self.debts.append(debt)
        return 1

    def settle(self) -> None:
        """Pays the debts to producers that need not wait any more. At the end of a step."""
        debts, self.debts = self.debts, []
        for debt in debts:
            if debt.is_paid:
                continue
            if self._is_held_back(debt) if debt.tree >= 0 else self._must_wait(debt.producer):
                self.debts.append(debt)
            else:
                self.pay(debt)
        if self.debts and self._is_stalled():
            debts, self.debts = self.debts, []
            for debt in debts:
                self.pay(debt)

    def pay(self, debt: Debt) -> None:
        """What was stored or held counts as delivered now."""
        if not debt.is_paid:
            debt.is_paid = True
            self._work.deliver(debt.producer, debt.ordinal)

    def _must_wait(self, producer: Activation) -> bool:
        """There is no room, and room can be made without the producer.

        Room is made when the oldest bucket with something in it closes, so whoever holds its leases goes on; while one of
        those waits at a gate or is a count join, everybody does, as it needs others. Room is also made when a start that
        is held goes on, so whoever stands before it does. A producer whose role is asked for another activation that it
        has not accepted goes on too: that one may wait for the producer's place, and be what room depends on.
        """
        if not self.is_over or self._is_place_wanted(producer) or self._holds_up_a_start(producer):
            return False
        work = self._work
        oldest = next((bucket.bucket_id for bucket in work.buckets.values() if bucket.fields), 0)
        holders = work.leases.holders_of(oldest)
        if not holders:
            return True
        return producer.activation_id not in holders and not any(self._needs_others(holder) for holder in holders)

    def _is_held_back(self, debt: Debt) -> bool:
        """Too much of an ordered output is held, and what it waits for needs neither the producer's end nor its place.

        Not while the stores are over their limit too: what they wait for could then be what the output waits for.
        """
        is_over = self._work.trees[debt.tree].held_bytes > self.limit_bytes and not self.is_over
        return is_over and not self._is_place_wanted(debt.producer) and not self._holds_up_a_start(debt.producer)

    def _is_place_wanted(self, producer: Activation) -> bool:
        return self._unaccepted.get(_place_of(producer.node), 0) > 0

    def _holds_up_a_start(self, producer: Activation) -> bool:
        """The next activation of some gate can only run after the producer has ended."""
        for tree, gate in self._work.gates.items():
            order = self._work.trees[tree]
            if gate.running == producer.activation_id != 0:
                if gate.waiting or order.held_starts:
                    return True
            elif not gate.waiting and tree in producer.order_nodes:
                following = order.next_start()
                if following is not None and order.stands_before(producer.order_nodes[tree], following):
                    return True
        return False

    def _needs_others(self, holder: Holder) -> bool:
        if holder > 0:
            return self._work.active[holder].is_held
        return holder in self._work.count_holders

    def _is_stalled(self) -> bool:
        """Nobody can go on: what runs waits for an acknowledgement, what is sent may wait for the place of one of those."""
        taken: set[_Place] = set()
        for activation in self._work.active.values():
            if activation.is_accepted:
                if not activation.window.is_closed:
                    return False
                taken.add(_place_of(activation.node))
        return self._unaccepted.keys() <= taken


def _place_of(node: NodePlan) -> _Place:
    """What activations of a node share with others: the places of its role, or for an inline node its own."""
    return (node.spec.role, "") if node.spec is not None and node.spec.role else ("", node.name)
