"""Properties of the scheduler over random graphs and interleavings."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from omniflow_core.control.commands import FailCall, FinishCall
from omniflow_core.control.scheduler import CallScheduler
from omniflow_core.errors import Reason
from omniflow_core.graph.plan import find_faults
from tests.properties.call_driver import CallDriver
from tests.properties.call_graphs import Shape, shapes
from tests.properties.call_tree import CallTree, TooLargeError, check_activation_order, check_return_order, unfold

chances = st.integers(0, 2**32).map(random.Random)


def tree_of(shape: Shape) -> CallTree:
    assume(next(find_faults(shape.spec), None) is None)  # two streaming inputs of one group: the planner's business
    try:
        return unfold(shape.spec, shape.source_yields, shape.script)
    except TooLargeError:
        assume(False)
        raise


@given(shapes(), chances)
def test_any_interleaving_gives_the_same_activations_and_order(shape: Shape, chance: random.Random) -> None:
    tree = tree_of(shape)
    expected = Counter((a.cause, a.node, a.group, tuple(sorted(a.inputs.items()))) for a in tree.activations())
    for _ in range(3):
        driver = CallDriver(shape, chance)
        driver.run()
        assert Counter((*rest, tuple(sorted(inputs.items()))) for *rest, inputs in driver.started) == expected
        for output in shape.spec.outputs:
            check = check_activation_order if output.is_unordered else check_return_order
            check(tree, output.field.name, driver.emitted[output.field.name])
        assert isinstance(driver.terminal, FinishCall)
        assert driver.terminal.usage.activations == expected.total()


@given(shapes(is_strict=True), chances)
def test_call_that_must_fail_ends_with_one_of_its_errors(shape: Shape, chance: random.Random) -> None:
    tree = tree_of(shape)
    driver = CallDriver(shape, chance)
    driver.run()
    assert driver.terminal is not None
    assert driver.terminal.usage.activations == len(driver.started), "what never started was counted"
    if not tree.errors:
        assert isinstance(driver.terminal, FinishCall)
        return
    assert isinstance(driver.terminal, FailCall)
    error = driver.terminal.error
    node = error.metadata.get("node") or error.message.split("'")[1]
    assert (error.reason, node) in tree.errors


@given(shapes(is_strict=True), chances, st.integers(0, 60))
def test_cancel_at_any_point_gives_one_terminal_event(shape: Shape, chance: random.Random, stop_after: int) -> None:
    tree_of(shape)
    driver = CallDriver(shape, chance)
    driver.run(stop_after=stop_after)
    if isinstance(driver.terminal, FailCall) and driver.terminal.error.reason is Reason.CALL_CANCELLED:
        assert driver.terminal.usage.activations == len(driver.started), "what never started was counted"


@given(shapes(), chances, st.integers(1, 60))
def test_failure_at_any_point_gives_one_terminal_event(shape: Shape, chance: random.Random, injure_after: int) -> None:
    tree_of(shape)
    driver = CallDriver(shape, chance)
    driver.run(injure_after=injure_after)
    if driver.failed_node:
        assert isinstance(driver.terminal, FailCall)
        assert driver.terminal.error.reason is Reason.INTERFACE_FAILED
    else:
        assert isinstance(driver.terminal, FinishCall)


@given(shapes(is_chain=True), chances)
def test_what_came_before_a_cancel_is_a_prefix_of_what_would_have_come(shape: Shape, chance: random.Random) -> None:
    """In a chain, where the order of an output is total."""
    tree_of(shape)
    whole, cut = CallDriver(shape, random.Random(1)), CallDriver(shape, chance)
    whole.run()
    cut.run(stop_after=chance.randint(1, 40))
    for output in shape.spec.outputs:
        if not output.is_unordered:
            given_before = cut.emitted[output.field.name]
            assert given_before == whole.emitted[output.field.name][: len(given_before)]


def test_scheduler_is_only_changed_by_handle() -> None:
    assert [n for n in vars(CallScheduler) if not n.startswith("_")] == [
        "ended",
        "active_count",
        "held_count",
        "open_buckets",
        "lease_count",
        "undelivered_inputs",
        "handle",
        "inspect",
        "check_integrity",
    ]
