"""Holds what came out of a driven call against what the evaluator says must come of it."""

from __future__ import annotations

from collections import Counter

from omniflow_core.control.commands import FailCall, FinishCall
from omniflow_core.errors import Reason
from tests.properties.flow_driver import FlowDriver
from tests.properties.flow_evaluator import Fault, Outcome
from tests.properties.flow_order import check_activation_order, check_return_order, check_start_order
from tests.properties.flow_paths import ordinals
from tests.properties.flow_values import Activation


def compare(driver: FlowDriver) -> Outcome:
    """Raises AssertionError with the first difference; else says what was expected."""
    outcome = driver.shape.outcome(driver.handled, driver.cuts)
    _check_end(driver, outcome)
    _check_starts(driver, outcome)
    is_whole = isinstance(driver.terminal, FinishCall)
    for output in driver.shape.spec.outputs:
        name = output.field.name
        check = check_activation_order if output.is_unordered else check_return_order
        check(outcome, name, driver.emitted[name])
        if is_whole:
            missing = Counter(outcome.emissions.get(name, [])) - Counter(driver.emitted[name])
            assert not missing, f"output {name} lacks {list(missing)}"
    for node in driver.shape.spec.nodes:
        if node.is_session_ordered and not node.activate_by_count:
            check_start_order(
                outcome, node.name, [s.activation for s in driver.started if s.activation.node == node.name]
            )
    return outcome


def _check_end(driver: FlowDriver, outcome: Outcome) -> None:
    terminal = driver.terminal
    if isinstance(terminal, FinishCall):
        assert not outcome.faults, f"the call finished, but must fail by one of {outcome.faults}"
        assert terminal.usage.activations == len(driver.started)
        return
    assert isinstance(terminal, FailCall)
    error = terminal.error
    if error.reason is Reason.CALL_CANCELLED:
        assert driver.plan.stop_after is not None, "nobody cancelled the call"
        return
    fault = _fault_of(driver, terminal)
    assert fault in outcome.faults, (
        f"the call failed by {fault} ({error.message}), expected {outcome.faults or 'success'}"
    )


def _fault_of(driver: FlowDriver, terminal: FailCall) -> Fault:
    """The fault that an error tells of."""
    error = terminal.error
    details = error.metadata
    if error.reason is Reason.INTERFACE_FAILED:  # it is the activation's own error, which names no node
        return Fault(error.reason.value, driver.last_failed)
    if error.reason is Reason.IMPOSSIBLE_INPUT:
        return Fault(error.reason.value, details["node"], details["group"], frozenset(details["missing"].split(",")))
    return Fault(error.reason.value, details["node"])


def _check_starts(driver: FlowDriver, outcome: Outcome) -> None:
    started = Counter(s.activation for s in driver.started)
    expected = {a for a, place in outcome.places.items() if place.kind is not None}
    for activation, times in started.items():
        assert activation in expected, (
            f"unforeseen start: {activation}\n{_nearby(activation, expected - started.keys())}"
        )
        assert times == 1, f"started {times} times: {activation}"
    if isinstance(driver.terminal, FinishCall):
        assert not expected - started.keys(), f"never started: {sorted(map(repr, expected - started.keys()))[0]}"
    for start in driver.started:
        path = ordinals(outcome.places[start.activation].path)
        assert start.origin_path == path, f"{start.activation} has path {start.origin_path}, should be {path}"
        for group, fields, _ in start.activation.inputs:
            paths = start.paths[group]
            for name, values in fields:
                wanted = tuple(ordinals(outcome.events[v.producer, v.ordinal].path) for v in values)
                given = (start.origin_path,) * len(values) if paths is None else paths.get(name)
                assert given == wanted, f"{start.activation}: {group}.{name} has paths {given}, should be {wanted}"


def _nearby(activation: Activation, missing: set[Activation]) -> str:
    """The expected activations of the same node that were not started."""
    return "\n".join(sorted(f"    instead of {a}" for a in missing if a.node == activation.node)[:3])
