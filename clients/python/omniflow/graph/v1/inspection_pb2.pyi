import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from omniflow.workflow.v1 import graph_spec_pb2 as _graph_spec_pb2
from omniflow.workflow.v1 import workflow_service_pb2 as _workflow_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ActivationPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTIVATION_PHASE_UNSPECIFIED: _ClassVar[ActivationPhase]
    ACTIVATION_PHASE_HELD: _ClassVar[ActivationPhase]
    ACTIVATION_PHASE_SENT: _ClassVar[ActivationPhase]
    ACTIVATION_PHASE_RUNNING: _ClassVar[ActivationPhase]
ACTIVATION_PHASE_UNSPECIFIED: ActivationPhase
ACTIVATION_PHASE_HELD: ActivationPhase
ACTIVATION_PHASE_SENT: ActivationPhase
ACTIVATION_PHASE_RUNNING: ActivationPhase

class CallInspection(_message.Message):
    __slots__ = ("call_id", "graph", "create_time", "inspect_time", "session", "status", "options", "record", "snapshot")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    INSPECT_TIME_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    graph: _graph_spec_pb2.GraphSpec
    create_time: _timestamp_pb2.Timestamp
    inspect_time: _timestamp_pb2.Timestamp
    session: str
    status: _status_pb2.Status
    options: SchedulerOptions
    record: ControlRecord
    snapshot: SchedulerSnapshot
    def __init__(self, call_id: _Optional[str] = ..., graph: _Optional[_Union[_graph_spec_pb2.GraphSpec, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., inspect_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., session: _Optional[str] = ..., status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., options: _Optional[_Union[SchedulerOptions, _Mapping]] = ..., record: _Optional[_Union[ControlRecord, _Mapping]] = ..., snapshot: _Optional[_Union[SchedulerSnapshot, _Mapping]] = ...) -> None: ...

class SchedulerOptions(_message.Message):
    __slots__ = ("yield_window", "byte_credit", "store_limit_bytes", "max_activations", "max_attempts")
    YIELD_WINDOW_FIELD_NUMBER: _ClassVar[int]
    BYTE_CREDIT_FIELD_NUMBER: _ClassVar[int]
    STORE_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    yield_window: int
    byte_credit: int
    store_limit_bytes: int
    max_activations: int
    max_attempts: int
    def __init__(self, yield_window: _Optional[int] = ..., byte_credit: _Optional[int] = ..., store_limit_bytes: _Optional[int] = ..., max_activations: _Optional[int] = ..., max_attempts: _Optional[int] = ...) -> None: ...

class ControlRecord(_message.Message):
    __slots__ = ("format", "entries", "texts", "events_left_out")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    format: int
    entries: bytes
    texts: _containers.RepeatedScalarFieldContainer[str]
    events_left_out: int
    def __init__(self, format: _Optional[int] = ..., entries: _Optional[bytes] = ..., texts: _Optional[_Iterable[str]] = ..., events_left_out: _Optional[int] = ...) -> None: ...

class SchedulerSnapshot(_message.Message):
    __slots__ = ("phase", "started", "finished", "stored_bytes", "activations", "buckets", "gates", "activations_left_out", "buckets_left_out")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    phase: str
    started: int
    finished: int
    stored_bytes: int
    activations: _containers.RepeatedCompositeFieldContainer[ActivationInspection]
    buckets: _containers.RepeatedCompositeFieldContainer[BucketInspection]
    gates: _containers.RepeatedCompositeFieldContainer[GateInspection]
    activations_left_out: int
    buckets_left_out: int
    def __init__(self, phase: _Optional[str] = ..., started: _Optional[int] = ..., finished: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., activations: _Optional[_Iterable[_Union[ActivationInspection, _Mapping]]] = ..., buckets: _Optional[_Iterable[_Union[BucketInspection, _Mapping]]] = ..., gates: _Optional[_Iterable[_Union[GateInspection, _Mapping]]] = ..., activations_left_out: _Optional[int] = ..., buckets_left_out: _Optional[int] = ...) -> None: ...

class ActivationInspection(_message.Message):
    __slots__ = ("activation_id", "node", "input_group", "origin_path", "attempt", "phase", "yields", "undelivered", "bucket_ids")
    ACTIVATION_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INPUT_GROUP_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_PATH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    YIELDS_FIELD_NUMBER: _ClassVar[int]
    UNDELIVERED_FIELD_NUMBER: _ClassVar[int]
    BUCKET_IDS_FIELD_NUMBER: _ClassVar[int]
    activation_id: int
    node: str
    input_group: str
    origin_path: _containers.RepeatedScalarFieldContainer[int]
    attempt: int
    phase: ActivationPhase
    yields: int
    undelivered: int
    bucket_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, activation_id: _Optional[int] = ..., node: _Optional[str] = ..., input_group: _Optional[str] = ..., origin_path: _Optional[_Iterable[int]] = ..., attempt: _Optional[int] = ..., phase: _Optional[_Union[ActivationPhase, str]] = ..., yields: _Optional[int] = ..., undelivered: _Optional[int] = ..., bucket_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class BucketInspection(_message.Message):
    __slots__ = ("bucket_id", "node", "input_group", "kind", "anchor_path", "contributions", "wanted", "size_bytes", "holders", "missing")
    class ContributionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class WantedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INPUT_GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_PATH_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    bucket_id: int
    node: str
    input_group: str
    kind: _workflow_service_pb2.JoinKind
    anchor_path: _containers.RepeatedScalarFieldContainer[int]
    contributions: _containers.ScalarMap[str, int]
    wanted: _containers.ScalarMap[str, int]
    size_bytes: int
    holders: _containers.RepeatedScalarFieldContainer[str]
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bucket_id: _Optional[int] = ..., node: _Optional[str] = ..., input_group: _Optional[str] = ..., kind: _Optional[_Union[_workflow_service_pb2.JoinKind, str]] = ..., anchor_path: _Optional[_Iterable[int]] = ..., contributions: _Optional[_Mapping[str, int]] = ..., wanted: _Optional[_Mapping[str, int]] = ..., size_bytes: _Optional[int] = ..., holders: _Optional[_Iterable[str]] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class GateInspection(_message.Message):
    __slots__ = ("node", "running", "waiting")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    node: str
    running: int
    waiting: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[_Iterable[int]] = ...) -> None: ...
