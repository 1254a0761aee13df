import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.common.v1 import tensor_pb2 as _tensor_pb2
from omniflow.memory.v1 import storage_pb2 as _storage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WeightState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WEIGHT_STATE_UNSPECIFIED: _ClassVar[WeightState]
    WEIGHT_STATE_OWNED: _ClassVar[WeightState]
    WEIGHT_STATE_LOADING: _ClassVar[WeightState]
    WEIGHT_STATE_READY: _ClassVar[WeightState]
    WEIGHT_STATE_LOCAL: _ClassVar[WeightState]
WEIGHT_STATE_UNSPECIFIED: WeightState
WEIGHT_STATE_OWNED: WeightState
WEIGHT_STATE_LOADING: WeightState
WEIGHT_STATE_READY: WeightState
WEIGHT_STATE_LOCAL: WeightState

class WeightKey(_message.Message):
    __slots__ = ("checkpoint_id", "parameter", "partition")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    parameter: str
    partition: str
    def __init__(self, checkpoint_id: _Optional[str] = ..., parameter: _Optional[str] = ..., partition: _Optional[str] = ...) -> None: ...

class WeightClaim(_message.Message):
    __slots__ = ("key", "spec")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    key: WeightKey
    spec: _tensor_pb2.TensorSpec
    def __init__(self, key: _Optional[_Union[WeightKey, _Mapping]] = ..., spec: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ...) -> None: ...

class ClaimWeightsRequest(_message.Message):
    __slots__ = ("device", "claimant_id", "claims", "max_wait")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    CLAIMANT_ID_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FIELD_NUMBER: _ClassVar[int]
    device: str
    claimant_id: str
    claims: _containers.RepeatedCompositeFieldContainer[WeightClaim]
    max_wait: _duration_pb2.Duration
    def __init__(self, device: _Optional[str] = ..., claimant_id: _Optional[str] = ..., claims: _Optional[_Iterable[_Union[WeightClaim, _Mapping]]] = ..., max_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WeightEntry(_message.Message):
    __slots__ = ("key", "spec", "state", "storage", "offset_bytes", "crc32c")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    key: WeightKey
    spec: _tensor_pb2.TensorSpec
    state: WeightState
    storage: _storage_pb2.StorageHandle
    offset_bytes: int
    crc32c: int
    def __init__(self, key: _Optional[_Union[WeightKey, _Mapping]] = ..., spec: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., state: _Optional[_Union[WeightState, str]] = ..., storage: _Optional[_Union[_storage_pb2.StorageHandle, _Mapping]] = ..., offset_bytes: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class ClaimWeightsResponse(_message.Message):
    __slots__ = ("entries", "has_turn")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HAS_TURN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[WeightEntry]
    has_turn: bool
    def __init__(self, entries: _Optional[_Iterable[_Union[WeightEntry, _Mapping]]] = ..., has_turn: bool = ...) -> None: ...

class SealWeightsRequest(_message.Message):
    __slots__ = ("claimant_id", "keys", "is_complete")
    CLAIMANT_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    claimant_id: str
    keys: _containers.RepeatedCompositeFieldContainer[WeightKey]
    is_complete: bool
    def __init__(self, claimant_id: _Optional[str] = ..., keys: _Optional[_Iterable[_Union[WeightKey, _Mapping]]] = ..., is_complete: bool = ...) -> None: ...

class SealWeightsResponse(_message.Message):
    __slots__ = ("sealed",)
    SEALED_FIELD_NUMBER: _ClassVar[int]
    sealed: int
    def __init__(self, sealed: _Optional[int] = ...) -> None: ...

class WatchWeightsRequest(_message.Message):
    __slots__ = ("claimant_id",)
    CLAIMANT_ID_FIELD_NUMBER: _ClassVar[int]
    claimant_id: str
    def __init__(self, claimant_id: _Optional[str] = ...) -> None: ...

class WatchWeightsResponse(_message.Message):
    __slots__ = ("entries", "is_complete")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[WeightEntry]
    is_complete: bool
    def __init__(self, entries: _Optional[_Iterable[_Union[WeightEntry, _Mapping]]] = ..., is_complete: bool = ...) -> None: ...

class ReleaseWeightsRequest(_message.Message):
    __slots__ = ("claimant_id", "keys")
    CLAIMANT_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    claimant_id: str
    keys: _containers.RepeatedCompositeFieldContainer[WeightKey]
    def __init__(self, claimant_id: _Optional[str] = ..., keys: _Optional[_Iterable[_Union[WeightKey, _Mapping]]] = ...) -> None: ...

class ReleaseWeightsResponse(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: int
    def __init__(self, released: _Optional[int] = ...) -> None: ...

class ListWeightsRequest(_message.Message):
    __slots__ = ("device", "page_size", "page_token")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    device: str
    page_size: int
    page_token: str
    def __init__(self, device: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class WeightUse(_message.Message):
    __slots__ = ("entry", "claimant_ids", "size_bytes")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    CLAIMANT_IDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    entry: WeightEntry
    claimant_ids: _containers.RepeatedScalarFieldContainer[str]
    size_bytes: int
    def __init__(self, entry: _Optional[_Union[WeightEntry, _Mapping]] = ..., claimant_ids: _Optional[_Iterable[str]] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ListWeightsResponse(_message.Message):
    __slots__ = ("weights", "next_page_token")
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    weights: _containers.RepeatedCompositeFieldContainer[WeightUse]
    next_page_token: str
    def __init__(self, weights: _Optional[_Iterable[_Union[WeightUse, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
