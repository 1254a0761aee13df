import datetime

from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.common.v1 import tensor_pb2 as _tensor_pb2
from omniflow.common.v1 import value_pb2 as _value_pb2
from omniflow.graph.v1 import graph_event_pb2 as _graph_event_pb2
from omniflow.graph.v1 import inspection_pb2 as _inspection_pb2
from omniflow.graph.v1 import sampling_pb2 as _sampling_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CallState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CALL_STATE_UNSPECIFIED: _ClassVar[CallState]
    CALL_STATE_QUEUED: _ClassVar[CallState]
    CALL_STATE_RUNNING: _ClassVar[CallState]
    CALL_STATE_CANCELLING: _ClassVar[CallState]
    CALL_STATE_FINISHED: _ClassVar[CallState]
    CALL_STATE_FAILED: _ClassVar[CallState]
CALL_STATE_UNSPECIFIED: CallState
CALL_STATE_QUEUED: CallState
CALL_STATE_RUNNING: CallState
CALL_STATE_CANCELLING: CallState
CALL_STATE_FINISHED: CallState
CALL_STATE_FAILED: CallState

class CallSpec(_message.Message):
    __slots__ = ("request_id", "call_key", "session", "inputs", "open_inputs", "history_step", "supersede", "heartbeat_interval", "detach_grace", "sampling", "priority", "deadline")
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _value_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_value_pb2.Value, _Mapping]] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_KEY_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OPEN_INPUTS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_STEP_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    DETACH_GRACE_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    call_key: str
    session: str
    inputs: _containers.MessageMap[str, _value_pb2.Value]
    open_inputs: _containers.RepeatedScalarFieldContainer[str]
    history_step: int
    supersede: bool
    heartbeat_interval: _duration_pb2.Duration
    detach_grace: _duration_pb2.Duration
    sampling: _sampling_pb2.SamplingParameters
    priority: int
    deadline: _timestamp_pb2.Timestamp
    def __init__(self, request_id: _Optional[str] = ..., call_key: _Optional[str] = ..., session: _Optional[str] = ..., inputs: _Optional[_Mapping[str, _value_pb2.Value]] = ..., open_inputs: _Optional[_Iterable[str]] = ..., history_step: _Optional[int] = ..., supersede: bool = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., detach_grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParameters, _Mapping]] = ..., priority: _Optional[int] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class StreamCallRequest(_message.Message):
    __slots__ = ("graph", "call")
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    graph: str
    call: CallSpec
    def __init__(self, graph: _Optional[str] = ..., call: _Optional[_Union[CallSpec, _Mapping]] = ...) -> None: ...

class StreamCallResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_graph_event_pb2.GraphEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_graph_event_pb2.GraphEvent, _Mapping]]] = ...) -> None: ...

class RunCallRequest(_message.Message):
    __slots__ = ("graph", "call")
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    graph: str
    call: CallSpec
    def __init__(self, graph: _Optional[str] = ..., call: _Optional[_Union[CallSpec, _Mapping]] = ...) -> None: ...

class OutputValues(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[_value_pb2.Value]
    def __init__(self, values: _Optional[_Iterable[_Union[_value_pb2.Value, _Mapping]]] = ...) -> None: ...

class RunCallResponse(_message.Message):
    __slots__ = ("call_id", "outputs", "finished")
    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: OutputValues
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[OutputValues, _Mapping]] = ...) -> None: ...
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    outputs: _containers.MessageMap[str, OutputValues]
    finished: _graph_event_pb2.CallFinished
    def __init__(self, call_id: _Optional[str] = ..., outputs: _Optional[_Mapping[str, OutputValues]] = ..., finished: _Optional[_Union[_graph_event_pb2.CallFinished, _Mapping]] = ...) -> None: ...

class ConverseCallRequest(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ConverseMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[ConverseMessage, _Mapping]]] = ...) -> None: ...

