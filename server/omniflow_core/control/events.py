"""What happens to a call. Values are opaque: the core passes them on by reference and never looks inside.

Nothing changes an event once it is made. Those that come in numbers are not frozen all the same: the constructor of a frozen
dataclass takes three times as long.
"""

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


@dataclass(slots=True)
class InputArrived:
    """One more value of a streaming placeholder, or its end, or both."""

    name: str
    value: Value | None = None
    is_last: bool = False
    size_bytes: int = 0


@dataclass(slots=True)
class ActivationAccepted:
    """A replica has taken the activation in; with `hosts_segment` it starts what follows inside the node's segment itself.

    Of what it starts so only yields and ends are events.
    """

    activation_id: int
    attempt: int = 1
    hosts_segment: bool = False


@dataclass(slots=True)
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


@dataclass(slots=True)
class ExitYielded:
    """One output of the last node of a pipeline, whose first node is the activation's.

    `ordinal` counts what left the pipeline, from 0, in the order of the paths. `origin_path` is the path of the output: that
    of the activation, and an ordinal for each node of the pipeline.
    """

    activation_id: int
    ordinal: int
    fields: Mapping[str, Value]
    origin_path: tuple[int, ...]
    size_bytes: int = 0
    attempt: int = 1
    stored_bytes: int = 0


@dataclass(slots=True)
class ActivationFinished:
    """The activation ended well, and in a pipeline all that it has started. Counters are added to the call's.

    `last` is its last yield, when that came with the end: most activations give one output, and so are one event.
    """

    activation_id: int
    yield_count: int
    finish_reason: str = ""
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    attempt: int = 1
    histories: tuple[object, ...] = ()
    last: Mapping[str, Value] | None = None
    size_bytes: int = 0
    """Of `last`, as in ActivationYielded."""
    stored_bytes: int = 0
    started_activations: int = 0
    """Activations of its pipeline below it, which nobody here has started."""


@dataclass(slots=True)
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
    | ExitYielded
    | ActivationFinished
    | ActivationFailed
    | CancelRequested
)
