from omniflow.common.v1 import rules_pb2 as _rules_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ElementType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ELEMENT_TYPE_UNSPECIFIED: _ClassVar[ElementType]
    ELEMENT_TYPE_BOOL: _ClassVar[ElementType]
    ELEMENT_TYPE_UINT8: _ClassVar[ElementType]
    ELEMENT_TYPE_INT32: _ClassVar[ElementType]
    ELEMENT_TYPE_INT64: _ClassVar[ElementType]
    ELEMENT_TYPE_FLOAT16: _ClassVar[ElementType]
    ELEMENT_TYPE_BFLOAT16: _ClassVar[ElementType]
    ELEMENT_TYPE_FLOAT32: _ClassVar[ElementType]
    ELEMENT_TYPE_FLOAT64: _ClassVar[ElementType]
    ELEMENT_TYPE_INT8: _ClassVar[ElementType]
    ELEMENT_TYPE_INT16: _ClassVar[ElementType]
    ELEMENT_TYPE_FLOAT8_E4M3: _ClassVar[ElementType]
    ELEMENT_TYPE_FLOAT8_E5M2: _ClassVar[ElementType]
ELEMENT_TYPE_UNSPECIFIED: ElementType
ELEMENT_TYPE_BOOL: ElementType
ELEMENT_TYPE_UINT8: ElementType
ELEMENT_TYPE_INT32: ElementType
ELEMENT_TYPE_INT64: ElementType
ELEMENT_TYPE_FLOAT16: ElementType
ELEMENT_TYPE_BFLOAT16: ElementType
ELEMENT_TYPE_FLOAT32: ElementType
ELEMENT_TYPE_FLOAT64: ElementType
ELEMENT_TYPE_INT8: ElementType
ELEMENT_TYPE_INT16: ElementType
ELEMENT_TYPE_FLOAT8_E4M3: ElementType
ELEMENT_TYPE_FLOAT8_E5M2: ElementType

class TensorSpec(_message.Message):
    __slots__ = ("element_type", "shape")
    ELEMENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    element_type: ElementType
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, element_type: _Optional[_Union[ElementType, str]] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("spec", "payload")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    spec: TensorSpec
    payload: Payload
    def __init__(self, spec: _Optional[_Union[TensorSpec, _Mapping]] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("inline", "buffer", "chunked", "remote")
    INLINE_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    CHUNKED_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    inline: bytes
    buffer: BufferRef
    chunked: ChunkedPayload
    remote: RemoteRef
    def __init__(self, inline: _Optional[bytes] = ..., buffer: _Optional[_Union[BufferRef, _Mapping]] = ..., chunked: _Optional[_Union[ChunkedPayload, _Mapping]] = ..., remote: _Optional[_Union[RemoteRef, _Mapping]] = ...) -> None: ...

class BufferRef(_message.Message):
    __slots__ = ("manager_id", "block_id", "epoch", "offset_bytes", "size_bytes")
    MANAGER_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    manager_id: str
    block_id: str
    epoch: int
    offset_bytes: int
    size_bytes: int
    def __init__(self, manager_id: _Optional[str] = ..., block_id: _Optional[str] = ..., epoch: _Optional[int] = ..., offset_bytes: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ChunkedPayload(_message.Message):
    __slots__ = ("transfer_id", "total_bytes")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    transfer_id: int
    total_bytes: int
    def __init__(self, transfer_id: _Optional[int] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class PayloadChunk(_message.Message):
    __slots__ = ("transfer_id", "offset_bytes", "data", "crc32c", "last")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    transfer_id: int
    offset_bytes: int
    data: bytes
    crc32c: int
    last: bool
    def __init__(self, transfer_id: _Optional[int] = ..., offset_bytes: _Optional[int] = ..., data: _Optional[bytes] = ..., crc32c: _Optional[int] = ..., last: bool = ...) -> None: ...

class RemoteRef(_message.Message):
    __slots__ = ("endpoint", "value_id", "incarnation_id", "size_bytes")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    VALUE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    value_id: str
    incarnation_id: str
    size_bytes: int
    def __init__(self, endpoint: _Optional[str] = ..., value_id: _Optional[str] = ..., incarnation_id: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...
