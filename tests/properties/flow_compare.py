"""Holds what came out of a driven call against what the evaluator says must come of it."""

from __future__ import annotations

from collections import Counter

from omniflow_core.control.commands import FailCall, FinishCall
from omniflow_core.errors import Reason
from tests.properties.flow_evaluator import Fault, Outcome
from tests.properties.flow_graphs import Shape
from tests.properties.flow_order import check_activation_order, check_return_order, check_start_order
from tests.properties.flow_paths import ordinals
from tests.properties.flow_promptness import check_promptness
from tests.properties.flow_record import UNLIMITED, Plan, Record
from tests.properties.flow_values import Activation


def compare(shape: Shape, plan: Plan, record: Record) -> Outcome:
    """Raises AssertionError with the first difference; else says what was expected."""
    outcome = shape.outcome(record.times.yielded, record.cuts)
    _check_end(shape, plan, record, outcome)
    _check_starts(record, outcome)
    for key, path in record.paths.items():
        wanted = ordinals(outcome.events[key].path) if key in outcome.events else None
        assert path == wanted, f"what {key} gave out has path {path}, should be {wanted}"
    is_whole = isinstance(record.terminal, FinishCall)
    for output in shape.spec.outputs:
        name = output.field.name
        check = check_activation_order if output.is_unordered else check_return_order
        check(outcome, name, record.emitted[name])
        if is_whole:
            missing = Counter(outcome.emissions.get(name, [])) - Counter(record.emitted[name])
            assert not missing, f"output {name} lacks {list(missing)}"
    for node in shape.spec.nodes:
        if shape.has_gate(node.name):
            started = [s.activation for s in record.started if s.activation.node == node.name]
            check_start_order(outcome, node.name, started)
    check_promptness(shape, record, outcome)
    return outcome


def _check_end(shape: Shape, plan: Plan, record: Record, outcome: Outcome) -> None:
    terminal = record.terminal
    if isinstance(terminal, FinishCall):
        assert not outcome.faults, f"the call finished, but must fail by one of {outcome.faults}"
        usage, given = terminal.usage, _yields_of_ended(shape, record)
        assert usage.activations == len(record.started), f"{usage} counts others than {len(record.started)} activations"
        assert usage.output_tokens == given, f"{usage} counts other tokens than {given}"
        return
    assert isinstance(terminal, FailCall)
    error = terminal.error
    if error.reason is Reason.CALL_CANCELLED:
        assert plan.stop_after is not None, "nobody cancelled the call"
    elif error.reason is Reason.BUFFER_FULL:
        assert plan.store_limit < UNLIMITED, "nothing can be full"
    else:
        fault = _fault_of(record, terminal)
        expected = outcome.faults or "success"
        assert fault in outcome.faults, f"the call failed by {fault} ({error.message}), expected {expected}"


def _yields_of_ended(shape: Shape, record: Record) -> int:
    """All that the activations gave that have ended well: each tells of one token for a yield."""
    scripts = (shape.script(start.activation) for start in record.started if start.activation not in record.cuts)
    return sum(len(script.yields) for script in scripts if not script.fails)


def _fault_of(record: Record, terminal: FailCall) -> Fault:
    """The fault that an error tells of."""
    error = terminal.error
    details = error.metadata
    if error.reason in (Reason.INTERFACE_FAILED, Reason.REPLICA_LOST):
        # the activation's own error, which names no node
        return Fault(Reason.INTERFACE_FAILED.value, record.last_failed)
    if error.reason is Reason.IMPOSSIBLE_INPUT:
        return Fault(error.reason.value, details["node"], details["group"], frozenset(details["missing"].split(",")))
    return Fault(error.reason.value, details["node"])


def _check_starts(record: Record, outcome: Outcome) -> None:
    started = Counter(s.activation for s in record.started)
    expected = {a for a, place in outcome.places.items() if place.kind is not None}
    for activation, times in started.items():
        assert activation in expected, (
            f"unforeseen start: {activation}\n{_nearby(activation, expected - started.keys())}"
        )
        assert times == 1, f"started {times} times: {activation}"
    if isinstance(record.terminal, FinishCall):
        assert not expected - started.keys(), f"never started: {sorted(map(repr, expected - started.keys()))[0]}"
    for start in record.started:
        path = ordinals(outcome.places[start.activation].path)
        assert start.origin_path == path, f"{start.activation} has path {start.origin_path}, should be {path}"
        if start.paths is None:
            continue
        for group, fields, _ in start.activation.inputs:
            paths = start.paths[group]
            for name, values in fields:
                wanted = tuple(ordinals(outcome.events[v.producer, v.ordinal].path) for v in values)
                given = (start.origin_path,) * len(values) if paths is None else paths.get(name)
                assert given == wanted, f"{start.activation}: {group}.{name} has paths {given}, should be {wanted}"


def _nearby(activation: Activation, missing: set[Activation]) -> str:
    """The expected activations of the same node that were not started."""
    return "\n".join(sorted(f"    instead of {a}" for a in missing if a.node == activation.node)[:3])
