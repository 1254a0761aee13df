"""Graphs and calls as text, for a person who looks into a difference. Graphs come as code for `tests.support.graphs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from omniflow_core.control.commands import AckYields, Command, Emit, FailCall, StartActivation
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    Event,
    ExitYielded,
    InputArrived,
)
from omniflow_core.graph.spec import EdgeSpec, FieldSpec, GraphSpec, NodeSpec, OnFailure, OnImpossible, Replay
from tests.properties.flow_record import Registered
from tests.properties.flow_values import Activation

_DEFAULTS = {
    "role": "",
    "is_inline": True,
    "is_spread": False,
    "timeout_s": None,
    "is_streaming": True,
    "is_session_ordered": False,
    "is_deterministic": False,
    "on_impossible": OnImpossible.FAIL,
    "on_failure": OnFailure.FAIL_CALL,
    "replay": Replay.NONE,
    "loop_bound": 0,
    "yield_window": 0,
}
"""Of `tests.support.graphs.node`."""


def show_graph(spec: GraphSpec) -> str:
    """The graph as an expression that makes it."""
    lines = [f"    {_node(node)}," for node in spec.nodes]
    edges = " ".join(f"{_source(e)}>{_target(e)}" for e in spec.edges)
    chunks = {f"{_source(e)}>{_target(e)}": e.chunks for e in spec.edges if e.chunks}
    marks = {
        "inputs": [_mark(p.field) for p in spec.placeholders if not p.is_streaming],
        "streaming": [_mark(p.field) for p in spec.placeholders if p.is_streaming],
        "outputs": [_mark(o.field) for o in spec.outputs if not o.is_unordered],
        "unordered": [_mark(o.field) for o in spec.outputs if o.is_unordered],
    }
    lists = ", ".join(f'{name}="{" ".join(names)}"' for name, names in marks.items())
    policies = f", chunks={chunks}" if chunks else ""
    return "\n".join(["graph((", *lines, f'), "{edges}", {lists}{policies})'])


def _node(node: NodeSpec) -> str:
    inputs = "; ".join(f"{g.name}: {' '.join(map(_mark, g.fields))}" for g in node.groups)
    parts = [f'"{node.name}"', f'"{inputs}"', f'"{" ".join(map(_mark, node.outputs))}"']
    counts = " ".join(f"{t.field}={t.count_field or t.constant}" for t in node.activate_by_count)
    parts += [f'counts="{counts}"'] if counts else []
    for name, default in _DEFAULTS.items():
        value = getattr(node, name)
        if value != default:
            parts.append(f"{name}={f'{type(value).__name__}.{value.name}' if isinstance(value, Enum) else repr(value)}")
    return f"node({', '.join(parts)})"


def _mark(field: FieldSpec) -> str:
    return f"{field.name}{'?' if field.is_optional else ''}{'#' if field.type == 'JSON' else ''}"


def _source(edge: EdgeSpec) -> str:
    return f"{edge.source_node}.{edge.source_field}" if edge.source_node else edge.source_field


def _target(edge: EdgeSpec) -> str:
    parts = (edge.target_node, edge.target_group, edge.target_field)
    return ".".join(parts) if edge.target_node else edge.target_field


def show_history(history: Sequence[Event | Command | Registered]) -> str:
    """Events, with what was commanded after each indented below it."""
    return "\n".join(_history(history))


def _history(history: Sequence[Event | Command | Registered]) -> Iterator[str]:
    names: dict[int, str] = {}
    for message in history:
        if isinstance(message, StartActivation):
            names[message.activation_id] = f"{message.node.name}#{message.activation_id}"
        elif isinstance(message, Registered):
            names[message.activation_id] = f"{message.activation.node}#{message.activation_id}"
        yield _message(message, names)


def _message(message: Event | Command | Registered, names: dict[int, str]) -> str:
    kind = type(message).__name__
    match message:
        case CallAdmitted():
            return f"{kind} {sorted(message.inputs)} open {sorted(message.open_inputs)}"
        case InputArrived():
            return f"{kind} {message.name} {'value' if message.value is not None else ''}{' last' * message.is_last}"
        case ActivationYielded():
            shown = " ".join(sorted(message.fields))
            return f"{kind} {names.get(message.activation_id)} yield {message.ordinal}: {shown}"
        case ExitYielded():
            shown = " ".join(sorted(message.fields))
            return f"{kind} {names.get(message.activation_id)} exit {message.ordinal} at {message.origin_path}: {shown}"
        case ActivationAccepted(hosts_segment=True):
            return f"{kind} {names[message.activation_id]} with its segment"
        case ActivationFinished(last=dict(last)):
            shown = " ".join(sorted(last))
            return f"{kind} {names.get(message.activation_id)} with yield {message.yield_count - 1}: {shown}"
        case ActivationAccepted() | ActivationFinished() | ActivationFailed():
            return f"{kind} {names.get(message.activation_id)}"
        case Registered():
            return f"    {kind} {names[message.activation_id]} at {message.origin_path}"
        case StartActivation():
            facets = "; ".join(
                f"{f.group}({', '.join(f'{n}={len(v)}' for n, v in f.fields.items())})" for f in message.facets
            )
            return f"    {kind} {names[message.activation_id]} {facets} at {message.origin_path}"
        case AckYields():
            return f"    {kind} {names.get(message.activation_id)} below {message.next_ordinal}"
        case Emit():
            return f"    {kind} {message.output} of {message.node} at {message.origin_path}"
        case FailCall():
            return f"    {kind} {message.error.reason}: {message.error.message}"
        case _:
            return f"    {kind}"


def show_activations(activations: Sequence[Activation]) -> str:
    """What each was given, in short: values by their producers' paths are too long to read."""
    return "\n".join(sorted(map(repr, activations)))
