import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.common.v1 import value_pb2 as _value_pb2
from omniflow.graph.v1 import graph_event_pb2 as _graph_event_pb2
from omniflow.graph.v1 import sampling_pb2 as _sampling_pb2
from omniflow.role.v1 import replica_pb2 as _replica_pb2
from omniflow.workflow.v1 import graph_spec_pb2 as _graph_spec_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExecuteRequest(_message.Message):
    __slots__ = ("commands", "received_messages")
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[ExecuteCommand]
    received_messages: int
    def __init__(self, commands: _Optional[_Iterable[_Union[ExecuteCommand, _Mapping]]] = ..., received_messages: _Optional[int] = ...) -> None: ...

class ExecuteCommand(_message.Message):
    __slots__ = ("handle", "hello", "start", "yield_ack", "cancel", "heartbeat")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    YIELD_ACK_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    handle: int
    hello: ControlHello
    start: StartActivation
    yield_ack: YieldAck
    cancel: CancelActivation
    heartbeat: StreamHeartbeat
    def __init__(self, handle: _Optional[int] = ..., hello: _Optional[_Union[ControlHello, _Mapping]] = ..., start: _Optional[_Union[StartActivation, _Mapping]] = ..., yield_ack: _Optional[_Union[YieldAck, _Mapping]] = ..., cancel: _Optional[_Union[CancelActivation, _Mapping]] = ..., heartbeat: _Optional[_Union[StreamHeartbeat, _Mapping]] = ...) -> None: ...

class ControlHello(_message.Message):
    __slots__ = ("control_id", "incarnation_id", "replica_incarnation_id", "value_endpoint", "link_id", "received_messages", "is_resuming")
    CONTROL_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    LINK_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IS_RESUMING_FIELD_NUMBER: _ClassVar[int]
    control_id: str
    incarnation_id: str
    replica_incarnation_id: str
    value_endpoint: str
    link_id: str
    received_messages: int
    is_resuming: bool
    def __init__(self, control_id: _Optional[str] = ..., incarnation_id: _Optional[str] = ..., replica_incarnation_id: _Optional[str] = ..., value_endpoint: _Optional[str] = ..., link_id: _Optional[str] = ..., received_messages: _Optional[int] = ..., is_resuming: bool = ...) -> None: ...

class StreamHeartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ActivationRef(_message.Message):
    __slots__ = ("call_id", "node", "interface", "activation_id", "attempt")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    node: str
    interface: str
    activation_id: int
    attempt: int
    def __init__(self, call_id: _Optional[str] = ..., node: _Optional[str] = ..., interface: _Optional[str] = ..., activation_id: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class StartActivation(_message.Message):
    __slots__ = ("activation", "facets", "tenant", "session", "session_ordinal", "session_fence", "deadline", "traceparent", "yield_window", "byte_credit", "sampling", "priority", "pages", "histories", "delivered_yields", "segment", "is_first_of_call", "pipeline")
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    FACETS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    SESSION_FENCE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    YIELD_WINDOW_FIELD_NUMBER: _ClassVar[int]
    BYTE_CREDIT_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    HISTORIES_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_YIELDS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    IS_FIRST_OF_CALL_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    activation: ActivationRef
    facets: _containers.RepeatedCompositeFieldContainer[Facet]
    tenant: str
    session: str
    session_ordinal: int
    session_fence: int
    deadline: _timestamp_pb2.Timestamp
    traceparent: str
    yield_window: int
    byte_credit: int
    sampling: _sampling_pb2.SamplingParameters
    priority: int
    pages: _containers.RepeatedCompositeFieldContainer[PageBinding]
    histories: _containers.RepeatedCompositeFieldContainer[HistoryBoundary]
    delivered_yields: _containers.RepeatedCompositeFieldContainer[ActivationYield]
    segment: Segment
    is_first_of_call: bool
    pipeline: Pipeline
    def __init__(self, activation: _Optional[_Union[ActivationRef, _Mapping]] = ..., facets: _Optional[_Iterable[_Union[Facet, _Mapping]]] = ..., tenant: _Optional[str] = ..., session: _Optional[str] = ..., session_ordinal: _Optional[int] = ..., session_fence: _Optional[int] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., traceparent: _Optional[str] = ..., yield_window: _Optional[int] = ..., byte_credit: _Optional[int] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParameters, _Mapping]] = ..., priority: _Optional[int] = ..., pages: _Optional[_Iterable[_Union[PageBinding, _Mapping]]] = ..., histories: _Optional[_Iterable[_Union[HistoryBoundary, _Mapping]]] = ..., delivered_yields: _Optional[_Iterable[_Union[ActivationYield, _Mapping]]] = ..., segment: _Optional[_Union[Segment, _Mapping]] = ..., is_first_of_call: bool = ..., pipeline: _Optional[_Union[Pipeline, _Mapping]] = ...) -> None: ...

