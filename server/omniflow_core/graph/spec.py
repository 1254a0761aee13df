"""The definition of a graph as the core sees it: frozen values, made from the message by a codec.

Field types are the names of `omniflow.common.v1.ValueType` without their prefix ("TEXT", "TOKENS"...): the core compares
them and never looks inside a value.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

SOURCE = ""
"""Name of the call's source (its placeholders) where a node name is expected."""


class OnFailure(enum.Enum):
    """What a failed activation does to its call."""

    FAIL_CALL = "fail_call"
    SKIP = "skip"


class OnImpossible(enum.Enum):
    """What incomplete input does to its call."""

    FAIL = "fail"
    SKIP = "skip"


class Replay(enum.Enum):
    """What becomes of an activation whose replica is lost."""

    NONE = "none"
    RESTART = "restart"
    CONTINUE = "continue"


class Balance(enum.Enum):
    """How a replica is chosen."""

    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_LOADED = "least_loaded"
    POWER_OF_TWO = "power_of_two"
    CONSISTENT_HASH = "consistent_hash"
    SESSION_AFFINITY = "session_affinity"
    COST_AWARE = "cost_aware"
    KV_AWARE = "kv_aware"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A typed field."""

    name: str
    type: str
    is_optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """An input alternative of a node."""

    name: str
    fields: tuple[FieldSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTriggerSpec:
    """A trigger of a count join: the count comes from a field or is constant."""

    field: str
    count_field: str = ""
    constant: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One use of an interface."""

    name: str
    interface: str
    role: str = ""
    groups: tuple[GroupSpec, ...]
    outputs: tuple[FieldSpec, ...]
    is_streaming: bool = False
    is_inline: bool = False
    is_session_ordered: bool = False
    is_deterministic: bool = False
    is_spread: bool = False
    balance: Balance = Balance.LEAST_LOADED
    cost_field: str = ""
    """Input field that tells what an activation costs beside others of the node; empty: all cost the same."""
    activate_by_count: tuple[CountTriggerSpec, ...] = ()
    on_impossible: OnImpossible = OnImpossible.FAIL
    on_failure: OnFailure = OnFailure.FAIL_CALL
    replay: Replay = Replay.NONE
    yield_window: int = 0
    loop_bound: int = 0
    global_parameters: tuple[str, ...] = ()
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSpec:
    """How a consumer takes a streamed field in chunks; yields are counted, not values."""

    first: int = 0
    size: int = 0
    stride: int = 0
    left_context: int = 0
    flush: bool = True
    continues: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSpec:
    """From an output field or placeholder to an input field or graph output; empty node names as in the message."""

    source_node: str
    source_field: str
    target_node: str
    target_group: str = ""
    target_field: str
    chunks: ChunkSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceholderSpec:
    """An input of a call."""

    field: FieldSpec
    is_streaming: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """An output of a call."""

    field: FieldSpec
    is_unordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSpec:
    """A graph."""

    name: str
    nodes: tuple[NodeSpec, ...]
    edges: tuple[EdgeSpec, ...]
    placeholders: tuple[PlaceholderSpec, ...]
    outputs: tuple[OutputSpec, ...]
    global_parameters: tuple[str, ...] = ()
