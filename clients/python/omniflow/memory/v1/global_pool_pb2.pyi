import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.kv.v1 import kv_layout_pb2 as _kv_layout_pb2
from omniflow.kv.v1 import page_pb2 as _page_pb2
from omniflow.memory.v1 import storage_pb2 as _storage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HolderKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOLDER_KIND_UNSPECIFIED: _ClassVar[HolderKind]
    HOLDER_KIND_INFERENCE: _ClassVar[HolderKind]
    HOLDER_KIND_LOAD: _ClassVar[HolderKind]
    HOLDER_KIND_OFFLOAD: _ClassVar[HolderKind]
    HOLDER_KIND_UPLOAD: _ClassVar[HolderKind]

class SlotState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SLOT_STATE_UNSPECIFIED: _ClassVar[SlotState]
    SLOT_STATE_FREE: _ClassVar[SlotState]
    SLOT_STATE_WRITING: _ClassVar[SlotState]
    SLOT_STATE_SEALED: _ClassVar[SlotState]
    SLOT_STATE_DURABLE: _ClassVar[SlotState]
    SLOT_STATE_QUARANTINED: _ClassVar[SlotState]

class MissingPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISSING_POLICY_UNSPECIFIED: _ClassVar[MissingPolicy]
    MISSING_POLICY_STOP: _ClassVar[MissingPolicy]
    MISSING_POLICY_SKIP: _ClassVar[MissingPolicy]
    MISSING_POLICY_FAIL: _ClassVar[MissingPolicy]

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    DURABILITY_POLICY: _ClassVar[Durability]
    DURABILITY_SEALED: _ClassVar[Durability]
    DURABILITY_HOST: _ClassVar[Durability]
HOLDER_KIND_UNSPECIFIED: HolderKind
HOLDER_KIND_INFERENCE: HolderKind
HOLDER_KIND_LOAD: HolderKind
HOLDER_KIND_OFFLOAD: HolderKind
HOLDER_KIND_UPLOAD: HolderKind
SLOT_STATE_UNSPECIFIED: SlotState
SLOT_STATE_FREE: SlotState
SLOT_STATE_WRITING: SlotState
SLOT_STATE_SEALED: SlotState
SLOT_STATE_DURABLE: SlotState
SLOT_STATE_QUARANTINED: SlotState
MISSING_POLICY_UNSPECIFIED: MissingPolicy
MISSING_POLICY_STOP: MissingPolicy
MISSING_POLICY_SKIP: MissingPolicy
MISSING_POLICY_FAIL: MissingPolicy
DURABILITY_UNSPECIFIED: Durability
DURABILITY_POLICY: Durability
DURABILITY_SEALED: Durability
DURABILITY_HOST: Durability

