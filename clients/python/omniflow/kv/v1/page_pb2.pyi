import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.kv.v1 import kv_layout_pb2 as _kv_layout_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PageId(_message.Message):
    __slots__ = ("content", "session_page")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    SESSION_PAGE_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    session_page: SessionPageId
    def __init__(self, content: _Optional[bytes] = ..., session_page: _Optional[_Union[SessionPageId, _Mapping]] = ...) -> None: ...

class SessionPageId(_message.Message):
    __slots__ = ("session", "index", "dirty_key")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DIRTY_KEY_FIELD_NUMBER: _ClassVar[int]
    session: str
    index: int
    dirty_key: str
    def __init__(self, session: _Optional[str] = ..., index: _Optional[int] = ..., dirty_key: _Optional[str] = ...) -> None: ...

class Page(_message.Message):
    __slots__ = ("id", "valid_tokens", "crc32c")
    ID_FIELD_NUMBER: _ClassVar[int]
    VALID_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    id: PageId
    valid_tokens: int
    crc32c: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[_Union[PageId, _Mapping]] = ..., valid_tokens: _Optional[int] = ..., crc32c: _Optional[_Iterable[int]] = ...) -> None: ...

class NodeRef(_message.Message):
    __slots__ = ("node_id", "epoch")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    epoch: int
    def __init__(self, node_id: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class PageProviders(_message.Message):
    __slots__ = ("page", "shares")
    PAGE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    page: Page
    shares: _containers.RepeatedCompositeFieldContainer[ProviderShare]
    def __init__(self, page: _Optional[_Union[Page, _Mapping]] = ..., shares: _Optional[_Iterable[_Union[ProviderShare, _Mapping]]] = ...) -> None: ...

class ProviderShare(_message.Message):
    __slots__ = ("node", "layout_ids", "tier", "endpoint")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    node: NodeRef
    layout_ids: _containers.RepeatedScalarFieldContainer[str]
    tier: _kv_layout_pb2.Tier
    endpoint: str
    def __init__(self, node: _Optional[_Union[NodeRef, _Mapping]] = ..., layout_ids: _Optional[_Iterable[str]] = ..., tier: _Optional[_Union[_kv_layout_pb2.Tier, str]] = ..., endpoint: _Optional[str] = ...) -> None: ...

class ChainUpdate(_message.Message):
    __slots__ = ("session", "session_fence", "expected_pages", "total_tokens", "retention", "turn", "keep_pages")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FENCE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_PAGES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    KEEP_PAGES_FIELD_NUMBER: _ClassVar[int]
    session: str
    session_fence: int
    expected_pages: int
    total_tokens: int
    retention: _duration_pb2.Duration
    turn: int
    keep_pages: int
    def __init__(self, session: _Optional[str] = ..., session_fence: _Optional[int] = ..., expected_pages: _Optional[int] = ..., total_tokens: _Optional[int] = ..., retention: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., turn: _Optional[int] = ..., keep_pages: _Optional[int] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("incarnation", "position")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    position: int
    def __init__(self, incarnation: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...
