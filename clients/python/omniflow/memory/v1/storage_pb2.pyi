from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StorageHandle(_message.Message):
    __slots__ = ("descriptor", "cuda_ipc", "cuda_descriptor", "size_bytes", "device", "is_writable")
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    CUDA_IPC_FIELD_NUMBER: _ClassVar[int]
    CUDA_DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    IS_WRITABLE_FIELD_NUMBER: _ClassVar[int]
    descriptor: BrokeredDescriptor
    cuda_ipc: CudaIpcHandle
    cuda_descriptor: BrokeredDescriptor
    size_bytes: int
    device: str
    is_writable: bool
    def __init__(self, descriptor: _Optional[_Union[BrokeredDescriptor, _Mapping]] = ..., cuda_ipc: _Optional[_Union[CudaIpcHandle, _Mapping]] = ..., cuda_descriptor: _Optional[_Union[BrokeredDescriptor, _Mapping]] = ..., size_bytes: _Optional[int] = ..., device: _Optional[str] = ..., is_writable: bool = ...) -> None: ...

class BrokeredDescriptor(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class CudaIpcHandle(_message.Message):
    __slots__ = ("handle", "device_uuid")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    handle: bytes
    device_uuid: str
    def __init__(self, handle: _Optional[bytes] = ..., device_uuid: _Optional[str] = ...) -> None: ...
