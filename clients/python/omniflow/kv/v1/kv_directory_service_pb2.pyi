import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.kv.v1 import kv_layout_pb2 as _kv_layout_pb2
from omniflow.kv.v1 import page_pb2 as _page_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RetainReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETAIN_REASON_UNSPECIFIED: _ClassVar[RetainReason]
    RETAIN_REASON_LOCKED: _ClassVar[RetainReason]
    RETAIN_REASON_SESSION_RUNNING: _ClassVar[RetainReason]
    RETAIN_REASON_LAST_COPY: _ClassVar[RetainReason]
RETAIN_REASON_UNSPECIFIED: RetainReason
RETAIN_REASON_LOCKED: RetainReason
RETAIN_REASON_SESSION_RUNNING: RetainReason
RETAIN_REASON_LAST_COPY: RetainReason

class RegisterLayoutsRequest(_message.Message):
    __slots__ = ("node", "endpoint", "layouts", "recompute_policy", "ttl")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    LAYOUTS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_POLICY_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    node: _page_pb2.NodeRef
    endpoint: str
    layouts: _containers.RepeatedCompositeFieldContainer[_kv_layout_pb2.KvLayout]
    recompute_policy: _kv_layout_pb2.RecomputePolicy
    ttl: _duration_pb2.Duration
    def __init__(self, node: _Optional[_Union[_page_pb2.NodeRef, _Mapping]] = ..., endpoint: _Optional[str] = ..., layouts: _Optional[_Iterable[_Union[_kv_layout_pb2.KvLayout, _Mapping]]] = ..., recompute_policy: _Optional[_Union[_kv_layout_pb2.RecomputePolicy, str]] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RegisterLayoutsResponse(_message.Message):
    __slots__ = ("store_incarnation", "candidate_groups", "layout_ids")
    STORE_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    store_incarnation: int
    candidate_groups: _containers.RepeatedCompositeFieldContainer[_kv_layout_pb2.LayoutGroup]
    layout_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, store_incarnation: _Optional[int] = ..., candidate_groups: _Optional[_Iterable[_Union[_kv_layout_pb2.LayoutGroup, _Mapping]]] = ..., layout_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class MatchPrefixRequest(_message.Message):
    __slots__ = ("tenant", "parameter", "pages", "layout_ids", "session", "validate_coverage", "want_residency", "preferred_node_id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    WANT_RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    parameter: str
    pages: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    layout_ids: _containers.RepeatedScalarFieldContainer[str]
    session: str
    validate_coverage: bool
    want_residency: bool
    preferred_node_id: str
    def __init__(self, tenant: _Optional[str] = ..., parameter: _Optional[str] = ..., pages: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., layout_ids: _Optional[_Iterable[str]] = ..., session: _Optional[str] = ..., validate_coverage: bool = ..., want_residency: bool = ..., preferred_node_id: _Optional[str] = ...) -> None: ...

class MatchPrefixResponse(_message.Message):
    __slots__ = ("matched_pages", "matched_tokens", "providers", "residency", "store_incarnation")
    MATCHED_PAGES_FIELD_NUMBER: _ClassVar[int]
    MATCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    STORE_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    matched_pages: int
    matched_tokens: int
    providers: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageProviders]
    residency: _containers.RepeatedCompositeFieldContainer[NodeResidency]
    store_incarnation: int
    def __init__(self, matched_pages: _Optional[int] = ..., matched_tokens: _Optional[int] = ..., providers: _Optional[_Iterable[_Union[_page_pb2.PageProviders, _Mapping]]] = ..., residency: _Optional[_Iterable[_Union[NodeResidency, _Mapping]]] = ..., store_incarnation: _Optional[int] = ...) -> None: ...

class NodeResidency(_message.Message):
    __slots__ = ("node", "matched_pages", "device_pages")
    NODE_FIELD_NUMBER: _ClassVar[int]
    MATCHED_PAGES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_PAGES_FIELD_NUMBER: _ClassVar[int]
    node: _page_pb2.NodeRef
    matched_pages: int
    device_pages: int
    def __init__(self, node: _Optional[_Union[_page_pb2.NodeRef, _Mapping]] = ..., matched_pages: _Optional[int] = ..., device_pages: _Optional[int] = ...) -> None: ...

class LookupPagesRequest(_message.Message):
    __slots__ = ("tenant", "parameter", "pages", "layout_ids")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    parameter: str
    pages: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    layout_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., parameter: _Optional[str] = ..., pages: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., layout_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class LookupPagesResponse(_message.Message):
    __slots__ = ("available", "missing")
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    available: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageProviders]
    missing: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    def __init__(self, available: _Optional[_Iterable[_Union[_page_pb2.PageProviders, _Mapping]]] = ..., missing: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ...) -> None: ...

