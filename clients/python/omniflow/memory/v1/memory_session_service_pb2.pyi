import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.rpc import status_pb2 as _status_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.memory.v1 import global_pool_pb2 as _global_pool_pb2
from omniflow.memory.v1 import tmp_buffer_pb2 as _tmp_buffer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_STATE_UNSPECIFIED: _ClassVar[SessionState]
    SESSION_STATE_ATTACHED: _ClassVar[SessionState]
    SESSION_STATE_DETACHED: _ClassVar[SessionState]
    SESSION_STATE_DRAINING: _ClassVar[SessionState]
SESSION_STATE_UNSPECIFIED: SessionState
SESSION_STATE_ATTACHED: SessionState
SESSION_STATE_DETACHED: SessionState
SESSION_STATE_DRAINING: SessionState

class SessionRequest(_message.Message):
    __slots__ = ("messages", "acknowledged_operation_id")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ClientMessage]
    acknowledged_operation_id: int
    def __init__(self, messages: _Optional[_Iterable[_Union[ClientMessage, _Mapping]]] = ..., acknowledged_operation_id: _Optional[int] = ...) -> None: ...

class ClientMessage(_message.Message):
    __slots__ = ("hello", "operation", "heartbeat", "detach")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    hello: ClientHello
    operation: Operation
    heartbeat: ClientHeartbeat
    detach: Detach
    def __init__(self, hello: _Optional[_Union[ClientHello, _Mapping]] = ..., operation: _Optional[_Union[Operation, _Mapping]] = ..., heartbeat: _Optional[_Union[ClientHeartbeat, _Mapping]] = ..., detach: _Optional[_Union[Detach, _Mapping]] = ...) -> None: ...

class ClientHello(_message.Message):
    __slots__ = ("client_name", "incarnation_id", "broker_ticket", "session_token", "epoch", "last_operation_id", "heartbeat_interval", "protocol_revisions", "devices")
    class DevicesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_TICKET_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    client_name: str
    incarnation_id: str
    broker_ticket: str
    session_token: str
    epoch: int
    last_operation_id: int
    heartbeat_interval: _duration_pb2.Duration
    protocol_revisions: _containers.RepeatedScalarFieldContainer[int]
    devices: _containers.ScalarMap[str, str]
    def __init__(self, client_name: _Optional[str] = ..., incarnation_id: _Optional[str] = ..., broker_ticket: _Optional[str] = ..., session_token: _Optional[str] = ..., epoch: _Optional[int] = ..., last_operation_id: _Optional[int] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., protocol_revisions: _Optional[_Iterable[int]] = ..., devices: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ClientHeartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Detach(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("operation_id", "tenant", "traceparent", "acquire_pages", "commit_pages", "release_pages", "preload_pages", "allocate_blocks", "retain_blocks", "materialize_blocks", "release_blocks", "publish_cache_block", "borrow_cache_blocks", "cancel")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    ACQUIRE_PAGES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_PAGES_FIELD_NUMBER: _ClassVar[int]
    RELEASE_PAGES_FIELD_NUMBER: _ClassVar[int]
    PRELOAD_PAGES_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MATERIALIZE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_CACHE_BLOCK_FIELD_NUMBER: _ClassVar[int]
    BORROW_CACHE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    operation_id: int
    tenant: str
    traceparent: str
    acquire_pages: _global_pool_pb2.AcquirePagesRequest
    commit_pages: _global_pool_pb2.CommitPagesRequest
    release_pages: _global_pool_pb2.ReleasePagesRequest
    preload_pages: _global_pool_pb2.PreloadPagesRequest
    allocate_blocks: _tmp_buffer_pb2.AllocateBlocksRequest
    retain_blocks: _tmp_buffer_pb2.RetainBlocksRequest
    materialize_blocks: _tmp_buffer_pb2.MaterializeBlocksRequest
    release_blocks: _tmp_buffer_pb2.ReleaseBlocksRequest
    publish_cache_block: _tmp_buffer_pb2.PublishCacheBlockRequest
    borrow_cache_blocks: _tmp_buffer_pb2.BorrowCacheBlocksRequest
    cancel: CancelOperation
    def __init__(self, operation_id: _Optional[int] = ..., tenant: _Optional[str] = ..., traceparent: _Optional[str] = ..., acquire_pages: _Optional[_Union[_global_pool_pb2.AcquirePagesRequest, _Mapping]] = ..., commit_pages: _Optional[_Union[_global_pool_pb2.CommitPagesRequest, _Mapping]] = ..., release_pages: _Optional[_Union[_global_pool_pb2.ReleasePagesRequest, _Mapping]] = ..., preload_pages: _Optional[_Union[_global_pool_pb2.PreloadPagesRequest, _Mapping]] = ..., allocate_blocks: _Optional[_Union[_tmp_buffer_pb2.AllocateBlocksRequest, _Mapping]] = ..., retain_blocks: _Optional[_Union[_tmp_buffer_pb2.RetainBlocksRequest, _Mapping]] = ..., materialize_blocks: _Optional[_Union[_tmp_buffer_pb2.MaterializeBlocksRequest, _Mapping]] = ..., release_blocks: _Optional[_Union[_tmp_buffer_pb2.ReleaseBlocksRequest, _Mapping]] = ..., publish_cache_block: _Optional[_Union[_tmp_buffer_pb2.PublishCacheBlockRequest, _Mapping]] = ..., borrow_cache_blocks: _Optional[_Union[_tmp_buffer_pb2.BorrowCacheBlocksRequest, _Mapping]] = ..., cancel: _Optional[_Union[CancelOperation, _Mapping]] = ...) -> None: ...

class CancelOperation(_message.Message):
    __slots__ = ("operation_id",)
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: int
    def __init__(self, operation_id: _Optional[int] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ManagerMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[ManagerMessage, _Mapping]]] = ...) -> None: ...