class ConverseMessage(_message.Message):
    __slots__ = ("call_key", "start", "input", "tool_result", "chunk", "cancel", "credit", "resume")
    CALL_KEY_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    call_key: str
    start: StartCall
    input: StreamInput
    tool_result: ToolResult
    chunk: _tensor_pb2.PayloadChunk
    cancel: Cancel
    credit: Credit
    resume: ResumeCallRequest
    def __init__(self, call_key: _Optional[str] = ..., start: _Optional[_Union[StartCall, _Mapping]] = ..., input: _Optional[_Union[StreamInput, _Mapping]] = ..., tool_result: _Optional[_Union[ToolResult, _Mapping]] = ..., chunk: _Optional[_Union[_tensor_pb2.PayloadChunk, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., resume: _Optional[_Union[ResumeCallRequest, _Mapping]] = ...) -> None: ...

class StartCall(_message.Message):
    __slots__ = ("graph", "call")
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    graph: str
    call: CallSpec
    def __init__(self, graph: _Optional[str] = ..., call: _Optional[_Union[CallSpec, _Mapping]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("size_bytes",)
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ...) -> None: ...

class StreamInput(_message.Message):
    __slots__ = ("field", "value", "is_last")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    field: str
    value: _value_pb2.Value
    is_last: bool
    def __init__(self, field: _Optional[str] = ..., value: _Optional[_Union[_value_pb2.Value, _Mapping]] = ..., is_last: bool = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ("tool_call_id", "value")
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    tool_call_id: str
    value: _value_pb2.Value
    def __init__(self, tool_call_id: _Optional[str] = ..., value: _Optional[_Union[_value_pb2.Value, _Mapping]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ConverseCallResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_graph_event_pb2.GraphEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_graph_event_pb2.GraphEvent, _Mapping]]] = ...) -> None: ...

class ResumeCallRequest(_message.Message):
    __slots__ = ("resume_token", "after_sequence")
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    resume_token: str
    after_sequence: int
    def __init__(self, resume_token: _Optional[str] = ..., after_sequence: _Optional[int] = ...) -> None: ...

class ResumeCallResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_graph_event_pb2.GraphEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[_graph_event_pb2.GraphEvent, _Mapping]]] = ...) -> None: ...

class PushInputRequest(_message.Message):
    __slots__ = ("call_id", "ordinal", "input", "tool_result", "chunk")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    ordinal: int
    input: StreamInput
    tool_result: ToolResult
    chunk: _tensor_pb2.PayloadChunk
    def __init__(self, call_id: _Optional[str] = ..., ordinal: _Optional[int] = ..., input: _Optional[_Union[StreamInput, _Mapping]] = ..., tool_result: _Optional[_Union[ToolResult, _Mapping]] = ..., chunk: _Optional[_Union[_tensor_pb2.PayloadChunk, _Mapping]] = ...) -> None: ...

class PushInputResponse(_message.Message):
    __slots__ = ("accepted_ordinal",)
    ACCEPTED_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    accepted_ordinal: int
    def __init__(self, accepted_ordinal: _Optional[int] = ...) -> None: ...

class GetCallRequest(_message.Message):
    __slots__ = ("call_id",)
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    def __init__(self, call_id: _Optional[str] = ...) -> None: ...

class GetCallResponse(_message.Message):
    __slots__ = ("state", "last_sequence", "first_kept_sequence", "graph", "create_time", "is_attached", "active_activations")
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_KEPT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    IS_ATTACHED_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    state: CallState
    last_sequence: int
    first_kept_sequence: int
    graph: str
    create_time: _timestamp_pb2.Timestamp
    is_attached: bool
    active_activations: int
    def __init__(self, state: _Optional[_Union[CallState, str]] = ..., last_sequence: _Optional[int] = ..., first_kept_sequence: _Optional[int] = ..., graph: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., is_attached: bool = ..., active_activations: _Optional[int] = ...) -> None: ...

class ListCallsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class CallSummary(_message.Message):
    __slots__ = ("call_id", "graph", "state", "create_time", "end_time", "session", "active_activations")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    graph: str
    state: CallState
    create_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    session: str
    active_activations: int
    def __init__(self, call_id: _Optional[str] = ..., graph: _Optional[str] = ..., state: _Optional[_Union[CallState, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., session: _Optional[str] = ..., active_activations: _Optional[int] = ...) -> None: ...

class ListCallsResponse(_message.Message):
    __slots__ = ("calls", "next_page_token")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[CallSummary]
    next_page_token: str
    def __init__(self, calls: _Optional[_Iterable[_Union[CallSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class InspectCallRequest(_message.Message):
    __slots__ = ("call_id",)
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    def __init__(self, call_id: _Optional[str] = ...) -> None: ...

class InspectCallResponse(_message.Message):
    __slots__ = ("state", "call")
    STATE_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    state: CallState
    call: _inspection_pb2.CallInspection
    def __init__(self, state: _Optional[_Union[CallState, str]] = ..., call: _Optional[_Union[_inspection_pb2.CallInspection, _Mapping]] = ...) -> None: ...

class CancelCallRequest(_message.Message):
    __slots__ = ("call_id", "request_id", "reason")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    request_id: str
    reason: str
    def __init__(self, call_id: _Optional[str] = ..., request_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelCallResponse(_message.Message):
    __slots__ = ("is_cancelled",)
    IS_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    is_cancelled: bool
    def __init__(self, is_cancelled: bool = ...) -> None: ...
