import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from omniflow.common.v1 import tensor_pb2 as _tensor_pb2
from omniflow.common.v1 import value_pb2 as _value_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_TOOL_CALLS: _ClassVar[FinishReason]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_TOOL_CALLS: FinishReason

class GraphEvent(_message.Message):
    __slots__ = ("sequence", "node", "origin_path", "field", "call_key", "accepted", "value", "chunk", "tool_call", "progress", "heartbeat", "started", "finished", "failed")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_PATH_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    CALL_KEY_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    node: str
    origin_path: _containers.RepeatedScalarFieldContainer[int]
    field: str
    call_key: str
    accepted: CallAccepted
    value: _value_pb2.Value
    chunk: _tensor_pb2.PayloadChunk
    tool_call: ToolCall
    progress: Progress
    heartbeat: Heartbeat
    started: CallStarted
    finished: CallFinished
    failed: CallFailed
    def __init__(self, sequence: _Optional[int] = ..., node: _Optional[str] = ..., origin_path: _Optional[_Iterable[int]] = ..., field: _Optional[str] = ..., call_key: _Optional[str] = ..., accepted: _Optional[_Union[CallAccepted, _Mapping]] = ..., value: _Optional[_Union[_value_pb2.Value, _Mapping]] = ..., chunk: _Optional[_Union[_tensor_pb2.PayloadChunk, _Mapping]] = ..., tool_call: _Optional[_Union[ToolCall, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., started: _Optional[_Union[CallStarted, _Mapping]] = ..., finished: _Optional[_Union[CallFinished, _Mapping]] = ..., failed: _Optional[_Union[CallFailed, _Mapping]] = ...) -> None: ...

class CallAccepted(_message.Message):
    __slots__ = ("call_id", "is_replayed", "resume_token", "resume_expire_time")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    IS_REPLAYED_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESUME_EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    is_replayed: bool
    resume_token: str
    resume_expire_time: _timestamp_pb2.Timestamp
    def __init__(self, call_id: _Optional[str] = ..., is_replayed: bool = ..., resume_token: _Optional[str] = ..., resume_expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CallStarted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("tool_call_id", "name", "arguments_json")
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    tool_call_id: str
    name: str
    arguments_json: str
    def __init__(self, tool_call_id: _Optional[str] = ..., name: _Optional[str] = ..., arguments_json: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("completed", "total", "message")
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    completed: int
    total: int
    message: str
    def __init__(self, completed: _Optional[int] = ..., total: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Usage(_message.Message):
    __slots__ = ("input_tokens", "cached_input_tokens", "output_tokens", "activations")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    activations: int
    def __init__(self, input_tokens: _Optional[int] = ..., cached_input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., activations: _Optional[int] = ...) -> None: ...

class HistoryResult(_message.Message):
    __slots__ = ("field", "boundary_tokens", "prefill_tokens", "history_tokens")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    field: str
    boundary_tokens: int
    prefill_tokens: int
    history_tokens: int
    def __init__(self, field: _Optional[str] = ..., boundary_tokens: _Optional[int] = ..., prefill_tokens: _Optional[int] = ..., history_tokens: _Optional[int] = ...) -> None: ...

class CallFinished(_message.Message):
    __slots__ = ("reason", "usage", "histories")
    REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    HISTORIES_FIELD_NUMBER: _ClassVar[int]
    reason: FinishReason
    usage: Usage
    histories: _containers.RepeatedCompositeFieldContainer[HistoryResult]
    def __init__(self, reason: _Optional[_Union[FinishReason, str]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., histories: _Optional[_Iterable[_Union[HistoryResult, _Mapping]]] = ...) -> None: ...

class CallFailed(_message.Message):
    __slots__ = ("status", "usage")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    status: _status_pb2.Status
    usage: Usage
    def __init__(self, status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ...) -> None: ...
