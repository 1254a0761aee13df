from omniflow.common.v1 import rules_pb2 as _rules_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class MemoryRegion(_message.Message):
    __slots__ = ("segment", "address", "size_bytes", "remote_key", "device")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REMOTE_KEY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    segment: str
    address: int
    size_bytes: int
    remote_key: bytes
    device: str
    def __init__(self, segment: _Optional[str] = ..., address: _Optional[int] = ..., size_bytes: _Optional[int] = ..., remote_key: _Optional[bytes] = ..., device: _Optional[str] = ...) -> None: ...