class ManagerMessage(_message.Message):
    __slots__ = ("hello", "result", "heartbeat", "notice")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    hello: ManagerHello
    result: OperationResult
    heartbeat: ManagerHeartbeat
    notice: ManagerNotice
    def __init__(self, hello: _Optional[_Union[ManagerHello, _Mapping]] = ..., result: _Optional[_Union[OperationResult, _Mapping]] = ..., heartbeat: _Optional[_Union[ManagerHeartbeat, _Mapping]] = ..., notice: _Optional[_Union[ManagerNotice, _Mapping]] = ...) -> None: ...

class ManagerHello(_message.Message):
    __slots__ = ("manager_id", "node_id", "epoch", "session_token", "is_attached_again", "last_operation_id", "heartbeat_interval", "detach_kill", "broker_path", "protocol_revision", "max_operations")
    MANAGER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    IS_ATTACHED_AGAIN_FIELD_NUMBER: _ClassVar[int]
    LAST_OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    DETACH_KILL_FIELD_NUMBER: _ClassVar[int]
    BROKER_PATH_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_REVISION_FIELD_NUMBER: _ClassVar[int]
    MAX_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    manager_id: str
    node_id: str
    epoch: int
    session_token: str
    is_attached_again: bool
    last_operation_id: int
    heartbeat_interval: _duration_pb2.Duration
    detach_kill: _duration_pb2.Duration
    broker_path: str
    protocol_revision: int
    max_operations: int
    def __init__(self, manager_id: _Optional[str] = ..., node_id: _Optional[str] = ..., epoch: _Optional[int] = ..., session_token: _Optional[str] = ..., is_attached_again: bool = ..., last_operation_id: _Optional[int] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., detach_kill: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., broker_path: _Optional[str] = ..., protocol_revision: _Optional[int] = ..., max_operations: _Optional[int] = ...) -> None: ...

class OperationResult(_message.Message):
    __slots__ = ("operation_id", "error", "acquire_pages", "commit_pages", "release_pages", "preload_pages", "allocate_blocks", "retain_blocks", "materialize_blocks", "release_blocks", "publish_cache_block", "borrow_cache_blocks", "cancel")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ACQUIRE_PAGES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_PAGES_FIELD_NUMBER: _ClassVar[int]
    RELEASE_PAGES_FIELD_NUMBER: _ClassVar[int]
    PRELOAD_PAGES_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MATERIALIZE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_CACHE_BLOCK_FIELD_NUMBER: _ClassVar[int]
    BORROW_CACHE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    operation_id: int
    error: _status_pb2.Status
    acquire_pages: _global_pool_pb2.AcquirePagesResponse
    commit_pages: _global_pool_pb2.CommitPagesResponse
    release_pages: _global_pool_pb2.ReleasePagesResponse
    preload_pages: _global_pool_pb2.PreloadPagesResponse
    allocate_blocks: _tmp_buffer_pb2.AllocateBlocksResponse
    retain_blocks: _tmp_buffer_pb2.RetainBlocksResponse
    materialize_blocks: _tmp_buffer_pb2.MaterializeBlocksResponse
    release_blocks: _tmp_buffer_pb2.ReleaseBlocksResponse
    publish_cache_block: _tmp_buffer_pb2.PublishCacheBlockResponse
    borrow_cache_blocks: _tmp_buffer_pb2.BorrowCacheBlocksResponse
    cancel: CancelOperationResult
    def __init__(self, operation_id: _Optional[int] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., acquire_pages: _Optional[_Union[_global_pool_pb2.AcquirePagesResponse, _Mapping]] = ..., commit_pages: _Optional[_Union[_global_pool_pb2.CommitPagesResponse, _Mapping]] = ..., release_pages: _Optional[_Union[_global_pool_pb2.ReleasePagesResponse, _Mapping]] = ..., preload_pages: _Optional[_Union[_global_pool_pb2.PreloadPagesResponse, _Mapping]] = ..., allocate_blocks: _Optional[_Union[_tmp_buffer_pb2.AllocateBlocksResponse, _Mapping]] = ..., retain_blocks: _Optional[_Union[_tmp_buffer_pb2.RetainBlocksResponse, _Mapping]] = ..., materialize_blocks: _Optional[_Union[_tmp_buffer_pb2.MaterializeBlocksResponse, _Mapping]] = ..., release_blocks: _Optional[_Union[_tmp_buffer_pb2.ReleaseBlocksResponse, _Mapping]] = ..., publish_cache_block: _Optional[_Union[_tmp_buffer_pb2.PublishCacheBlockResponse, _Mapping]] = ..., borrow_cache_blocks: _Optional[_Union[_tmp_buffer_pb2.BorrowCacheBlocksResponse, _Mapping]] = ..., cancel: _Optional[_Union[CancelOperationResult, _Mapping]] = ...) -> None: ...