class Facet(_message.Message):
    __slots__ = ("input_group", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: FieldValues
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[FieldValues, _Mapping]] = ...) -> None: ...
    INPUT_GROUP_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    input_group: str
    fields: _containers.MessageMap[str, FieldValues]
    def __init__(self, input_group: _Optional[str] = ..., fields: _Optional[_Mapping[str, FieldValues]] = ...) -> None: ...

class FieldValues(_message.Message):
    __slots__ = ("values", "context_count")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_COUNT_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[FieldValue]
    context_count: int
    def __init__(self, values: _Optional[_Iterable[_Union[FieldValue, _Mapping]]] = ..., context_count: _Optional[int] = ...) -> None: ...

class FieldValue(_message.Message):
    __slots__ = ("value", "origin_path", "tokens")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_PATH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    value: _value_pb2.Value
    origin_path: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedCompositeFieldContainer[PathToken]
    def __init__(self, value: _Optional[_Union[_value_pb2.Value, _Mapping]] = ..., origin_path: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[_Union[PathToken, _Mapping]]] = ...) -> None: ...

class PathToken(_message.Message):
    __slots__ = ("node", "activation_id", "yield_ordinal", "event_id")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_ID_FIELD_NUMBER: _ClassVar[int]
    YIELD_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    node: str
    activation_id: int
    yield_ordinal: int
    event_id: int
    def __init__(self, node: _Optional[str] = ..., activation_id: _Optional[int] = ..., yield_ordinal: _Optional[int] = ..., event_id: _Optional[int] = ...) -> None: ...

class PageBinding(_message.Message):
    __slots__ = ("parameter", "pool", "page_ids", "slots", "valid_tokens", "first_writable")
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    PAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    VALID_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FIRST_WRITABLE_FIELD_NUMBER: _ClassVar[int]
    parameter: str
    pool: str
    page_ids: _containers.RepeatedScalarFieldContainer[bytes]
    slots: _containers.RepeatedScalarFieldContainer[int]
    valid_tokens: int
    first_writable: int
    def __init__(self, parameter: _Optional[str] = ..., pool: _Optional[str] = ..., page_ids: _Optional[_Iterable[bytes]] = ..., slots: _Optional[_Iterable[int]] = ..., valid_tokens: _Optional[int] = ..., first_writable: _Optional[int] = ...) -> None: ...

class HistoryBoundary(_message.Message):
    __slots__ = ("field", "boundary_tokens", "dirty_key")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DIRTY_KEY_FIELD_NUMBER: _ClassVar[int]
    field: str
    boundary_tokens: int
    dirty_key: str
    def __init__(self, field: _Optional[str] = ..., boundary_tokens: _Optional[int] = ..., dirty_key: _Optional[str] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("segment_id", "nodes", "edges", "exits")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    EXITS_FIELD_NUMBER: _ClassVar[int]
    segment_id: str
    nodes: _containers.RepeatedCompositeFieldContainer[_graph_spec_pb2.Node]
    edges: _containers.RepeatedCompositeFieldContainer[_graph_spec_pb2.Edge]
    exits: _containers.RepeatedCompositeFieldContainer[SegmentExit]
    def __init__(self, segment_id: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[_graph_spec_pb2.Node, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[_graph_spec_pb2.Edge, _Mapping]]] = ..., exits: _Optional[_Iterable[_Union[SegmentExit, _Mapping]]] = ...) -> None: ...

