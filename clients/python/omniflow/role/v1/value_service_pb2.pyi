from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.common.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchValueRequest(_message.Message):
    __slots__ = ("ref", "offset_bytes")
    REF_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    ref: _tensor_pb2.RemoteRef
    offset_bytes: int
    def __init__(self, ref: _Optional[_Union[_tensor_pb2.RemoteRef, _Mapping]] = ..., offset_bytes: _Optional[int] = ...) -> None: ...

class FetchValueResponse(_message.Message):
    __slots__ = ("chunk",)
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    chunk: _tensor_pb2.PayloadChunk
    def __init__(self, chunk: _Optional[_Union[_tensor_pb2.PayloadChunk, _Mapping]] = ...) -> None: ...

class ReleaseValuesRequest(_message.Message):
    __slots__ = ("refs",)
    REFS_FIELD_NUMBER: _ClassVar[int]
    refs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.RemoteRef]
    def __init__(self, refs: _Optional[_Iterable[_Union[_tensor_pb2.RemoteRef, _Mapping]]] = ...) -> None: ...

class ReleaseValuesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
