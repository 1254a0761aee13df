"""Properties of the control core: whatever the interleaving, a call does what the evaluator says, and nothing is left of it.

Each interleaving is held to all of it: activations and their ordered inputs, paths, outputs and their order, order at gates,
errors, promptness, acknowledgements, one terminal event, and that the call ends.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniflow_core.control.commands import FinishCall
from omniflow_core.control.scheduler import CallScheduler
from tests.properties.flow_case import Mix, random_hosts, run_case, run_interleaving
from tests.properties.flow_driver import FlowDriver
from tests.properties.flow_graphs import Shape, random_shape
from tests.properties.flow_record import UNLIMITED, Plan, Record
from tests.properties.flow_values import Activation

cases = st.integers(0, 2**32)
PARTS = {
    "chunks", "chunks drained", "chunks in loop", "chunks with left context", "count", "count of nothing",
    "count of several facets", "count with companions", "failed activation", "gate held", "injured", "loop", "prefix",
    "exit in a loop", "hosted join", "hosted join in loop", "hosted loop", "hosted segment", "hosted segment stopped",
    "hosted segments at a time", "prefix in loop", "prefix of lists", "replica lost", "single", "single input",
    "streaming input",
    "pipeline", "pipeline failed", "pipeline of three", "pipelines at a time", "yield skipped in a pipeline",
    "fails BUFFER_FULL", "fails CALL_CANCELLED", "fails COUNT_NOT_REACHED", "fails IMPOSSIBLE_INPUT",
    "fails INTERFACE_FAILED", "fails LOOP_BOUND_EXCEEDED",
}  # fmt: skip
"""What the fuzzer must really exercise."""


def _plan(chance: random.Random, **befalls: Any) -> Plan:
    """Windows, workers and hosts at random, and what else befalls the call."""
    return Plan(
        input_window=chance.randint(1, 4),
        default_window=chance.choice([1, 2, 4, 64]),
        workers=chance.choice([1, 1, 2, UNLIMITED]),
        **random_hosts(chance),
        **befalls,
    )


@given(cases)
def test_any_interleaving_gives_what_the_evaluator_says(case: int) -> None:
    def undisturbed(chance: random.Random) -> Plan:
        return _plan(chance, repeats=chance.choice([0.0, 0.1, 0.3]))

    run_case(case, Mix(), turns=8, plans=undisturbed)


@given(cases)
def test_cancelled_call_did_a_part_of_what_the_evaluator_says(case: int) -> None:
    def cancelled(chance: random.Random) -> Plan:
        return _plan(chance, stop_after=chance.randint(0, 60))

    run_case(case, Mix(), turns=2, plans=cancelled)


@given(cases)
def test_activation_that_fails_at_any_time_is_what_it_gave_until_then(case: int) -> None:
    def injured(chance: random.Random) -> Plan:
        return _plan(chance, injure_after=chance.randint(1, 40))

    run_case(case, Mix(), turns=2, plans=injured)


@given(cases)
def test_lost_replicas_change_nothing_where_activations_can_run_again(case: int) -> None:
    def unlucky(chance: random.Random) -> Plan:
        return _plan(chance, losses=chance.choice([0.02, 0.1]))

    run_case(case, Mix(), turns=2, plans=unlucky)


@given(cases)
def test_small_stores_slow_a_call_down_and_never_stop_it(case: int) -> None:
    def cramped(chance: random.Random) -> Plan:
        return _plan(chance, store_limit=chance.randint(1, 12))

    run_case(case, Mix(), turns=2, plans=cramped)


@given(cases)
def test_segments_on_and_off_do_the_same(case: int) -> None:
    """Of calls in which nothing depends on what comes first: the same activations, inputs, paths and outputs."""
    chance = random.Random(case)
    for shape in (random_shape(chance) for _ in range(3)):
        if shape.plan.segments and not shape.has_count_join and not shape.outcome().faults:
            seed, plan = chance.getrandbits(32), _plan(chance)
            off, on = (_drive(shape, seed, dataclasses.replace(plan, hosts=hosts)) for hosts in (0.0, 1.0))
            assert not off.hosted
            assert _starts(on) == _starts(off)
            for output in shape.spec.outputs:
                assert Counter(on.emitted[output.field.name]) == Counter(off.emitted[output.field.name])


@given(cases)
def test_pipelines_on_and_off_do_the_same(case: int) -> None:
    """The same activations and paths, all outputs alike, what leaves the pipelines in the same order, and the same usage."""
    chance = random.Random(case)
    for shape in (random_shape(chance) for _ in range(4)):
        if shape.plan.pipelines and not shape.has_count_join and not shape.outcome().faults:
            seed, plan = chance.getrandbits(32), _plan(chance)
            off, on = (_drive(shape, seed, dataclasses.replace(plan, pipes=pipes)) for pipes in (0.0, 1.0))
            assert not off.piped
            assert _starts(on) == _starts(off)
            assert on.terminal == off.terminal
            leaving = {output for pipeline in shape.plan.pipelines for _, output in pipeline.exits}
            for output in shape.spec.outputs:
                name = output.field.name
                assert Counter(on.emitted[name]) == Counter(off.emitted[name])
                if name in leaving and not output.is_unordered:
                    assert on.emitted[name] == off.emitted[name]
            assert on.paths == off.paths


def _drive(shape: Shape, seed: int, plan: Plan) -> Record:
    driver = FlowDriver(shape, random.Random(seed), plan)
    run_interleaving(driver)
    assert isinstance(driver.record.terminal, FinishCall)
    return driver.record


def _starts(record: Record) -> set[tuple[Activation, tuple[int, ...]]]:
    return {(start.activation, start.origin_path) for start in record.started}


@pytest.mark.slow
def test_every_part_of_the_control_flow_is_exercised() -> None:
    mix = Mix()
    for case in range(150):
        run_case(case, mix, turns=2)
    assert set(mix.features) >= PARTS
    assert mix.features["pipeline"] >= mix.interleavings / 20


def test_scheduler_is_only_changed_by_handle() -> None:
    assert [n for n in vars(CallScheduler) if not n.startswith("_")] == [
        "ended",
        "active_count",
        "held_count",
        "open_buckets",
        "lease_count",
        "undelivered_inputs",
        "handle",
        "segment_of",
        "origin_of",
        "inspect",
        "check_integrity",
    ]