class Pipeline(_message.Message):
    __slots__ = ("stages", "exit", "entry_activation_id", "origin_path", "stage")
    STAGES_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ACTIVATION_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_PATH_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    stages: _containers.RepeatedCompositeFieldContainer[PipelineStage]
    exit: PipelineExit
    entry_activation_id: int
    origin_path: _containers.RepeatedScalarFieldContainer[int]
    stage: int
    def __init__(self, stages: _Optional[_Iterable[_Union[PipelineStage, _Mapping]]] = ..., exit: _Optional[_Union[PipelineExit, _Mapping]] = ..., entry_activation_id: _Optional[int] = ..., origin_path: _Optional[_Iterable[int]] = ..., stage: _Optional[int] = ...) -> None: ...

class PipelineStage(_message.Message):
    __slots__ = ("node", "interface", "input_group", "routes", "required_fields", "fails_when_partial", "replica", "yield_window", "activation_window")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    INPUT_GROUP_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELDS_FIELD_NUMBER: _ClassVar[int]
    FAILS_WHEN_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    YIELD_WINDOW_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_WINDOW_FIELD_NUMBER: _ClassVar[int]
    node: str
    interface: str
    input_group: str
    routes: _containers.RepeatedCompositeFieldContainer[PipelineRoute]
    required_fields: _containers.RepeatedScalarFieldContainer[str]
    fails_when_partial: bool
    replica: _replica_pb2.Replica
    yield_window: int
    activation_window: int
    def __init__(self, node: _Optional[str] = ..., interface: _Optional[str] = ..., input_group: _Optional[str] = ..., routes: _Optional[_Iterable[_Union[PipelineRoute, _Mapping]]] = ..., required_fields: _Optional[_Iterable[str]] = ..., fails_when_partial: bool = ..., replica: _Optional[_Union[_replica_pb2.Replica, _Mapping]] = ..., yield_window: _Optional[int] = ..., activation_window: _Optional[int] = ...) -> None: ...

class PipelineRoute(_message.Message):
    __slots__ = ("output_field", "input_field")
    OUTPUT_FIELD_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_FIELD_NUMBER: _ClassVar[int]
    output_field: str
    input_field: str
    def __init__(self, output_field: _Optional[str] = ..., input_field: _Optional[str] = ...) -> None: ...

class PipelineExit(_message.Message):
    __slots__ = ("incarnation_id", "handle", "fields", "yield_window")
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    YIELD_WINDOW_FIELD_NUMBER: _ClassVar[int]
    incarnation_id: str
    handle: int
    fields: _containers.RepeatedScalarFieldContainer[str]
    yield_window: int
    def __init__(self, incarnation_id: _Optional[str] = ..., handle: _Optional[int] = ..., fields: _Optional[_Iterable[str]] = ..., yield_window: _Optional[int] = ...) -> None: ...

class SegmentExit(_message.Message):
    __slots__ = ("node", "fields")
    NODE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    node: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ...) -> None: ...

class YieldAck(_message.Message):
    __slots__ = ("next_ordinal", "inner_activation_id")
    NEXT_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    INNER_ACTIVATION_ID_FIELD_NUMBER: _ClassVar[int]
    next_ordinal: int
    inner_activation_id: int
    def __init__(self, next_ordinal: _Optional[int] = ..., inner_activation_id: _Optional[int] = ...) -> None: ...

