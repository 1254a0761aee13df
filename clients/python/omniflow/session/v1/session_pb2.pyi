import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_STATE_UNSPECIFIED: _ClassVar[SessionState]
    SESSION_STATE_ACTIVE: _ClassVar[SessionState]
    SESSION_STATE_DELETING: _ClassVar[SessionState]
    SESSION_STATE_LOST: _ClassVar[SessionState]
SESSION_STATE_UNSPECIFIED: SessionState
SESSION_STATE_ACTIVE: SessionState
SESSION_STATE_DELETING: SessionState
SESSION_STATE_LOST: SessionState

class Session(_message.Message):
    __slots__ = ("name", "state", "histories", "turn", "active_call_ids", "create_time", "use_time", "expire_time", "etag", "parent", "retention", "labels")
    class HistoriesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: History
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[History, _Mapping]] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HISTORIES_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    USE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: SessionState
    histories: _containers.MessageMap[str, History]
    turn: int
    active_call_ids: _containers.RepeatedScalarFieldContainer[str]
    create_time: _timestamp_pb2.Timestamp
    use_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    etag: str
    parent: str
    retention: Retention
    labels: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[SessionState, str]] = ..., histories: _Optional[_Mapping[str, History]] = ..., turn: _Optional[int] = ..., active_call_ids: _Optional[_Iterable[str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., use_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., parent: _Optional[str] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class History(_message.Message):
    __slots__ = ("tokens", "retained_tokens")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    retained_tokens: int
    def __init__(self, tokens: _Optional[int] = ..., retained_tokens: _Optional[int] = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("idle_ttl", "max_age", "is_evictable")
    IDLE_TTL_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_FIELD_NUMBER: _ClassVar[int]
    IS_EVICTABLE_FIELD_NUMBER: _ClassVar[int]
    idle_ttl: _duration_pb2.Duration
    max_age: _duration_pb2.Duration
    is_evictable: bool
    def __init__(self, idle_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., is_evictable: bool = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("ordinal", "call_id", "graph", "create_time", "history_tokens", "is_truncated")
    class HistoryTokensEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    HISTORY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ordinal: int
    call_id: str
    graph: str
    create_time: _timestamp_pb2.Timestamp
    history_tokens: _containers.ScalarMap[str, int]
    is_truncated: bool
    def __init__(self, ordinal: _Optional[int] = ..., call_id: _Optional[str] = ..., graph: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., history_tokens: _Optional[_Mapping[str, int]] = ..., is_truncated: bool = ...) -> None: ...
