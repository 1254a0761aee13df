import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.common.v1 import value_pb2 as _value_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OnImpossible(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_IMPOSSIBLE_UNSPECIFIED: _ClassVar[OnImpossible]
    ON_IMPOSSIBLE_FAIL: _ClassVar[OnImpossible]
    ON_IMPOSSIBLE_SKIP: _ClassVar[OnImpossible]

class ReplayMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLAY_MODE_UNSPECIFIED: _ClassVar[ReplayMode]
    REPLAY_MODE_NONE: _ClassVar[ReplayMode]
    REPLAY_MODE_RESTART: _ClassVar[ReplayMode]
    REPLAY_MODE_CONTINUE: _ClassVar[ReplayMode]

class OnFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_FAILURE_UNSPECIFIED: _ClassVar[OnFailure]
    ON_FAILURE_FAIL_CALL: _ClassVar[OnFailure]
    ON_FAILURE_SKIP: _ClassVar[OnFailure]

class BalancePolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BALANCE_POLICY_UNSPECIFIED: _ClassVar[BalancePolicy]
    BALANCE_POLICY_ROUND_ROBIN: _ClassVar[BalancePolicy]
    BALANCE_POLICY_RANDOM: _ClassVar[BalancePolicy]
    BALANCE_POLICY_LEAST_LOADED: _ClassVar[BalancePolicy]
    BALANCE_POLICY_POWER_OF_TWO: _ClassVar[BalancePolicy]
    BALANCE_POLICY_CONSISTENT_HASH: _ClassVar[BalancePolicy]
    BALANCE_POLICY_SESSION_AFFINITY: _ClassVar[BalancePolicy]
    BALANCE_POLICY_COST_AWARE: _ClassVar[BalancePolicy]
    BALANCE_POLICY_KV_AWARE: _ClassVar[BalancePolicy]
ON_IMPOSSIBLE_UNSPECIFIED: OnImpossible
ON_IMPOSSIBLE_FAIL: OnImpossible
ON_IMPOSSIBLE_SKIP: OnImpossible
REPLAY_MODE_UNSPECIFIED: ReplayMode
REPLAY_MODE_NONE: ReplayMode
REPLAY_MODE_RESTART: ReplayMode
REPLAY_MODE_CONTINUE: ReplayMode
ON_FAILURE_UNSPECIFIED: OnFailure
ON_FAILURE_FAIL_CALL: OnFailure
ON_FAILURE_SKIP: OnFailure
BALANCE_POLICY_UNSPECIFIED: BalancePolicy
BALANCE_POLICY_ROUND_ROBIN: BalancePolicy
BALANCE_POLICY_RANDOM: BalancePolicy
BALANCE_POLICY_LEAST_LOADED: BalancePolicy
BALANCE_POLICY_POWER_OF_TWO: BalancePolicy
BALANCE_POLICY_CONSISTENT_HASH: BalancePolicy
BALANCE_POLICY_SESSION_AFFINITY: BalancePolicy
BALANCE_POLICY_COST_AWARE: BalancePolicy
BALANCE_POLICY_KV_AWARE: BalancePolicy

class GraphSpec(_message.Message):
    __slots__ = ("name", "revision", "nodes", "edges", "placeholders", "outputs", "global_parameters", "description")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    PLACEHOLDERS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    revision: str
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    edges: _containers.RepeatedCompositeFieldContainer[Edge]
    placeholders: _containers.RepeatedCompositeFieldContainer[Placeholder]
    outputs: _containers.RepeatedCompositeFieldContainer[Output]
    global_parameters: _containers.RepeatedCompositeFieldContainer[GlobalParameter]
    description: str
    def __init__(self, name: _Optional[str] = ..., revision: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[Edge, _Mapping]]] = ..., placeholders: _Optional[_Iterable[_Union[Placeholder, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[Output, _Mapping]]] = ..., global_parameters: _Optional[_Iterable[_Union[GlobalParameter, _Mapping]]] = ..., description: _Optional[str] = ...) -> None: ...

class Field(_message.Message):
    __slots__ = ("name", "type", "is_optional")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    IS_OPTIONAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: _value_pb2.ValueType
    is_optional: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[_value_pb2.ValueType, str]] = ..., is_optional: bool = ...) -> None: ...

class InputGroup(_message.Message):
    __slots__ = ("name", "fields")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    fields: _containers.RepeatedCompositeFieldContainer[Field]
    def __init__(self, name: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[Field, _Mapping]]] = ...) -> None: ...

