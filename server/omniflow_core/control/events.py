"""What happens to a call. Values are opaque: the core passes them on by reference and never looks inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omniflow_core.errors import ErrorInfo

Value = object


@dataclass(frozen=True, slots=True)
class CallAdmitted:
    """The call may run. `inputs` are its single placeholders, `open_inputs` the streaming ones that stay open."""

    inputs: Mapping[str, Value]
    open_inputs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class InputArrived:
    """One more value of a streaming placeholder, or its end, or both."""

    name: str
    value: Value | None = None
    is_last: bool = False
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ActivationAccepted:
    """A replica has taken the activation in."""

    activation_id: int
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class ActivationYielded:
    """One output of an activation. `fields` holds the fields that are not skipped.

    `size_bytes` is what it takes here, `stored_bytes` what its producer keeps of it elsewhere; the producer's credit counts
    both.
    """

    activation_id: int
    ordinal: int
    fields: Mapping[str, Value]
    size_bytes: int = 0
    attempt: int = 1
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ActivationFinished:
    """The activation ended well. Counters are added to the call's."""

    activation_id: int
    yield_count: int
    finish_reason: str = ""
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    attempt: int = 1
    histories: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class ActivationFailed:
    """The activation ended with an error, or its replica was lost, or none could be found."""

    activation_id: int
    error: ErrorInfo
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody wants the call to end: its caller, a superseding call, the detach grace, a deadline or a drain."""

    error: ErrorInfo


Event = (
    CallAdmitted
    | InputArrived
    | ActivationAccepted
    | ActivationYielded
    | ActivationFinished
    | ActivationFailed
    | CancelRequested
)
