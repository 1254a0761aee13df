"""What the core wants done. The driver performs commands in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omniflow_core.control.events import Value
from omniflow_core.errors import ErrorInfo
from omniflow_core.graph.plan import NodePlan


@dataclass(frozen=True, slots=True)
class StartActivation:
    """Run an interface. `fields` maps each present field to its contributions, in order."""

    activation_id: int
    node: NodePlan
    group: str
    fields: Mapping[str, tuple[Value, ...]]
    origin_path: tuple[int, ...]
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class AckYields:
    """Every yield below `next_ordinal` is delivered."""

    activation_id: int
    next_ordinal: int


@dataclass(frozen=True, slots=True)
class Emit:
    """Append a value to the caller's event log."""

    output: str
    node: str
    origin_path: tuple[int, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class CancelActivations:
    """Tell every replica that runs work of the call to stop. Performed before the terminal event."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallUsage:
    """Counters of a call."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    activations: int = 0


@dataclass(frozen=True, slots=True)
class FinishCall:
    """The terminal event of a successful call."""

    finish_reason: str
    usage: CallUsage


@dataclass(frozen=True, slots=True)
class FailCall:
    """The terminal event of a failed or cancelled call."""

    error: ErrorInfo
    usage: CallUsage


@dataclass(frozen=True, slots=True)
class ReleaseCall:
    """Nothing of the call runs any more: replicas may drop what they keep for it. Always the last command of a call."""


Command = StartActivation | AckYields | Emit | CancelActivations | FinishCall | FailCall | ReleaseCall