class PublishPagesRequest(_message.Message):
    __slots__ = ("tenant", "node", "store_incarnation", "parameter", "layout_ids", "pages", "chain", "tier")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    STORE_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    node: _page_pb2.NodeRef
    store_incarnation: int
    parameter: str
    layout_ids: _containers.RepeatedScalarFieldContainer[str]
    pages: _containers.RepeatedCompositeFieldContainer[_page_pb2.Page]
    chain: _page_pb2.ChainUpdate
    tier: _kv_layout_pb2.Tier
    def __init__(self, tenant: _Optional[str] = ..., node: _Optional[_Union[_page_pb2.NodeRef, _Mapping]] = ..., store_incarnation: _Optional[int] = ..., parameter: _Optional[str] = ..., layout_ids: _Optional[_Iterable[str]] = ..., pages: _Optional[_Iterable[_Union[_page_pb2.Page, _Mapping]]] = ..., chain: _Optional[_Union[_page_pb2.ChainUpdate, _Mapping]] = ..., tier: _Optional[_Union[_kv_layout_pb2.Tier, str]] = ...) -> None: ...

class PublishPagesResponse(_message.Message):
    __slots__ = ("chain_pages", "cursor")
    CHAIN_PAGES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    chain_pages: int
    cursor: _page_pb2.Cursor
    def __init__(self, chain_pages: _Optional[int] = ..., cursor: _Optional[_Union[_page_pb2.Cursor, _Mapping]] = ...) -> None: ...

class RetainedPage(_message.Message):
    __slots__ = ("id", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: _page_pb2.PageId
    reason: RetainReason
    def __init__(self, id: _Optional[_Union[_page_pb2.PageId, _Mapping]] = ..., reason: _Optional[_Union[RetainReason, str]] = ...) -> None: ...

class WithdrawPagesRequest(_message.Message):
    __slots__ = ("node", "store_incarnation", "parameter", "layout_ids", "pages", "is_lost", "tenant")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STORE_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    IS_LOST_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    node: _page_pb2.NodeRef
    store_incarnation: int
    parameter: str
    layout_ids: _containers.RepeatedScalarFieldContainer[str]
    pages: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    is_lost: bool
    tenant: str
    def __init__(self, node: _Optional[_Union[_page_pb2.NodeRef, _Mapping]] = ..., store_incarnation: _Optional[int] = ..., parameter: _Optional[str] = ..., layout_ids: _Optional[_Iterable[str]] = ..., pages: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., is_lost: bool = ..., tenant: _Optional[str] = ...) -> None: ...

class WithdrawPagesResponse(_message.Message):
    __slots__ = ("withdrawn", "retained")
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    withdrawn: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    retained: _containers.RepeatedCompositeFieldContainer[RetainedPage]
    def __init__(self, withdrawn: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., retained: _Optional[_Iterable[_Union[RetainedPage, _Mapping]]] = ...) -> None: ...

class LockProvidersRequest(_message.Message):
    __slots__ = ("tenant", "lock_id", "parameter", "pages", "nodes", "ttl")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    lock_id: str
    parameter: str
    pages: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    nodes: _containers.RepeatedCompositeFieldContainer[_page_pb2.NodeRef]
    ttl: _duration_pb2.Duration
    def __init__(self, tenant: _Optional[str] = ..., lock_id: _Optional[str] = ..., parameter: _Optional[str] = ..., pages: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[_page_pb2.NodeRef, _Mapping]]] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class LockProvidersResponse(_message.Message):
    __slots__ = ("locked", "missing")
    LOCKED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    locked: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    missing: _containers.RepeatedCompositeFieldContainer[_page_pb2.PageId]
    def __init__(self, locked: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ..., missing: _Optional[_Iterable[_Union[_page_pb2.PageId, _Mapping]]] = ...) -> None: ...

class UnlockProvidersRequest(_message.Message):
    __slots__ = ("lock_id", "parameter")
    LOCK_ID_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    lock_id: str
    parameter: str
    def __init__(self, lock_id: _Optional[str] = ..., parameter: _Optional[str] = ...) -> None: ...

