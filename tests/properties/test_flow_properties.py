"""Properties of the control core: whatever the interleaving, a call does what the evaluator says, and nothing is left of it.

Each interleaving is held to all of it: activations and their ordered inputs, paths, outputs and their order, order at gates,
errors, promptness, acknowledgements, one terminal event, and that the call ends.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow_core.control.scheduler import CallScheduler
from tests.properties.flow_case import Mix, run_case
from tests.properties.flow_record import UNLIMITED, Plan

cases = st.integers(0, 2**32)
PARTS = {
    "chunks", "chunks drained", "chunks in loop", "chunks with left context", "count", "count of nothing",
    "count of several facets", "count with companions", "failed activation", "gate held", "injured", "loop", "prefix",
    "prefix in loop", "prefix of lists", "replica lost", "single", "single input", "streaming input",
    "fails BUFFER_FULL", "fails CALL_CANCELLED", "fails COUNT_NOT_REACHED", "fails IMPOSSIBLE_INPUT",
    "fails INTERFACE_FAILED", "fails LOOP_BOUND_EXCEEDED",
}  # fmt: skip
"""What the fuzzer must really exercise."""


def _windows(chance: random.Random) -> dict[str, int]:
    return {
        "input_window": chance.randint(1, 4),
        "default_window": chance.choice([1, 2, 4, 64]),
        "workers": chance.choice([1, 1, 2, UNLIMITED]),
    }


@given(cases)
def test_any_interleaving_gives_what_the_evaluator_says(case: int) -> None:
    def undisturbed(chance: random.Random) -> Plan:
        return Plan(repeats=chance.choice([0.0, 0.1, 0.3]), **_windows(chance))

    run_case(case, Mix(), turns=8, plans=undisturbed)


@given(cases)
def test_cancelled_call_did_a_part_of_what_the_evaluator_says(case: int) -> None:
    def cancelled(chance: random.Random) -> Plan:
        return Plan(stop_after=chance.randint(0, 60), **_windows(chance))

    run_case(case, Mix(), turns=2, plans=cancelled)


@given(cases)
def test_activation_that_fails_at_any_time_is_what_it_gave_until_then(case: int) -> None:
    def injured(chance: random.Random) -> Plan:
        return Plan(injure_after=chance.randint(1, 40), **_windows(chance))

    run_case(case, Mix(), turns=2, plans=injured)


@given(cases)
def test_lost_replicas_change_nothing_where_activations_can_run_again(case: int) -> None:
    def unlucky(chance: random.Random) -> Plan:
        return Plan(losses=0.1, **_windows(chance))

    run_case(case, Mix(), turns=2, plans=unlucky)


@given(cases)
def test_small_stores_slow_a_call_down_and_never_stop_it(case: int) -> None:
    def cramped(chance: random.Random) -> Plan:
        return Plan(store_limit=chance.randint(1, 12), **_windows(chance))

    run_case(case, Mix(), turns=2, plans=cramped)


@pytest.mark.slow
def test_every_part_of_the_control_flow_is_exercised() -> None:
    mix = Mix()
    for case in range(150):
        run_case(case, mix, turns=2)
    assert set(mix.features) >= PARTS


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