class CancelActivation(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ExecuteResponse(_message.Message):
    __slots__ = ("results", "received_messages")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ExecuteResult]
    received_messages: int
    def __init__(self, results: _Optional[_Iterable[_Union[ExecuteResult, _Mapping]]] = ..., received_messages: _Optional[int] = ...) -> None: ...

class ExecuteResult(_message.Message):
    __slots__ = ("handle", "hello", "accepted", "completed", "failed", "progress", "heartbeat", "segment_step", "load")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    YIELD_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_STEP_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    handle: int
    hello: ReplicaHello
    accepted: ActivationAccepted
    completed: ActivationCompleted
    failed: ActivationFailed
    progress: _graph_event_pb2.Progress
    heartbeat: StreamHeartbeat
    segment_step: SegmentStep
    load: _replica_pb2.ReplicaLoad
    def __init__(self, handle: _Optional[int] = ..., hello: _Optional[_Union[ReplicaHello, _Mapping]] = ..., accepted: _Optional[_Union[ActivationAccepted, _Mapping]] = ..., completed: _Optional[_Union[ActivationCompleted, _Mapping]] = ..., failed: _Optional[_Union[ActivationFailed, _Mapping]] = ..., progress: _Optional[_Union[_graph_event_pb2.Progress, _Mapping]] = ..., heartbeat: _Optional[_Union[StreamHeartbeat, _Mapping]] = ..., segment_step: _Optional[_Union[SegmentStep, _Mapping]] = ..., load: _Optional[_Union[_replica_pb2.ReplicaLoad, _Mapping]] = ..., **kwargs) -> None: ...

class ReplicaHello(_message.Message):
    __slots__ = ("replica", "value_endpoint", "is_resumed", "received_messages")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    VALUE_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    IS_RESUMED_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    replica: _replica_pb2.Replica
    value_endpoint: str
    is_resumed: bool
    received_messages: int
    def __init__(self, replica: _Optional[_Union[_replica_pb2.Replica, _Mapping]] = ..., value_endpoint: _Optional[str] = ..., is_resumed: bool = ..., received_messages: _Optional[int] = ...) -> None: ...

class ActivationAccepted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ActivationYield(_message.Message):
    __slots__ = ("ordinal", "fields", "inside_fields", "inside_bytes", "inside_stored_bytes", "origin_path")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _value_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_value_pb2.Value, _Mapping]] = ...) -> None: ...
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    INSIDE_FIELDS_FIELD_NUMBER: _ClassVar[int]
    INSIDE_BYTES_FIELD_NUMBER: _ClassVar[int]
    INSIDE_STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_PATH_FIELD_NUMBER: _ClassVar[int]
    ordinal: int
    fields: _containers.MessageMap[str, _value_pb2.Value]
    inside_fields: _containers.RepeatedScalarFieldContainer[str]
    inside_bytes: int
    inside_stored_bytes: int
    origin_path: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ordinal: _Optional[int] = ..., fields: _Optional[_Mapping[str, _value_pb2.Value]] = ..., inside_fields: _Optional[_Iterable[str]] = ..., inside_bytes: _Optional[int] = ..., inside_stored_bytes: _Optional[int] = ..., origin_path: _Optional[_Iterable[int]] = ...) -> None: ...

class ActivationCompleted(_message.Message):
    __slots__ = ("yield_count", "usage", "finish_reason", "histories", "last_yield", "started_activations")
    YIELD_COUNT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    HISTORIES_FIELD_NUMBER: _ClassVar[int]
    LAST_YIELD_FIELD_NUMBER: _ClassVar[int]
    STARTED_ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    yield_count: int
    usage: _graph_event_pb2.Usage
    finish_reason: _graph_event_pb2.FinishReason
    histories: _containers.RepeatedCompositeFieldContainer[_graph_event_pb2.HistoryResult]
    last_yield: ActivationYield
    started_activations: int
    def __init__(self, yield_count: _Optional[int] = ..., usage: _Optional[_Union[_graph_event_pb2.Usage, _Mapping]] = ..., finish_reason: _Optional[_Union[_graph_event_pb2.FinishReason, str]] = ..., histories: _Optional[_Iterable[_Union[_graph_event_pb2.HistoryResult, _Mapping]]] = ..., last_yield: _Optional[_Union[ActivationYield, _Mapping]] = ..., started_activations: _Optional[int] = ...) -> None: ...

