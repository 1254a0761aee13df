"""What a call tells its caller, as frozen values.

    Accepted -> (Started | Output | OutputPiece | Progress | ToolCall)* -> Finished

A call that fails has no event of its own: the iterator raises OmniFlowError. Heartbeats are swallowed. `sequence`
counts a call's events from 1 without a gap; an output whose bytes came in pieces has the sequence of its last piece.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass
from typing import Any

from omniflow.values import ElementType, Value, ValueType


class FinishReason(enum.Enum):
    """Why a call ended well; the numbers are those of the proto enum."""

    UNSPECIFIED = 0
    STOP = 1
    LENGTH = 2
    TOOL_CALLS = 3


@dataclass(frozen=True, slots=True)
class CallUsage:
    """Counters of a call."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    activations: int = 0


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """What a call did to one history of its session, in tokens."""

    field: str
    boundary_tokens: int
    prefill_tokens: int
    history_tokens: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The call was taken in; always the first event."""

    call_id: str
    is_replayed: bool
    """An earlier call with the same request id is being joined."""
    resume_token: str = dataclasses.field(repr=False)
    """For `Client.resume`; a secret."""
    resume_expire_unix_s: float
    sequence: int


@dataclass(frozen=True, slots=True)
class Started:
    """The call left its session's queue and runs now."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Output:
    """A value of a graph output."""

    field: str
    value: Value
    node: str
    """The node that gave it."""
    origin_path: tuple[int, ...]
    """Yield ordinals from the call's root down to this value, outermost first."""
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPiece:
    """A piece of a value that is too large for one message; only with `chunks=True`.

    The pieces of one value come in order, `is_last` ends it. `element_type` and `shape` are those of the whole tensor.
    """

    field: str
    type: ValueType
    mime_type: str
    element_type: ElementType | None
    shape: tuple[int, ...]
    data: bytes = dataclasses.field(repr=False)
    offset_bytes: int
    total_bytes: int
    is_last: bool
    node: str
    origin_path: tuple[int, ...]
    sequence: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a long node is; `total` is 0 when not known."""

    node: str
    completed: int
    total: int
    message: str
    sequence: int


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request for the caller to run a tool, answered with `ConversationCall.tool_result(id, value)`."""

    id: str
    name: str
    arguments_json: str
    node: str
    sequence: int

    @property
    def arguments(self) -> Any:
        """The parsed arguments. Raises ValueError for a model's invalid JSON."""
        return json.loads(self.arguments_json)


@dataclass(frozen=True, slots=True)
class Finished:
    """The call ended well; always the last event."""

    reason: FinishReason
    usage: CallUsage
    histories: tuple[HistoryResult, ...]
    sequence: int


Event = Accepted | Started | Output | OutputPiece | Progress | ToolCall | Finished


class CallState(enum.Enum):
    """State of a call; the numbers are those of the proto enum."""

    UNSPECIFIED = 0
    QUEUED = 1
    RUNNING = 2
    CANCELLING = 3
    FINISHED = 4
    FAILED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStatus:
    """What `Client.get_call` knows of a call."""

    state: CallState
    last_sequence: int
    first_kept_sequence: int
    """Events before it can no longer be resumed from."""
    graph: str
    create_unix_s: float
    is_attached: bool
    active_activations: int