class CountTrigger(_message.Message):
    __slots__ = ("field", "count_field", "constant")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    field: str
    count_field: str
    constant: int
    def __init__(self, field: _Optional[str] = ..., count_field: _Optional[str] = ..., constant: _Optional[int] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "interface", "role", "input_groups", "outputs", "is_streaming", "is_inline", "is_session_ordered", "is_deterministic", "is_spread", "balance", "activate_by_count", "on_impossible", "replay", "on_failure", "yield_window", "loop_bound", "global_parameters", "timeout", "cost_field")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INPUT_GROUPS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    IS_STREAMING_FIELD_NUMBER: _ClassVar[int]
    IS_INLINE_FIELD_NUMBER: _ClassVar[int]
    IS_SESSION_ORDERED_FIELD_NUMBER: _ClassVar[int]
    IS_DETERMINISTIC_FIELD_NUMBER: _ClassVar[int]
    IS_SPREAD_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    ACTIVATE_BY_COUNT_FIELD_NUMBER: _ClassVar[int]
    ON_IMPOSSIBLE_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    YIELD_WINDOW_FIELD_NUMBER: _ClassVar[int]
    LOOP_BOUND_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_FIELD_NUMBER: _ClassVar[int]
    name: str
    interface: str
    role: str
    input_groups: _containers.RepeatedCompositeFieldContainer[InputGroup]
    outputs: _containers.RepeatedCompositeFieldContainer[Field]
    is_streaming: bool
    is_inline: bool
    is_session_ordered: bool
    is_deterministic: bool
    is_spread: bool
    balance: BalancePolicy
    activate_by_count: _containers.RepeatedCompositeFieldContainer[CountTrigger]
    on_impossible: OnImpossible
    replay: ReplayMode
    on_failure: OnFailure
    yield_window: int
    loop_bound: int
    global_parameters: _containers.RepeatedScalarFieldContainer[str]
    timeout: _duration_pb2.Duration
    cost_field: str
    def __init__(self, name: _Optional[str] = ..., interface: _Optional[str] = ..., role: _Optional[str] = ..., input_groups: _Optional[_Iterable[_Union[InputGroup, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[Field, _Mapping]]] = ..., is_streaming: bool = ..., is_inline: bool = ..., is_session_ordered: bool = ..., is_deterministic: bool = ..., is_spread: bool = ..., balance: _Optional[_Union[BalancePolicy, str]] = ..., activate_by_count: _Optional[_Iterable[_Union[CountTrigger, _Mapping]]] = ..., on_impossible: _Optional[_Union[OnImpossible, str]] = ..., replay: _Optional[_Union[ReplayMode, str]] = ..., on_failure: _Optional[_Union[OnFailure, str]] = ..., yield_window: _Optional[int] = ..., loop_bound: _Optional[int] = ..., global_parameters: _Optional[_Iterable[str]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cost_field: _Optional[str] = ...) -> None: ...

class ChunkPolicy(_message.Message):
    __slots__ = ("first", "size", "stride", "left_context", "flush", "continues")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    LEFT_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    first: int
    size: int
    stride: int
    left_context: int
    flush: bool
    continues: bool
    def __init__(self, first: _Optional[int] = ..., size: _Optional[int] = ..., stride: _Optional[int] = ..., left_context: _Optional[int] = ..., flush: bool = ..., continues: bool = ...) -> None: ...

class Edge(_message.Message):
    __slots__ = ("source_node", "source_field", "target_node", "target_group", "target_field", "chunks")
    SOURCE_NODE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_FIELD_NUMBER: _ClassVar[int]
    TARGET_NODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_GROUP_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    source_node: str
    source_field: str
    target_node: str
    target_group: str
    target_field: str
    chunks: ChunkPolicy
    def __init__(self, source_node: _Optional[str] = ..., source_field: _Optional[str] = ..., target_node: _Optional[str] = ..., target_group: _Optional[str] = ..., target_field: _Optional[str] = ..., chunks: _Optional[_Union[ChunkPolicy, _Mapping]] = ...) -> None: ...

class Placeholder(_message.Message):
    __slots__ = ("field", "is_streaming")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    IS_STREAMING_FIELD_NUMBER: _ClassVar[int]
    field: Field
    is_streaming: bool
    def __init__(self, field: _Optional[_Union[Field, _Mapping]] = ..., is_streaming: bool = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("field", "is_unordered")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    IS_UNORDERED_FIELD_NUMBER: _ClassVar[int]
    field: Field
    is_unordered: bool
    def __init__(self, field: _Optional[_Union[Field, _Mapping]] = ..., is_unordered: bool = ...) -> None: ...

class GlobalParameter(_message.Message):
    __slots__ = ("name", "layout", "history_field")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_FIELD_NUMBER: _ClassVar[int]
    name: str
    layout: str
    history_field: str
    def __init__(self, name: _Optional[str] = ..., layout: _Optional[str] = ..., history_field: _Optional[str] = ...) -> None: ...