class ActivationFailed(_message.Message):
    __slots__ = ("status", "is_retryable", "is_refused")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IS_RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    IS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    status: _status_pb2.Status
    is_retryable: bool
    is_refused: bool
    def __init__(self, status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., is_retryable: bool = ..., is_refused: bool = ...) -> None: ...

class SegmentStep(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[InnerEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[InnerEvent, _Mapping]]] = ...) -> None: ...

class InnerEvent(_message.Message):
    __slots__ = ("inner_activation_id", "started", "completed", "failed")
    INNER_ACTIVATION_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    YIELD_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    inner_activation_id: int
    started: InnerStart
    completed: ActivationCompleted
    failed: ActivationFailed
    def __init__(self, inner_activation_id: _Optional[int] = ..., started: _Optional[_Union[InnerStart, _Mapping]] = ..., completed: _Optional[_Union[ActivationCompleted, _Mapping]] = ..., failed: _Optional[_Union[ActivationFailed, _Mapping]] = ..., **kwargs) -> None: ...

class InnerStart(_message.Message):
    __slots__ = ("node", "input_group", "parent_activation_id", "parent_ordinal")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INPUT_GROUP_FIELD_NUMBER: _ClassVar[int]
    PARENT_ACTIVATION_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    node: str
    input_group: str
    parent_activation_id: int
    parent_ordinal: int
    def __init__(self, node: _Optional[str] = ..., input_group: _Optional[str] = ..., parent_activation_id: _Optional[int] = ..., parent_ordinal: _Optional[int] = ...) -> None: ...

class CancelActivationsRequest(_message.Message):
    __slots__ = ("call_id", "reason")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    reason: str
    def __init__(self, call_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelActivationsResponse(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: int
    def __init__(self, cancelled: _Optional[int] = ...) -> None: ...

class ReleaseCallRequest(_message.Message):
    __slots__ = ("call_ids",)
    CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    call_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, call_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ReleaseCallResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeRoleRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InterfaceDescription(_message.Message):
    __slots__ = ("name", "input_groups", "outputs", "is_streaming")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_GROUPS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    IS_STREAMING_FIELD_NUMBER: _ClassVar[int]
    name: str
    input_groups: _containers.RepeatedCompositeFieldContainer[_graph_spec_pb2.InputGroup]
    outputs: _containers.RepeatedCompositeFieldContainer[_graph_spec_pb2.Field]
    is_streaming: bool
    def __init__(self, name: _Optional[str] = ..., input_groups: _Optional[_Iterable[_Union[_graph_spec_pb2.InputGroup, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[_graph_spec_pb2.Field, _Mapping]]] = ..., is_streaming: bool = ...) -> None: ...

class DescribeRoleResponse(_message.Message):
    __slots__ = ("replica", "interfaces", "kv_layout_ids", "models")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    INTERFACES_FIELD_NUMBER: _ClassVar[int]
    KV_LAYOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    replica: _replica_pb2.Replica
    interfaces: _containers.RepeatedCompositeFieldContainer[InterfaceDescription]
    kv_layout_ids: _containers.RepeatedScalarFieldContainer[str]
    models: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, replica: _Optional[_Union[_replica_pb2.Replica, _Mapping]] = ..., interfaces: _Optional[_Iterable[_Union[InterfaceDescription, _Mapping]]] = ..., kv_layout_ids: _Optional[_Iterable[str]] = ..., models: _Optional[_Iterable[str]] = ...) -> None: ...
