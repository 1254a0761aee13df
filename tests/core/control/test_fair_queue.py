"""Fair queues: order, shares of cost, and what is left of tenants."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniflow_core.control.fair_queue import FairQueue

properties = settings(max_examples=150, derandomize=True, deadline=None, database=None)
Item = tuple[str, int, float]
"""Tenant, number, cost."""


def filled(*items: tuple[str, float], weights: dict[str, float] | None = None) -> FairQueue[Item]:
    """A queue of items with their numbers from 0."""
    queue: FairQueue[Item] = FairQueue(weights)
    for number, (tenant, cost) in enumerate(items):
        queue.push(tenant, (tenant, number, cost), cost)
        queue.check_integrity()
    return queue


def popped(queue: FairQueue[Item], count: int | None = None) -> list[Item]:
    taken = []
    for _ in range(len(queue) if count is None else count):
        taken.append(queue.pop())
        queue.check_integrity()
    return taken


def names(items: Sequence[Item]) -> str:
    return "".join(item[0] for item in items)


def test_pop_follows_the_drawing() -> None:
    queue = filled(*[("a", 1)] * 4, *[("b", 4)] * 2)
    assert names(popped(queue)) == "abaaab"


def test_one_tenant_is_served_first_in_first_out() -> None:
    queue = filled(*[("a", cost) for cost in (3, 1, 2, 9, 1)])
    assert [number for _, number, _ in popped(queue)] == [0, 1, 2, 3, 4]


def test_tenants_take_turns_whoever_came_first() -> None:
    queue = filled(*[("a", 1)] * 5, *[("b", 1)] * 3, ("c", 1))
    assert names(popped(queue)) == "abcababaa"


def test_weight_is_a_share() -> None:
    queue = filled(*[("a", 1)] * 30, *[("b", 1)] * 30, weights={"a": 2.0})
    assert names(popped(queue, 30)).count("a") == 20


def test_flood_does_not_delay_a_newcomer() -> None:
    queue = filled(*[("a", 1)] * 1000)
    popped(queue, 100)
    queue.push("b", ("b", 0, 50.0), 50.0)
    assert "b" in names(popped(queue, 2)), "however much it costs"


def test_tenant_that_was_away_has_saved_nothing() -> None:
    queue = filled(("b", 1), *[("a", 1)] * 1000)
    popped(queue, 500)
    for number in range(20):
        queue.push("b", ("b", number, 1.0), 1.0)
    assert names(popped(queue, 20)).count("b") <= 11


def test_tenant_with_one_item_at_a_time_does_not_go_before_all_others() -> None:
    """It has no item when the next is taken, and is held to what it was given all the same."""
    queue = filled(*[("a", 1)] * 100)
    served: list[Item] = []
    for number in range(60):
        if not any(item[0] == "b" for item in queue):
            queue.push("b", ("b", number, 4.0), 4.0)
        served += popped(queue, 1)
    cost = {name: sum(item[2] for item in served if item[0] == name) for name in "ab"}
    assert abs(cost["a"] - cost["b"]) <= 5


def test_iteration_is_the_order_of_pops_and_changes_nothing() -> None:
    queue = filled(("a", 2), ("b", 1), ("a", 1), ("c", 3), ("b", 5), ("c", 1), ("a", 1))
    popped(queue, 2)
    assert list(queue) == list(queue)
    expected = list(queue)
    assert popped(queue) == expected


def test_remove_takes_out_in_the_order_of_pops_and_charges_nobody() -> None:
    queue = filled(("a", 1), ("b", 1), ("a", 100), ("b", 1), ("a", 1), ("c", 1))
    expected = [item for item in queue if item[1] in (0, 2, 5)]
    assert queue.remove(lambda item: item[1] in (5, 2, 0)) == expected
    queue.check_integrity()
    assert len(queue) == 3
    assert names(popped(queue)) == "bab", "the 100 are not counted, and a has not been served yet"


def test_remove_of_nothing_changes_nothing() -> None:
    queue = filled(("a", 1), ("b", 1))
    assert queue.remove(lambda item: False) == []
    assert names(popped(queue)) == "ab"
    assert queue.remove(lambda item: True) == []


def test_removing_a_tenant_keeps_what_it_was_given_and_nothing_else() -> None:
    queue = filled(("a", 10), ("a", 1), *[("b", 1)] * 50)
    assert names(popped(queue, 2)) == "ab"
    for _ in range(100):  # calls that come and are cancelled
        queue.remove(lambda item: item[0] == "a")
        queue.push("a", ("a", 0, 1.0), 1.0)
        queue.check_integrity()
    assert names(popped(queue, 12)) == "bbbbbbbbbbab", "10 for a and 11 for b"


# --- what comes back --------------------------------------------------------------------------------------------------


def put_back(queue: FairQueue[Item], item: Item) -> None:
    tenant, _, cost = item
    queue.push_first(tenant, item, cost)
    queue.check_integrity()


def test_item_that_comes_back_is_its_tenants_first() -> None:
    queue = filled(*[("a", 1)] * 4)
    (first,) = popped(queue, 1)
    put_back(queue, first)
    assert len(queue) == queue.count_of("a") == 4
    assert [number for _, number, _ in queue] == [0, 1, 2, 3]
    assert [number for _, number, _ in popped(queue)] == [0, 1, 2, 3]


def test_items_that_come_back_newest_first_are_in_order_again() -> None:
    queue = filled(*[("a", cost) for cost in (3, 1, 2, 9, 1)])
    before = list(queue)
    for item in reversed(popped(queue, 3)):
        put_back(queue, item)
    assert list(queue) == before
    assert popped(queue) == before


def test_item_that_comes_back_to_an_emptied_queue_is_alone() -> None:
    queue = filled(("a", 5))
    (item,) = popped(queue)
    put_back(queue, item)
    queue.push("a", ("a", 1, 1.0), 1.0)
    queue.push("b", ("b", 2, 1.0), 1.0)
    queue.check_integrity()
    assert names(popped(queue)) == "aba", "nothing is owed from before it was empty"
    assert (queue._finishes, queue._to_pass, queue._waiting, queue._heads) == ({}, [], {}, [])


def test_item_of_a_tenant_that_waits_no_more_comes_back_behind_its_last_finish() -> None:
    queue = filled(("a", 3), *[("b", 1)] * 6)
    (item,) = popped(queue, 1)
    put_back(queue, item)
    assert names(popped(queue)) == "bbbbabb", "it was charged for it"


def test_item_that_comes_back_leaves_the_turns_of_tenants() -> None:
    queue = filled(*[("a", 1)] * 3, *[("b", 1)] * 3)
    (item,) = popped(queue, 1)
    put_back(queue, item)
    assert [each[:2] for each in popped(queue)] == [("b", 3), ("a", 0), ("b", 4), ("a", 1), ("b", 5), ("a", 2)]


def test_item_that_comes_back_goes_before_equals_of_others() -> None:
    """It was there before them all."""
    queue = filled(("a", 1), ("b", 1), ("a", 1))
    first, second = popped(queue, 2)
    assert names((first, second)) == "ab"
    queue.push("b", ("b", 3, 1.0), 1.0)
    put_back(queue, first)
    assert [each[:2] for each in popped(queue)] == [("a", 0), ("b", 3), ("a", 2)]


def test_item_that_came_back_is_removed_like_others() -> None:
    queue = filled(*[("a", 1)] * 3, ("b", 1))
    (item,) = popped(queue, 1)
    put_back(queue, item)
    assert queue.remove(lambda each: each is item) == [item]
    queue.check_integrity()
    assert sorted(popped(queue)) == [("a", 1, 1), ("a", 2, 1), ("b", 3, 1)]


def test_pop_of_nothing_is_an_error() -> None:
    queue = filled(("a", 1))
    popped(queue)
    with pytest.raises(IndexError, match="empty queue"):
        queue.pop()


@pytest.mark.parametrize("cost", [0.0, -1.0, float("inf"), float("nan")])
def test_cost_is_positive_and_finite(cost: float) -> None:
    queue = filled()
    with pytest.raises(AssertionError, match="is no share of anything"):
        queue.push("a", ("a", 0, cost), cost)
    assert len(queue) == 0
    queue.check_integrity()


def test_nothing_is_left_of_tenants_that_do_not_wait() -> None:
    """Tags are kept while others wait and virtual time has not passed them: not of ten thousand tenants."""
    queue = filled()
    for number in range(10_000):
        queue.push("steady", ("steady", number, 1.0), 1.0)
        queue.push(f"t{number}", (f"t{number}", 0, 1.0), 1.0)
        queue.pop()
        queue.pop()
    assert (len(queue._finishes), len(queue._to_pass), len(queue._waiting), len(queue._heads)) == (0, 0, 0, 0)
    queue.push("a", ("a", 0, 1.0), 1.0)
    for number in range(10_000):
        queue.push("a", ("a", 0, 1.0), 1.0)
        queue.push(f"t{number}", (f"t{number}", 0, 1.0), 1.0)
        queue.pop()
        queue.pop()
    assert len(queue._waiting) <= 2
    assert len(queue._finishes) == len(queue._to_pass) <= 2


# --- properties -------------------------------------------------------------------------------------------------------

Step = tuple[str, int, int]
"""What, which tenant, and what cost or which item."""
steps = st.lists(
    st.tuples(st.sampled_from(["push", "push", "pop", "remove", "return"]), st.integers(0, 3), st.integers(1, 20)),
    max_size=120,
)
weights_of = st.fixed_dictionaries({f"t{i}": st.sampled_from([0.5, 1.0, 3.0]) for i in range(2)})


@properties
@given(steps=steps, weights=weights_of)
def test_queue_is_a_queue_of_each_tenant_in_any_history(steps: list[Step], weights: dict[str, float]) -> None:
    queue: FairQueue[Item] = FairQueue(weights)
    expected: dict[str, deque[Item]] = defaultdict(deque)
    for number, (what, index, cost) in enumerate(steps):
        tenant = f"t{index}"
        if what == "push":
            expected[tenant].append((tenant, number, cost))
            queue.push(tenant, (tenant, number, cost), cost)
        elif what == "pop" and len(queue):
            foreseen = next(iter(queue))
            item = queue.pop()
            assert item == foreseen == expected[item[0]].popleft()
        elif what == "return" and len(queue):
            item = queue.pop()
            put_back(queue, item)
            assert expected[item[0]][0] == item
        elif what == "remove":
            order = list(queue)
            removed = queue.remove(lambda item, index=index: item[1] % 4 == index)
            assert removed == [item for item in order if item[1] % 4 == index]
            for waiting in expected.values():
                for item in [item for item in waiting if item in removed]:
                    waiting.remove(item)
        queue.check_integrity()
        assert len(queue) == sum(map(len, expected.values())) == len(list(queue))
    rest = list(queue)
    assert popped(queue) == rest


@properties
@given(
    items=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30)), min_size=1, max_size=80),
    late=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30)), max_size=40),
    weights=weights_of,
)
def test_tenants_that_wait_are_given_the_same_but_for_a_largest_item_each(
    items: list[tuple[int, int]], late: list[tuple[int, int]], weights: dict[str, float]
) -> None:
    """In every window in which two tenants wait all the while: by weight, and whatever a third does."""
    queue = filled(*[(f"t{index}", cost) for index, cost in items], weights=weights)
    arriving = deque(late)
    largest = {f"t{index}": 0.0 for index in range(3)}
    for index, cost in items + late:
        largest[f"t{index}"] = max(largest[f"t{index}"], cost / weights.get(f"t{index}", 1.0))
    served: list[Item] = []
    waiting: list[set[str]] = []
    while len(queue):
        waiting.append({item[0] for item in queue})
        served.append(queue.pop())
        queue.check_integrity()
        if arriving:
            index, cost = arriving.popleft()
            queue.push(f"t{index}", (f"t{index}", -1, cost), cost)
    for first, second in (("t0", "t1"), ("t0", "t2"), ("t1", "t2")):
        for start in range(len(served)):
            given_to = {first: 0.0, second: 0.0}
            for item, here in zip(served[start:], waiting[start:], strict=True):
                if not {first, second} <= here:
                    break
                if item[0] in given_to:
                    given_to[item[0]] += item[2] / weights.get(item[0], 1.0)
                assert abs(given_to[first] - given_to[second]) <= largest[first] + largest[second] + 1e-9
