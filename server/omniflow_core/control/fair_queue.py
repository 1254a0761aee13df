"""A queue that serves tenants by cost, not by how much they put in: start-time fair queuing.

Each item has a start tag on a virtual clock that shows the start tag of the item served last:

    start  = max(virtual time when it became its tenant's first, finish of its tenant's item before)
    finish = start + cost / weight
    pop    = the lowest start; of equals the item that came first

    a: 1 1 1 1        starts 0 1 2 3        pop: a b a a a b        a and b get 4 each of the first 8 units of cost
    b: 4 4            starts 0 4

While two tenants wait, what they are given, by weight, differs by at most one largest item each. A tenant that was away
starts at the present virtual time, so it has saved nothing. One that was served just now is held to its last finish tag:
else a tenant with one item at a time would start anew each time, and go before all others for ever. That tag is kept
until virtual time has passed it, or the queue is empty; then nothing is left of the tenant.

P. Goyal, H. Vin, H. Cheng, "Start-Time Fair Queuing", SIGCOMM 1996, section 2. It knows nothing of what it holds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    arrival: int
    """Counts items of all tenants."""
    cost: float
    item: T


_Head = tuple[float, int, str]
"""Start tag of a tenant's first item, its arrival, the tenant."""


class FairQueue(Generic[T]):
    """Items of tenants; first in, first out within each. `weights`: positive; 1 for the others."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})
        self._waiting: dict[str, deque[_Entry[T]]] = {}
        self._heads: list[_Head] = []
        """A heap with one entry for each tenant that waits."""
        self._finishes: dict[str, float] = {}
        """Finish tags that virtual time has not passed, of the tenants' items served last."""
        self._to_pass: list[tuple[float, str]] = []
        """The same as a heap."""
        self._virtual = 0.0
        self._arrivals = 0
        self._returns = 0
        """Arrivals of items that came back, below all others."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Items in the order in which they would be popped if none came."""
        for entry in self._in_order():
            yield entry.item

    @property
    def tenant_count(self) -> int:
        """Tenants that wait."""
        return len(self._waiting)

    def count_of(self, tenant: str) -> int:
        """Items of one tenant."""
        waiting = self._waiting.get(tenant)
        return len(waiting) if waiting is not None else 0

    def push(self, tenant: str, item: T, cost: float = 1.0) -> None:
        """Adds an item behind the tenant's others. The cost is positive and finite."""
        assert 0 < cost < float("inf"), f"a cost of {cost} is no share of anything"
        self._arrivals += 1
        entry = _Entry(self._arrivals, cost, item)
        self._length += 1
        waiting = self._waiting.get(tenant)
        if waiting is not None:
            waiting.append(entry)
            return
        self._waiting[tenant] = deque((entry,))
        start = max(self._virtual, self._finishes.get(tenant, 0.0))
        heapq.heappush(self._heads, (start, entry.arrival, tenant))

    def push_first(self, tenant: str, item: T, cost: float = 1.0) -> None:
        """Adds an item before the tenant's others: one that was popped, and could not be served after all."""
        waiting = self._waiting.get(tenant)
        if waiting is None:
            self.push(tenant, item, cost)
            return
        self._returns -= 1
        waiting.appendleft(_Entry(self._returns, cost, item))
        self._length += 1
        place = next(index for index, head in enumerate(self._heads) if head[2] == tenant)
        self._heads[place] = (self._heads[place][0], self._returns, tenant)
        heapq.heapify(self._heads)

    def pop(self) -> T:
        """Takes the next item out. Raises IndexError when there is none."""
        if not self._heads:
            raise IndexError("pop from an empty queue")
        start, _, tenant = self._heads[0]
        waiting = self._waiting[tenant]
        entry = waiting.popleft()
        self._length -= 1
        self._move_to(start)
        finish = start + self._share(tenant, entry.cost)
        if waiting:
            heapq.heapreplace(self._heads, (finish, waiting[0].arrival, tenant))
        else:
            heapq.heappop(self._heads)
            self._leave(tenant, finish)
        return entry.item

    def remove(self, predicate: Callable[[T], bool]) -> list[T]:
        """Takes out all items that the predicate holds for; in the order of pops. Nobody is charged for them."""
        removed = [entry for entry in self._in_order() if predicate(entry.item)]
        if not removed:
            return []
        arrivals = {entry.arrival for entry in removed}
        starts = {tenant: start for start, _, tenant in self._heads}
        self._heads.clear()
        for tenant, start in starts.items():
            left = deque(entry for entry in self._waiting[tenant] if entry.arrival not in arrivals)
            if left:
                self._waiting[tenant] = left
                self._heads.append((start, left[0].arrival, tenant))
            else:
                self._leave(tenant, start)
        heapq.heapify(self._heads)
        self._length -= len(removed)
        return [entry.item for entry in removed]

    def _move_to(self, virtual: float) -> None:
        self._virtual = virtual
        while self._to_pass and self._to_pass[0][0] <= virtual:
            del self._finishes[heapq.heappop(self._to_pass)[1]]

    def _leave(self, tenant: str, finish: float) -> None:
        """The tenant waits no more. One whose last finish tag is still ahead has been given nothing since."""
        del self._waiting[tenant]
        if not self._waiting:  # nobody waits: nobody is owed anything
            self._finishes.clear()
            self._to_pass.clear()
            self._virtual = 0.0
        elif finish > self._virtual and tenant not in self._finishes:
            self._finishes[tenant] = finish
            heapq.heappush(self._to_pass, (finish, tenant))

    def _share(self, tenant: str, cost: float) -> float:
        return cost / self._weights.get(tenant, 1.0)

    def _in_order(self) -> Iterator[_Entry[T]]:
        heads = list(self._heads)
        waiting = {tenant: iter(entries) for tenant, entries in self._waiting.items()}
        entry_of = {tenant: next(entries) for tenant, entries in waiting.items()}
        while heads:
            start, _, tenant = heads[0]
            entry = entry_of[tenant]
            yield entry
            following = next(waiting[tenant], None)
            if following is None:
                heapq.heappop(heads)
            else:
                entry_of[tenant] = following
                heapq.heapreplace(heads, (start + self._share(tenant, entry.cost), following.arrival, tenant))

    def check_integrity(self) -> None:
        """For tests and idle drivers."""
        assert self._length == sum(map(len, self._waiting.values())), "items are miscounted"
        assert all(self._waiting.values()), "an empty queue was kept"
        firsts = {(waiting[0].arrival, tenant) for tenant, waiting in self._waiting.items()}
        assert {head[1:] for head in self._heads} == firsts, "the heap and the tenants that wait differ"
        assert len(self._heads) == len(firsts), "a tenant is in the heap twice"
        assert all(start >= self._virtual for start, _, _ in self._heads), "an item was to be served before now"
        assert sorted(self._to_pass) == sorted((f, t) for t, f in self._finishes.items()), "finish tags differ"
        assert all(finish > self._virtual for finish in self._finishes.values()), "a passed finish tag was kept"
        assert self._waiting or not self._finishes, "a finish tag was kept although nobody waits"
        for waiting in self._waiting.values():
            arrivals = [entry.arrival for entry in waiting]
            assert arrivals == sorted(set(arrivals)), "a tenant's items are out of order"
