import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.common.v1 import tensor_pb2 as _tensor_pb2
from omniflow.memory.v1 import tmp_buffer_pb2 as _tmp_buffer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReleaseCallsRequest(_message.Message):
    __slots__ = ("call_ids",)
    CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    call_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, call_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ReleaseCallsResponse(_message.Message):
    __slots__ = ("released_blocks", "released_slots")
    RELEASED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    released_blocks: int
    released_slots: int
    def __init__(self, released_blocks: _Optional[int] = ..., released_slots: _Optional[int] = ...) -> None: ...

class ReadBlockRequest(_message.Message):
    __slots__ = ("buffer",)
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    buffer: _tensor_pb2.BufferRef
    def __init__(self, buffer: _Optional[_Union[_tensor_pb2.BufferRef, _Mapping]] = ...) -> None: ...

class ReadBlockResponse(_message.Message):
    __slots__ = ("chunk",)
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    chunk: _tensor_pb2.PayloadChunk
    def __init__(self, chunk: _Optional[_Union[_tensor_pb2.PayloadChunk, _Mapping]] = ...) -> None: ...

class WriteBlockRequest(_message.Message):
    __slots__ = ("allocate", "chunk")
    ALLOCATE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    allocate: _tmp_buffer_pb2.AllocateBlocksRequest
    chunk: _tensor_pb2.PayloadChunk
    def __init__(self, allocate: _Optional[_Union[_tmp_buffer_pb2.AllocateBlocksRequest, _Mapping]] = ..., chunk: _Optional[_Union[_tensor_pb2.PayloadChunk, _Mapping]] = ...) -> None: ...

class WriteBlockResponse(_message.Message):
    __slots__ = ("block",)
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    block: _tmp_buffer_pb2.Block
    def __init__(self, block: _Optional[_Union[_tmp_buffer_pb2.Block, _Mapping]] = ...) -> None: ...

class GetBufferStatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BufferPoolStats(_message.Message):
    __slots__ = ("device", "total_bytes", "held_bytes", "cached_bytes", "quarantined_bytes", "largest_free_bytes", "cache_hits", "cache_misses", "oldest_hold")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    CACHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_HOLD_FIELD_NUMBER: _ClassVar[int]
    device: str
    total_bytes: int
    held_bytes: int
    cached_bytes: int
    quarantined_bytes: int
    largest_free_bytes: int
    cache_hits: int
    cache_misses: int
    oldest_hold: _duration_pb2.Duration
    def __init__(self, device: _Optional[str] = ..., total_bytes: _Optional[int] = ..., held_bytes: _Optional[int] = ..., cached_bytes: _Optional[int] = ..., quarantined_bytes: _Optional[int] = ..., largest_free_bytes: _Optional[int] = ..., cache_hits: _Optional[int] = ..., cache_misses: _Optional[int] = ..., oldest_hold: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetBufferStatsResponse(_message.Message):
    __slots__ = ("pools", "epoch")
    POOLS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[BufferPoolStats]
    epoch: int
    def __init__(self, pools: _Optional[_Iterable[_Union[BufferPoolStats, _Mapping]]] = ..., epoch: _Optional[int] = ...) -> None: ...
