import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.kv.v1 import kv_layout_pb2 as _kv_layout_pb2
from omniflow.kv.v1 import page_pb2 as _page_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubscribePagesRequest(_message.Message):
    __slots__ = ("subscriber", "tenant", "parameters", "sessions", "after", "heartbeat_interval")
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    subscriber: _page_pb2.NodeRef
    tenant: str
    parameters: _containers.RepeatedScalarFieldContainer[str]
    sessions: _containers.RepeatedScalarFieldContainer[str]
    after: _page_pb2.Cursor
    heartbeat_interval: _duration_pb2.Duration
    def __init__(self, subscriber: _Optional[_Union[_page_pb2.NodeRef, _Mapping]] = ..., tenant: _Optional[str] = ..., parameters: _Optional[_Iterable[str]] = ..., sessions: _Optional[_Iterable[str]] = ..., after: _Optional[_Union[_page_pb2.Cursor, _Mapping]] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SubscribePagesResponse(_message.Message):
    __slots__ = ("notifications", "cursor", "is_gap")
    NOTIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    IS_GAP_FIELD_NUMBER: _ClassVar[int]
    notifications: _containers.RepeatedCompositeFieldContainer[PageNotification]
    cursor: _page_pb2.Cursor
    is_gap: bool
    def __init__(self, notifications: _Optional[_Iterable[_Union[PageNotification, _Mapping]]] = ..., cursor: _Optional[_Union[_page_pb2.Cursor, _Mapping]] = ..., is_gap: bool = ...) -> None: ...

class PageNotification(_message.Message):
    __slots__ = ("parameter", "layout_ids", "available", "removed", "session", "tenant", "tier", "priority")
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    parameter: str
    layout_ids: _containers.RepeatedScalarFieldContainer[str]
    available: _containers.RepeatedCompositeFieldContainer[_page_pb2.Page]
    removed: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    session: str
    tenant: str
    tier: _kv_layout_pb2.Tier
    priority: int
    def __init__(self, parameter: _Optional[str] = ..., layout_ids: _Optional[_Iterable[str]] = ..., available: _Optional[_Iterable[_Union[_page_pb2.Page, _Mapping]]] = ..., removed: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., session: _Optional[str] = ..., tenant: _Optional[str] = ..., tier: _Optional[_Union[_kv_layout_pb2.Tier, str]] = ..., priority: _Optional[int] = ...) -> None: ...
