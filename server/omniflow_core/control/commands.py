"""What the core wants done. The driver performs commands in order, and changes none of them.

Those that come in numbers are not frozen: the constructor of a frozen dataclass takes three times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omniflow_core.control.events import Value
from omniflow_core.errors import ErrorInfo
from omniflow_core.graph.plan import NodePlan


@dataclass(slots=True)
class Facet:
    """The inputs of one input group: each present field with its contributions, in order."""

    group: str
    fields: Mapping[str, tuple[Value, ...]]
    paths: Mapping[str, tuple[tuple[int, ...], ...]] | None = None
    """Origin path of each contribution; None when all have the activation's."""
    context: Mapping[str, int] = field(default_factory=dict)
    """How many leading contributions of a field are repeated as left context of a chunk."""


_NO_FIELDS: Mapping[str, tuple[Value, ...]] = {}


@dataclass(slots=True)
class StartActivation:
    """Run an interface on one facet, or on one per activated input group of a count join (none when all counts are 0)."""

    activation_id: int
    node: NodePlan
    facets: tuple[Facet, ...]
    origin_path: tuple[int, ...]
    attempt: int = 1
    delivered: tuple[Mapping[str, Value], ...] = ()
    """For replay = continue: the yields that came from earlier attempts; the new one starts at the next ordinal."""

    @property
    def group(self) -> str:
        """Input group of the first facet."""
        return self.facets[0].group if self.facets else ""

    @property
    def fields(self) -> Mapping[str, tuple[Value, ...]]:
        """Fields of the first facet."""
        return self.facets[0].fields if self.facets else _NO_FIELDS


@dataclass(slots=True)
class AckYields:
    """Every yield below `next_ordinal` is delivered."""

    activation_id: int
    next_ordinal: int


@dataclass(slots=True)
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
    histories: tuple[object, ...] = ()
    """What activations did to the session's histories; a call that does not finish well appends nothing."""


@dataclass(frozen=True, slots=True)
class FailCall:
    """The terminal event of a failed or cancelled call."""

    error: ErrorInfo
    usage: CallUsage


@dataclass(frozen=True, slots=True)
class ReleaseCall:
    """Nothing of the call runs any more: replicas may drop what they keep for it. Always the last command of a call."""


Command = StartActivation | AckYields | Emit | CancelActivations | FinishCall | FailCall | ReleaseCall