class SlotRef(_message.Message):
    __slots__ = ("slot", "generation")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    slot: int
    generation: int
    def __init__(self, slot: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class PageSlot(_message.Message):
    __slots__ = ("ref", "page", "is_copy")
    REF_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    IS_COPY_FIELD_NUMBER: _ClassVar[int]
    ref: SlotRef
    page: _page_pb2.Page
    is_copy: bool
    def __init__(self, ref: _Optional[_Union[SlotRef, _Mapping]] = ..., page: _Optional[_Union[_page_pb2.Page, _Mapping]] = ..., is_copy: bool = ...) -> None: ...

class PageAcquisition(_message.Message):
    __slots__ = ("pool", "parameter", "namespace", "read", "missing", "copy", "write_pages", "tier", "layout_id", "session", "session_fence", "max_tokens")
    POOL_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    WRITE_PAGES_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    parameter: str
    namespace: bytes
    read: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    missing: MissingPolicy
    copy: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    write_pages: int
    tier: _kv_layout_pb2.Tier
    layout_id: str
    session: str
    session_fence: int
    max_tokens: int
    def __init__(self, pool: _Optional[str] = ..., parameter: _Optional[str] = ..., namespace: _Optional[bytes] = ..., read: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., missing: _Optional[_Union[MissingPolicy, str]] = ..., copy: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., write_pages: _Optional[int] = ..., tier: _Optional[_Union[_kv_layout_pb2.Tier, str]] = ..., layout_id: _Optional[str] = ..., session: _Optional[str] = ..., session_fence: _Optional[int] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class AcquirePagesRequest(_message.Message):
    __slots__ = ("holder_id", "call_id", "acquisitions", "max_wait")
    HOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ACQUISITIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FIELD_NUMBER: _ClassVar[int]
    holder_id: str
    call_id: str
    acquisitions: _containers.RepeatedCompositeFieldContainer[PageAcquisition]
    max_wait: _duration_pb2.Duration
    def __init__(self, holder_id: _Optional[str] = ..., call_id: _Optional[str] = ..., acquisitions: _Optional[_Iterable[_Union[PageAcquisition, _Mapping]]] = ..., max_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PageGrant(_message.Message):
    __slots__ = ("read", "copies", "fresh", "missing", "read_tokens", "chain_pages")
    READ_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    READ_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHAIN_PAGES_FIELD_NUMBER: _ClassVar[int]
    read: _containers.RepeatedCompositeFieldContainer[PageSlot]
    copies: _containers.RepeatedCompositeFieldContainer[PageSlot]
    fresh: _containers.RepeatedCompositeFieldContainer[PageSlot]
    missing: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    read_tokens: int
    chain_pages: int
    def __init__(self, read: _Optional[_Iterable[_Union[PageSlot, _Mapping]]] = ..., copies: _Optional[_Iterable[_Union[PageSlot, _Mapping]]] = ..., fresh: _Optional[_Iterable[_Union[PageSlot, _Mapping]]] = ..., missing: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., read_tokens: _Optional[int] = ..., chain_pages: _Optional[int] = ...) -> None: ...

class AcquirePagesResponse(_message.Message):
    __slots__ = ("grants",)
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[PageGrant]
    def __init__(self, grants: _Optional[_Iterable[_Union[PageGrant, _Mapping]]] = ...) -> None: ...

class WrittenPage(_message.Message):
    __slots__ = ("ref", "page", "seal")
    REF_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    ref: SlotRef
    page: _page_pb2.Page
    seal: bool
    def __init__(self, ref: _Optional[_Union[SlotRef, _Mapping]] = ..., page: _Optional[_Union[_page_pb2.Page, _Mapping]] = ..., seal: bool = ...) -> None: ...

class PageCommit(_message.Message):
    __slots__ = ("pool", "parameter", "namespace", "layout_ids", "pages", "publish", "chain")
    POOL_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    pool: str
    parameter: str
    namespace: bytes
    layout_ids: _containers.RepeatedScalarFieldContainer[str]
    pages: _containers.RepeatedCompositeFieldContainer[WrittenPage]
    publish: bool
    chain: _page_pb2.ChainUpdate
    def __init__(self, pool: _Optional[str] = ..., parameter: _Optional[str] = ..., namespace: _Optional[bytes] = ..., layout_ids: _Optional[_Iterable[str]] = ..., pages: _Optional[_Iterable[_Union[WrittenPage, _Mapping]]] = ..., publish: bool = ..., chain: _Optional[_Union[_page_pb2.ChainUpdate, _Mapping]] = ...) -> None: ...

class CommitPagesRequest(_message.Message):
    __slots__ = ("holder_id", "commits", "durability", "commit_id", "device_fence")
    HOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FENCE_FIELD_NUMBER: _ClassVar[int]
    holder_id: str
    commits: _containers.RepeatedCompositeFieldContainer[PageCommit]
    durability: Durability
    commit_id: str
    device_fence: bytes
    def __init__(self, holder_id: _Optional[str] = ..., commits: _Optional[_Iterable[_Union[PageCommit, _Mapping]]] = ..., durability: _Optional[_Union[Durability, str]] = ..., commit_id: _Optional[str] = ..., device_fence: _Optional[bytes] = ...) -> None: ...

class PageCommitResult(_message.Message):
    __slots__ = ("pages", "state", "chain_pages", "cursor")
    PAGES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CHAIN_PAGES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    pages: _containers.RepeatedCompositeFieldContainer[_page_pb2.Page]
    state: SlotState
    chain_pages: int
    cursor: _page_pb2.Cursor
    def __init__(self, pages: _Optional[_Iterable[_Union[_page_pb2.Page, _Mapping]]] = ..., state: _Optional[_Union[SlotState, str]] = ..., chain_pages: _Optional[int] = ..., cursor: _Optional[_Union[_page_pb2.Cursor, _Mapping]] = ...) -> None: ...

class CommitPagesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PageCommitResult]
    def __init__(self, results: _Optional[_Iterable[_Union[PageCommitResult, _Mapping]]] = ...) -> None: ...

class PageRelease(_message.Message):
    __slots__ = ("pool", "parameter", "slots")
    POOL_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    parameter: str
    slots: _containers.RepeatedCompositeFieldContainer[SlotRef]
    def __init__(self, pool: _Optional[str] = ..., parameter: _Optional[str] = ..., slots: _Optional[_Iterable[_Union[SlotRef, _Mapping]]] = ...) -> None: ...

class ReleasePagesRequest(_message.Message):
    __slots__ = ("holder_id", "releases")
    HOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    holder_id: str
    releases: _containers.RepeatedCompositeFieldContainer[PageRelease]
    def __init__(self, holder_id: _Optional[str] = ..., releases: _Optional[_Iterable[_Union[PageRelease, _Mapping]]] = ...) -> None: ...

class ReleasePagesResponse(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: int
    def __init__(self, released: _Optional[int] = ...) -> None: ...

class PreloadPagesRequest(_message.Message):
    __slots__ = ("pool", "parameter", "namespace", "pages", "tier", "priority")
    POOL_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    pool: str
    parameter: str
    namespace: bytes
    pages: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    tier: _kv_layout_pb2.Tier
    priority: int
    def __init__(self, pool: _Optional[str] = ..., parameter: _Optional[str] = ..., namespace: _Optional[bytes] = ..., pages: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., tier: _Optional[_Union[_kv_layout_pb2.Tier, str]] = ..., priority: _Optional[int] = ...) -> None: ...

class PreloadPagesResponse(_message.Message):
    __slots__ = ("resident", "started", "declined")
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    resident: int
    started: int
    declined: int
    def __init__(self, resident: _Optional[int] = ..., started: _Optional[int] = ..., declined: _Optional[int] = ...) -> None: ...

class OuterStorage(_message.Message):
    __slots__ = ("labels", "storage", "offset_bytes", "page_stride_bytes")
    LABELS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAGE_STRIDE_BYTES_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedScalarFieldContainer[str]
    storage: _storage_pb2.StorageHandle
    offset_bytes: int
    page_stride_bytes: int
    def __init__(self, labels: _Optional[_Iterable[str]] = ..., storage: _Optional[_Union[_storage_pb2.StorageHandle, _Mapping]] = ..., offset_bytes: _Optional[int] = ..., page_stride_bytes: _Optional[int] = ...) -> None: ...

class ParameterStorage(_message.Message):
    __slots__ = ("parameter", "layout_id", "entries")
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    parameter: str
    layout_id: str
    entries: _containers.RepeatedCompositeFieldContainer[OuterStorage]
    def __init__(self, parameter: _Optional[str] = ..., layout_id: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[OuterStorage, _Mapping]]] = ...) -> None: ...

class TierSize(_message.Message):
    __slots__ = ("tier", "pages")
    TIER_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    tier: _kv_layout_pb2.Tier
    pages: int
    def __init__(self, tier: _Optional[_Union[_kv_layout_pb2.Tier, str]] = ..., pages: _Optional[int] = ...) -> None: ...
