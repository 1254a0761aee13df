import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.common.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ValueType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VALUE_TYPE_UNSPECIFIED: _ClassVar[ValueType]
    VALUE_TYPE_TEXT: _ClassVar[ValueType]
    VALUE_TYPE_TOKENS: _ClassVar[ValueType]
    VALUE_TYPE_TENSOR: _ClassVar[ValueType]
    VALUE_TYPE_IMAGE: _ClassVar[ValueType]
    VALUE_TYPE_AUDIO: _ClassVar[ValueType]
    VALUE_TYPE_VIDEO: _ClassVar[ValueType]
    VALUE_TYPE_ACTION: _ClassVar[ValueType]
    VALUE_TYPE_BYTES: _ClassVar[ValueType]
    VALUE_TYPE_JSON: _ClassVar[ValueType]
    VALUE_TYPE_SIGNAL: _ClassVar[ValueType]
VALUE_TYPE_UNSPECIFIED: ValueType
VALUE_TYPE_TEXT: ValueType
VALUE_TYPE_TOKENS: ValueType
VALUE_TYPE_TENSOR: ValueType
VALUE_TYPE_IMAGE: ValueType
VALUE_TYPE_AUDIO: ValueType
VALUE_TYPE_VIDEO: ValueType
VALUE_TYPE_ACTION: ValueType
VALUE_TYPE_BYTES: ValueType
VALUE_TYPE_JSON: ValueType
VALUE_TYPE_SIGNAL: ValueType

class Value(_message.Message):
    __slots__ = ("text", "tokens", "tensor", "image", "audio", "video", "action", "data", "json", "signal")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    VIDEO_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: Tokens
    tensor: _tensor_pb2.Tensor
    image: Media
    audio: Media
    video: Media
    action: Action
    data: _tensor_pb2.Payload
    json: _struct_pb2.Value
    signal: Signal
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[_Union[Tokens, _Mapping]] = ..., tensor: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., image: _Optional[_Union[Media, _Mapping]] = ..., audio: _Optional[_Union[Media, _Mapping]] = ..., video: _Optional[_Union[Media, _Mapping]] = ..., action: _Optional[_Union[Action, _Mapping]] = ..., data: _Optional[_Union[_tensor_pb2.Payload, _Mapping]] = ..., json: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., signal: _Optional[_Union[Signal, _Mapping]] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("ids", "text", "logprobs", "completion", "alternatives")
    IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    text: str
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    completion: int
    alternatives: _containers.RepeatedCompositeFieldContainer[TokenAlternatives]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ..., logprobs: _Optional[_Iterable[float]] = ..., completion: _Optional[int] = ..., alternatives: _Optional[_Iterable[_Union[TokenAlternatives, _Mapping]]] = ...) -> None: ...

class TokenAlternatives(_message.Message):
    __slots__ = ("ids", "logprobs")
    IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class Media(_message.Message):
    __slots__ = ("mime_type", "payload", "item", "timestamp", "is_partial")
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    IS_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    mime_type: str
    payload: _tensor_pb2.Payload
    item: int
    timestamp: _duration_pb2.Duration
    is_partial: bool
    def __init__(self, mime_type: _Optional[str] = ..., payload: _Optional[_Union[_tensor_pb2.Payload, _Mapping]] = ..., item: _Optional[int] = ..., timestamp: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., is_partial: bool = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("space", "values")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    space: str
    values: _tensor_pb2.Tensor
    def __init__(self, space: _Optional[str] = ..., values: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Signal(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
