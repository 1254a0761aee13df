import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.common.v1 import tensor_pb2 as _tensor_pb2
from omniflow.kv.v1 import memory_region_pb2 as _memory_region_pb2
from omniflow.kv.v1 import page_pb2 as _page_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransferResult(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSFER_RESULT_UNSPECIFIED: _ClassVar[TransferResult]
    TRANSFER_RESULT_WRITTEN: _ClassVar[TransferResult]
    TRANSFER_RESULT_MISSING: _ClassVar[TransferResult]
    TRANSFER_RESULT_NOT_STARTED: _ClassVar[TransferResult]
    TRANSFER_RESULT_UNCERTAIN: _ClassVar[TransferResult]
    TRANSFER_RESULT_FAILED: _ClassVar[TransferResult]
    TRANSFER_RESULT_PENDING: _ClassVar[TransferResult]
TRANSFER_RESULT_UNSPECIFIED: TransferResult
TRANSFER_RESULT_WRITTEN: TransferResult
TRANSFER_RESULT_MISSING: TransferResult
TRANSFER_RESULT_NOT_STARTED: TransferResult
TRANSFER_RESULT_UNCERTAIN: TransferResult
TRANSFER_RESULT_FAILED: TransferResult
TRANSFER_RESULT_PENDING: TransferResult

class OpenTransportRequest(_message.Message):
    __slots__ = ("consumer", "provider_epoch", "transports", "nonce", "consumer_address", "host_id")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    consumer: _page_pb2.NodeRef
    provider_epoch: int
    transports: _containers.RepeatedScalarFieldContainer[str]
    nonce: bytes
    consumer_address: str
    host_id: str
    def __init__(self, consumer: _Optional[_Union[_page_pb2.NodeRef, _Mapping]] = ..., provider_epoch: _Optional[int] = ..., transports: _Optional[_Iterable[str]] = ..., nonce: _Optional[bytes] = ..., consumer_address: _Optional[str] = ..., host_id: _Optional[str] = ...) -> None: ...

class OpenTransportResponse(_message.Message):
    __slots__ = ("provider", "transport", "address", "ticket", "ticket_ttl", "max_batch")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    TICKET_TTL_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    provider: _page_pb2.NodeRef
    transport: str
    address: str
    ticket: bytes
    ticket_ttl: _duration_pb2.Duration
    max_batch: int
    def __init__(self, provider: _Optional[_Union[_page_pb2.NodeRef, _Mapping]] = ..., transport: _Optional[str] = ..., address: _Optional[str] = ..., ticket: _Optional[bytes] = ..., ticket_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_batch: _Optional[int] = ...) -> None: ...

class PageDestination(_message.Message):
    __slots__ = ("id", "regions", "generation")
    ID_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    id: _page_pb2.PageId
    regions: _containers.RepeatedCompositeFieldContainer[_memory_region_pb2.MemoryRegion]
    generation: int
    def __init__(self, id: _Optional[_Union[_page_pb2.PageId, _Mapping]] = ..., regions: _Optional[_Iterable[_Union[_memory_region_pb2.MemoryRegion, _Mapping]]] = ..., generation: _Optional[int] = ...) -> None: ...

class PushPagesRequest(_message.Message):
    __slots__ = ("transfer_id", "tenant", "consumer", "provider_epoch", "transport", "parameter", "source_layout_id", "target_layout_id", "pages", "pin_ttl", "timeout")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LAYOUT_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_LAYOUT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    PIN_TTL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    tenant: str
    consumer: _page_pb2.NodeRef
    provider_epoch: int
    transport: str
    parameter: str
    source_layout_id: str
    target_layout_id: str
    pages: _containers.RepeatedCompositeFieldContainer[PageDestination]
    pin_ttl: _duration_pb2.Duration
    timeout: _duration_pb2.Duration
    def __init__(self, transfer_id: _Optional[str] = ..., tenant: _Optional[str] = ..., consumer: _Optional[_Union[_page_pb2.NodeRef, _Mapping]] = ..., provider_epoch: _Optional[int] = ..., transport: _Optional[str] = ..., parameter: _Optional[str] = ..., source_layout_id: _Optional[str] = ..., target_layout_id: _Optional[str] = ..., pages: _Optional[_Iterable[_Union[PageDestination, _Mapping]]] = ..., pin_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PageTransfer(_message.Message):
    __slots__ = ("page", "result", "generation")
    PAGE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    page: _page_pb2.Page
    result: TransferResult
    generation: int
    def __init__(self, page: _Optional[_Union[_page_pb2.Page, _Mapping]] = ..., result: _Optional[_Union[TransferResult, str]] = ..., generation: _Optional[int] = ...) -> None: ...

class PushPagesResponse(_message.Message):
    __slots__ = ("pages", "size_bytes")
    PAGES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    pages: _containers.RepeatedCompositeFieldContainer[PageTransfer]
    size_bytes: int
    def __init__(self, pages: _Optional[_Iterable[_Union[PageTransfer, _Mapping]]] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class GetTransferRequest(_message.Message):
    __slots__ = ("transfer_id", "tenant", "provider_epoch")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    tenant: str
    provider_epoch: int
    def __init__(self, transfer_id: _Optional[str] = ..., tenant: _Optional[str] = ..., provider_epoch: _Optional[int] = ...) -> None: ...

class GetTransferResponse(_message.Message):
    __slots__ = ("pages", "is_quiet", "pin_left")
    PAGES_FIELD_NUMBER: _ClassVar[int]
    IS_QUIET_FIELD_NUMBER: _ClassVar[int]
    PIN_LEFT_FIELD_NUMBER: _ClassVar[int]
    pages: _containers.RepeatedCompositeFieldContainer[PageTransfer]
    is_quiet: bool
    pin_left: _duration_pb2.Duration
    def __init__(self, pages: _Optional[_Iterable[_Union[PageTransfer, _Mapping]]] = ..., is_quiet: bool = ..., pin_left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReleaseTransferRequest(_message.Message):
    __slots__ = ("transfer_id", "tenant", "is_confirmed", "drain", "drain_timeout")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    IS_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    DRAIN_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    tenant: str
    is_confirmed: bool
    drain: bool
    drain_timeout: _duration_pb2.Duration
    def __init__(self, transfer_id: _Optional[str] = ..., tenant: _Optional[str] = ..., is_confirmed: bool = ..., drain: bool = ..., drain_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReleaseTransferResponse(_message.Message):
    __slots__ = ("is_quiet",)
    IS_QUIET_FIELD_NUMBER: _ClassVar[int]
    is_quiet: bool
    def __init__(self, is_quiet: bool = ...) -> None: ...

class PinBuffersRequest(_message.Message):
    __slots__ = ("transfer_id", "tenant", "consumer", "transport", "buffers", "pin_ttl")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    PIN_TTL_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    tenant: str
    consumer: _page_pb2.NodeRef
    transport: str
    buffers: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.BufferRef]
    pin_ttl: _duration_pb2.Duration
    def __init__(self, transfer_id: _Optional[str] = ..., tenant: _Optional[str] = ..., consumer: _Optional[_Union[_page_pb2.NodeRef, _Mapping]] = ..., transport: _Optional[str] = ..., buffers: _Optional[_Iterable[_Union[_tensor_pb2.BufferRef, _Mapping]]] = ..., pin_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PinBuffersResponse(_message.Message):
    __slots__ = ("regions", "crc32c")
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    regions: _containers.RepeatedCompositeFieldContainer[_memory_region_pb2.MemoryRegion]
    crc32c: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, regions: _Optional[_Iterable[_Union[_memory_region_pb2.MemoryRegion, _Mapping]]] = ..., crc32c: _Optional[_Iterable[int]] = ...) -> None: ...