class UnlockProvidersResponse(_message.Message):
    __slots__ = ("is_released",)
    IS_RELEASED_FIELD_NUMBER: _ClassVar[int]
    is_released: bool
    def __init__(self, is_released: bool = ...) -> None: ...

class GetChainRequest(_message.Message):
    __slots__ = ("tenant", "session", "parameter", "first_page", "page_count")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    FIRST_PAGE_FIELD_NUMBER: _ClassVar[int]
    PAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    session: str
    parameter: str
    first_page: int
    page_count: int
    def __init__(self, tenant: _Optional[str] = ..., session: _Optional[str] = ..., parameter: _Optional[str] = ..., first_page: _Optional[int] = ..., page_count: _Optional[int] = ...) -> None: ...

class GetChainResponse(_message.Message):
    __slots__ = ("pages", "chain_pages", "total_tokens", "session_fence", "turn", "is_lost")
    PAGES_FIELD_NUMBER: _ClassVar[int]
    CHAIN_PAGES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FENCE_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    IS_LOST_FIELD_NUMBER: _ClassVar[int]
    pages: _containers.RepeatedCompositeFieldContainer[_page_pb2.Page]
    chain_pages: int
    total_tokens: int
    session_fence: int
    turn: int
    is_lost: bool
    def __init__(self, pages: _Optional[_Iterable[_Union[_page_pb2.Page, _Mapping]]] = ..., chain_pages: _Optional[int] = ..., total_tokens: _Optional[int] = ..., session_fence: _Optional[int] = ..., turn: _Optional[int] = ..., is_lost: bool = ...) -> None: ...

class TruncateChainRequest(_message.Message):
    __slots__ = ("tenant", "parameter", "chain")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    parameter: str
    chain: _page_pb2.ChainUpdate
    def __init__(self, tenant: _Optional[str] = ..., parameter: _Optional[str] = ..., chain: _Optional[_Union[_page_pb2.ChainUpdate, _Mapping]] = ...) -> None: ...

class TruncateChainResponse(_message.Message):
    __slots__ = ("chain_pages",)
    CHAIN_PAGES_FIELD_NUMBER: _ClassVar[int]
    chain_pages: int
    def __init__(self, chain_pages: _Optional[int] = ...) -> None: ...

class ForkChainRequest(_message.Message):
    __slots__ = ("tenant", "source_session", "target_session", "session_fence", "target_fence", "tokens", "fork_id")
    class TokensEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SESSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FENCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FENCE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FORK_ID_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    source_session: str
    target_session: str
    session_fence: int
    target_fence: int
    tokens: _containers.ScalarMap[str, int]
    fork_id: str
    def __init__(self, tenant: _Optional[str] = ..., source_session: _Optional[str] = ..., target_session: _Optional[str] = ..., session_fence: _Optional[int] = ..., target_fence: _Optional[int] = ..., tokens: _Optional[_Mapping[str, int]] = ..., fork_id: _Optional[str] = ...) -> None: ...

class ForkChainResponse(_message.Message):
    __slots__ = ("chain_pages",)
    class ChainPagesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CHAIN_PAGES_FIELD_NUMBER: _ClassVar[int]
    chain_pages: _containers.ScalarMap[str, int]
    def __init__(self, chain_pages: _Optional[_Mapping[str, int]] = ...) -> None: ...

class DeleteChainsRequest(_message.Message):
    __slots__ = ("tenant", "session", "session_fence", "parameters", "erase_pages")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FENCE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    ERASE_PAGES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    session: str
    session_fence: int
    parameters: _containers.RepeatedScalarFieldContainer[str]
    erase_pages: bool
    def __init__(self, tenant: _Optional[str] = ..., session: _Optional[str] = ..., session_fence: _Optional[int] = ..., parameters: _Optional[_Iterable[str]] = ..., erase_pages: bool = ...) -> None: ...

class DeleteChainsResponse(_message.Message):
    __slots__ = ("pending_node_ids",)
    PENDING_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    pending_node_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pending_node_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class MarkSessionRequest(_message.Message):
    __slots__ = ("tenant", "session", "session_fence", "call_id", "is_running", "ttl")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FENCE_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    IS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    session: str
    session_fence: int
    call_id: str
    is_running: bool
    ttl: _duration_pb2.Duration
    def __init__(self, tenant: _Optional[str] = ..., session: _Optional[str] = ..., session_fence: _Optional[int] = ..., call_id: _Optional[str] = ..., is_running: bool = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class MarkSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
