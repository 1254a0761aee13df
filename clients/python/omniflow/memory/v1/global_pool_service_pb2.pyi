import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.kv.v1 import kv_layout_pb2 as _kv_layout_pb2
from omniflow.memory.v1 import global_pool_pb2 as _global_pool_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateParameterRequest(_message.Message):
    __slots__ = ("pool", "participant", "layout", "recompute_policy", "device", "copies", "write_through")
    POOL_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_POLICY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    WRITE_THROUGH_FIELD_NUMBER: _ClassVar[int]
    pool: str
    participant: str
    layout: _kv_layout_pb2.KvLayout
    recompute_policy: _kv_layout_pb2.RecomputePolicy
    device: str
    copies: int
    write_through: bool
    def __init__(self, pool: _Optional[str] = ..., participant: _Optional[str] = ..., layout: _Optional[_Union[_kv_layout_pb2.KvLayout, _Mapping]] = ..., recompute_policy: _Optional[_Union[_kv_layout_pb2.RecomputePolicy, str]] = ..., device: _Optional[str] = ..., copies: _Optional[int] = ..., write_through: bool = ...) -> None: ...

class CreateParameterResponse(_message.Message):
    __slots__ = ("layout_id", "epoch", "page_size_bytes")
    LAYOUT_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    layout_id: str
    epoch: int
    page_size_bytes: int
    def __init__(self, layout_id: _Optional[str] = ..., epoch: _Optional[int] = ..., page_size_bytes: _Optional[int] = ...) -> None: ...

class WaitDeviceBarrierRequest(_message.Message):
    __slots__ = ("barrier", "participant", "participants", "timeout")
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    barrier: str
    participant: str
    participants: _containers.RepeatedScalarFieldContainer[str]
    timeout: _duration_pb2.Duration
    def __init__(self, barrier: _Optional[str] = ..., participant: _Optional[str] = ..., participants: _Optional[_Iterable[str]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WaitDeviceBarrierResponse(_message.Message):
    __slots__ = ("free_bytes", "is_rejoined")
    class FreeBytesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_REJOINED_FIELD_NUMBER: _ClassVar[int]
    free_bytes: _containers.ScalarMap[str, int]
    is_rejoined: bool
    def __init__(self, free_bytes: _Optional[_Mapping[str, int]] = ..., is_rejoined: bool = ...) -> None: ...

class FinalizePoolRequest(_message.Message):
    __slots__ = ("pool", "participant", "participants", "proposed_pages", "lower_tiers", "timeout")
    POOL_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    PROPOSED_PAGES_FIELD_NUMBER: _ClassVar[int]
    LOWER_TIERS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    pool: str
    participant: str
    participants: _containers.RepeatedScalarFieldContainer[str]
    proposed_pages: int
    lower_tiers: _containers.RepeatedCompositeFieldContainer[_global_pool_pb2.TierSize]
    timeout: _duration_pb2.Duration
    def __init__(self, pool: _Optional[str] = ..., participant: _Optional[str] = ..., participants: _Optional[_Iterable[str]] = ..., proposed_pages: _Optional[int] = ..., lower_tiers: _Optional[_Iterable[_Union[_global_pool_pb2.TierSize, _Mapping]]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class FinalizePoolResponse(_message.Message):
    __slots__ = ("tiers", "storage", "epoch")
    TIERS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    tiers: _containers.RepeatedCompositeFieldContainer[_global_pool_pb2.TierSize]
    storage: _containers.RepeatedCompositeFieldContainer[_global_pool_pb2.ParameterStorage]
    epoch: int
    def __init__(self, tiers: _Optional[_Iterable[_Union[_global_pool_pb2.TierSize, _Mapping]]] = ..., storage: _Optional[_Iterable[_Union[_global_pool_pb2.ParameterStorage, _Mapping]]] = ..., epoch: _Optional[int] = ...) -> None: ...

class SubscribeParameterRequest(_message.Message):
    __slots__ = ("subscription_id", "pool", "parameter", "sessions", "tier", "priority")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    pool: str
    parameter: str
    sessions: _containers.RepeatedScalarFieldContainer[str]
    tier: _kv_layout_pb2.Tier
    priority: int
    def __init__(self, subscription_id: _Optional[str] = ..., pool: _Optional[str] = ..., parameter: _Optional[str] = ..., sessions: _Optional[_Iterable[str]] = ..., tier: _Optional[_Union[_kv_layout_pb2.Tier, str]] = ..., priority: _Optional[int] = ...) -> None: ...

class SubscribeParameterResponse(_message.Message):
    __slots__ = ("publisher_node_ids",)
    PUBLISHER_NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    publisher_node_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, publisher_node_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class UnsubscribeParameterRequest(_message.Message):
    __slots__ = ("subscription_id",)
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    def __init__(self, subscription_id: _Optional[str] = ...) -> None: ...

class UnsubscribeParameterResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPoolStatsRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: str
    def __init__(self, pool: _Optional[str] = ...) -> None: ...

class TierStats(_message.Message):
    __slots__ = ("tier", "total_pages", "used_pages", "held", "quarantined_pages", "evicted_pages")
    TIER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PAGES_FIELD_NUMBER: _ClassVar[int]
    USED_PAGES_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_PAGES_FIELD_NUMBER: _ClassVar[int]
    EVICTED_PAGES_FIELD_NUMBER: _ClassVar[int]
    tier: _kv_layout_pb2.Tier
    total_pages: int
    used_pages: int
    held: _containers.RepeatedCompositeFieldContainer[HolderCount]
    quarantined_pages: int
    evicted_pages: int
    def __init__(self, tier: _Optional[_Union[_kv_layout_pb2.Tier, str]] = ..., total_pages: _Optional[int] = ..., used_pages: _Optional[int] = ..., held: _Optional[_Iterable[_Union[HolderCount, _Mapping]]] = ..., quarantined_pages: _Optional[int] = ..., evicted_pages: _Optional[int] = ...) -> None: ...

class HolderCount(_message.Message):
    __slots__ = ("kind", "pages", "holders")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    kind: _global_pool_pb2.HolderKind
    pages: int
    holders: int
    def __init__(self, kind: _Optional[_Union[_global_pool_pb2.HolderKind, str]] = ..., pages: _Optional[int] = ..., holders: _Optional[int] = ...) -> None: ...

class PoolStats(_message.Message):
    __slots__ = ("pool", "tiers", "hit_pages", "loaded_pages", "transferred_pages", "missed_pages")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    HIT_PAGES_FIELD_NUMBER: _ClassVar[int]
    LOADED_PAGES_FIELD_NUMBER: _ClassVar[int]
    TRANSFERRED_PAGES_FIELD_NUMBER: _ClassVar[int]
    MISSED_PAGES_FIELD_NUMBER: _ClassVar[int]
    pool: str
    tiers: _containers.RepeatedCompositeFieldContainer[TierStats]
    hit_pages: int
    loaded_pages: int
    transferred_pages: int
    missed_pages: int
    def __init__(self, pool: _Optional[str] = ..., tiers: _Optional[_Iterable[_Union[TierStats, _Mapping]]] = ..., hit_pages: _Optional[int] = ..., loaded_pages: _Optional[int] = ..., transferred_pages: _Optional[int] = ..., missed_pages: _Optional[int] = ...) -> None: ...

class GetPoolStatsResponse(_message.Message):
    __slots__ = ("pools", "epoch")
    POOLS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[PoolStats]
    epoch: int
    def __init__(self, pools: _Optional[_Iterable[_Union[PoolStats, _Mapping]]] = ..., epoch: _Optional[int] = ...) -> None: ...
