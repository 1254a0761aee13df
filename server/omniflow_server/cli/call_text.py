"""Events and commands of a scheduler as lines for people."""

from __future__ import annotations

from collections.abc import Mapping

from omniflow_core.control.commands import (
    AckYields,
    CancelActivations,
    Command,
    Emit,
    FailCall,
    FinishCall,
    ReleaseCall,
    StartActivation,
)
from omniflow_core.control.events import (
    ActivationAccepted,
    ActivationFailed,
    ActivationFinished,
    ActivationYielded,
    CallAdmitted,
    CancelRequested,
    Event,
    ExitYielded,
    InputArrived,
)


def describe_event(event: Event) -> str:
    """What happened, in one line."""
    match event:
        case CallAdmitted():
            opened = f", open {', '.join(sorted(event.open_inputs))}" if event.open_inputs else ""
            return f"admitted with {', '.join(event.inputs) or 'no single input'}{opened}"
        case InputArrived():
            end = ", the last" if event.is_last else ""
            return f"input {event.name}: {f'{event.size_bytes} bytes' if event.value is not None else 'closed'}{end}"
        case ActivationAccepted():
            return f"accepted #{event.activation_id}{_attempt(event.attempt)}"
        case ActivationYielded():
            kept = f", {event.stored_bytes} kept there" if event.stored_bytes else ""
            fields = ", ".join(event.fields) or "nothing"
            size = f"{event.size_bytes} bytes{kept}"
            return f"yielded #{event.activation_id}[{event.ordinal}]{_attempt(event.attempt)} {fields} ({size})"
        case ExitYielded():
            fields = ", ".join(event.fields) or "nothing"
            path = ".".join(map(str, event.origin_path))
            place = f"#{event.activation_id}[{event.ordinal}] at {path}"
            return f"left the pipeline of {place} {fields} ({event.size_bytes} bytes)"
        case ActivationFinished():
            return f"finished #{event.activation_id}{_attempt(event.attempt)} after {event.yield_count} yields"
        case ActivationFailed():
            return f"failed #{event.activation_id}{_attempt(event.attempt)} {event.error.reason}: {event.error.message}"
        case CancelRequested():
            return f"cancelled {event.error.reason}: {event.error.message}"


def describe_command(command: Command) -> str:
    """What is to be done, in one line."""
    match command:
        case StartActivation():
            facets = "; ".join(f"{facet.group} {_counts(facet.fields)}" for facet in command.facets)
            again = f", goes on after {len(command.delivered)} yields" if command.delivered else ""
            return (
                f"start #{command.activation_id} {command.node.name}{_attempt(command.attempt)} "
                f"below {_path(command.origin_path)}: {facets or 'no input'}{again}"
            )
        case AckYields():
            return f"acknowledge #{command.activation_id} below {command.next_ordinal}"
        case Emit():
            return f"give {command.output} of {command.node} at {_path(command.origin_path)}"
        case CancelActivations():
            return "stop what runs"
        case FinishCall():
            return f"finish the call: {command.finish_reason}, {command.usage.activations} activations"
        case FailCall():
            return f"fail the call: {command.error.reason}"
        case ReleaseCall():
            return "release the call"


def _attempt(attempt: int) -> str:
    return f" (attempt {attempt})" if attempt > 1 else ""


def _path(ordinals: tuple[int, ...]) -> str:
    return ".".join(map(str, ordinals)) or "the call"


def _counts(fields: Mapping[str, tuple[object, ...]]) -> str:
    return ", ".join(name if len(fields[name]) == 1 else f"{name} x{len(fields[name])}" for name in sorted(fields))
