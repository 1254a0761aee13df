import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.common.v1 import tensor_pb2 as _tensor_pb2
from omniflow.kv.v1 import memory_region_pb2 as _memory_region_pb2
from omniflow.memory.v1 import storage_pb2 as _storage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CacheResult(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_RESULT_UNSPECIFIED: _ClassVar[CacheResult]
    CACHE_RESULT_HIT: _ClassVar[CacheResult]
    CACHE_RESULT_MISS: _ClassVar[CacheResult]
    CACHE_RESULT_CLAIMED: _ClassVar[CacheResult]
CACHE_RESULT_UNSPECIFIED: CacheResult
CACHE_RESULT_HIT: CacheResult
CACHE_RESULT_MISS: CacheResult
CACHE_RESULT_CLAIMED: CacheResult

class Block(_message.Message):
    __slots__ = ("buffer", "device", "storage", "offset_bytes", "region")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    buffer: _tensor_pb2.BufferRef
    device: str
    storage: _storage_pb2.StorageHandle
    offset_bytes: int
    region: _memory_region_pb2.MemoryRegion
    def __init__(self, buffer: _Optional[_Union[_tensor_pb2.BufferRef, _Mapping]] = ..., device: _Optional[str] = ..., storage: _Optional[_Union[_storage_pb2.StorageHandle, _Mapping]] = ..., offset_bytes: _Optional[int] = ..., region: _Optional[_Union[_memory_region_pb2.MemoryRegion, _Mapping]] = ...) -> None: ...

class BlockSpec(_message.Message):
    __slots__ = ("size_bytes", "device", "alignment_bytes")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    device: str
    alignment_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ..., device: _Optional[str] = ..., alignment_bytes: _Optional[int] = ...) -> None: ...

class AllocateBlocksRequest(_message.Message):
    __slots__ = ("holder_id", "call_id", "blocks", "request_id", "max_wait")
    HOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FIELD_NUMBER: _ClassVar[int]
    holder_id: str
    call_id: str
    blocks: _containers.RepeatedCompositeFieldContainer[BlockSpec]
    request_id: str
    max_wait: _duration_pb2.Duration
    def __init__(self, holder_id: _Optional[str] = ..., call_id: _Optional[str] = ..., blocks: _Optional[_Iterable[_Union[BlockSpec, _Mapping]]] = ..., request_id: _Optional[str] = ..., max_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class AllocateBlocksResponse(_message.Message):
    __slots__ = ("blocks",)
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[Block]
    def __init__(self, blocks: _Optional[_Iterable[_Union[Block, _Mapping]]] = ...) -> None: ...

class RetainBlocksRequest(_message.Message):
    __slots__ = ("holder_id", "call_id", "buffers")
    HOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    holder_id: str
    call_id: str
    buffers: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.BufferRef]
    def __init__(self, holder_id: _Optional[str] = ..., call_id: _Optional[str] = ..., buffers: _Optional[_Iterable[_Union[_tensor_pb2.BufferRef, _Mapping]]] = ...) -> None: ...

class RetainBlocksResponse(_message.Message):
    __slots__ = ("blocks",)
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[Block]
    def __init__(self, blocks: _Optional[_Iterable[_Union[Block, _Mapping]]] = ...) -> None: ...

class MaterializeBlocksRequest(_message.Message):
    __slots__ = ("holder_id", "call_id", "buffers", "device", "max_wait")
    HOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FIELD_NUMBER: _ClassVar[int]
    holder_id: str
    call_id: str
    buffers: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.BufferRef]
    device: str
    max_wait: _duration_pb2.Duration
    def __init__(self, holder_id: _Optional[str] = ..., call_id: _Optional[str] = ..., buffers: _Optional[_Iterable[_Union[_tensor_pb2.BufferRef, _Mapping]]] = ..., device: _Optional[str] = ..., max_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class MaterializeBlocksResponse(_message.Message):
    __slots__ = ("blocks", "is_copy")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    IS_COPY_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[Block]
    is_copy: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, blocks: _Optional[_Iterable[_Union[Block, _Mapping]]] = ..., is_copy: _Optional[_Iterable[bool]] = ...) -> None: ...

class ReleaseBlocksRequest(_message.Message):
    __slots__ = ("holder_id", "buffers")
    HOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    holder_id: str
    buffers: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.BufferRef]
    def __init__(self, holder_id: _Optional[str] = ..., buffers: _Optional[_Iterable[_Union[_tensor_pb2.BufferRef, _Mapping]]] = ...) -> None: ...

class ReleaseBlocksResponse(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: int
    def __init__(self, released: _Optional[int] = ...) -> None: ...

class CacheKey(_message.Message):
    __slots__ = ("namespace", "digest")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    namespace: bytes
    digest: bytes
    def __init__(self, namespace: _Optional[bytes] = ..., digest: _Optional[bytes] = ...) -> None: ...

class PublishCacheBlockRequest(_message.Message):
    __slots__ = ("holder_id", "key", "buffer", "specs")
    HOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    SPECS_FIELD_NUMBER: _ClassVar[int]
    holder_id: str
    key: CacheKey
    buffer: _tensor_pb2.BufferRef
    specs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.TensorSpec]
    def __init__(self, holder_id: _Optional[str] = ..., key: _Optional[_Union[CacheKey, _Mapping]] = ..., buffer: _Optional[_Union[_tensor_pb2.BufferRef, _Mapping]] = ..., specs: _Optional[_Iterable[_Union[_tensor_pb2.TensorSpec, _Mapping]]] = ...) -> None: ...

class PublishCacheBlockResponse(_message.Message):
    __slots__ = ("is_stored",)
    IS_STORED_FIELD_NUMBER: _ClassVar[int]
    is_stored: bool
    def __init__(self, is_stored: bool = ...) -> None: ...

class BorrowCacheBlocksRequest(_message.Message):
    __slots__ = ("holder_id", "call_id", "keys", "claim", "max_wait")
    HOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FIELD_NUMBER: _ClassVar[int]
    holder_id: str
    call_id: str
    keys: _containers.RepeatedCompositeFieldContainer[CacheKey]
    claim: bool
    max_wait: _duration_pb2.Duration
    def __init__(self, holder_id: _Optional[str] = ..., call_id: _Optional[str] = ..., keys: _Optional[_Iterable[_Union[CacheKey, _Mapping]]] = ..., claim: bool = ..., max_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CacheLookup(_message.Message):
    __slots__ = ("result", "block", "specs")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    SPECS_FIELD_NUMBER: _ClassVar[int]
    result: CacheResult
    block: Block
    specs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.TensorSpec]
    def __init__(self, result: _Optional[_Union[CacheResult, str]] = ..., block: _Optional[_Union[Block, _Mapping]] = ..., specs: _Optional[_Iterable[_Union[_tensor_pb2.TensorSpec, _Mapping]]] = ...) -> None: ...

class BorrowCacheBlocksResponse(_message.Message):
    __slots__ = ("lookups",)
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    lookups: _containers.RepeatedCompositeFieldContainer[CacheLookup]
    def __init__(self, lookups: _Optional[_Iterable[_Union[CacheLookup, _Mapping]]] = ...) -> None: ...