class CancelOperationResult(_message.Message):
    __slots__ = ("is_cancelled",)
    IS_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    is_cancelled: bool
    def __init__(self, is_cancelled: bool = ...) -> None: ...

class ManagerHeartbeat(_message.Message):
    __slots__ = ("completed_operation_id",)
    COMPLETED_OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    completed_operation_id: int
    def __init__(self, completed_operation_id: _Optional[int] = ...) -> None: ...

class ManagerNotice(_message.Message):
    __slots__ = ("drain", "pressure", "revoke")
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    PRESSURE_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    drain: DrainNotice
    pressure: PressureNotice
    revoke: RevokeNotice
    def __init__(self, drain: _Optional[_Union[DrainNotice, _Mapping]] = ..., pressure: _Optional[_Union[PressureNotice, _Mapping]] = ..., revoke: _Optional[_Union[RevokeNotice, _Mapping]] = ...) -> None: ...

class DrainNotice(_message.Message):
    __slots__ = ("grace",)
    GRACE_FIELD_NUMBER: _ClassVar[int]
    grace: _duration_pb2.Duration
    def __init__(self, grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PressureNotice(_message.Message):
    __slots__ = ("pool", "pages")
    POOL_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    pool: str
    pages: int
    def __init__(self, pool: _Optional[str] = ..., pages: _Optional[int] = ...) -> None: ...

class RevokeNotice(_message.Message):
    __slots__ = ("pool", "parameter", "slots", "status")
    POOL_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    parameter: str
    slots: _containers.RepeatedCompositeFieldContainer[_global_pool_pb2.SlotRef]
    status: _status_pb2.Status
    def __init__(self, pool: _Optional[str] = ..., parameter: _Optional[str] = ..., slots: _Optional[_Iterable[_Union[_global_pool_pb2.SlotRef, _Mapping]]] = ..., status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("session_token",)
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    session_token: str
    def __init__(self, session_token: _Optional[str] = ...) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = ("released_slots", "released_blocks")
    RELEASED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    released_slots: int
    released_blocks: int
    def __init__(self, released_slots: _Optional[int] = ..., released_blocks: _Optional[int] = ...) -> None: ...

class SessionInfo(_message.Message):
    __slots__ = ("client_name", "incarnation_id", "state", "process_id", "age", "held_slots", "held_blocks", "pending_operations")
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    HELD_SLOTS_FIELD_NUMBER: _ClassVar[int]
    HELD_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PENDING_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    client_name: str
    incarnation_id: str
    state: SessionState
    process_id: int
    age: _duration_pb2.Duration
    held_slots: int
    held_blocks: int
    pending_operations: int
    def __init__(self, client_name: _Optional[str] = ..., incarnation_id: _Optional[str] = ..., state: _Optional[_Union[SessionState, str]] = ..., process_id: _Optional[int] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., held_slots: _Optional[int] = ..., held_blocks: _Optional[int] = ..., pending_operations: _Optional[int] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions", "epoch")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionInfo]
    epoch: int
    def __init__(self, sessions: _Optional[_Iterable[_Union[SessionInfo, _Mapping]]] = ..., epoch: _Optional[int] = ...) -> None: ...
