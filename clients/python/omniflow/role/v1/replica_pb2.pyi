from omniflow.common.v1 import rules_pb2 as _rules_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_STATE_UNSPECIFIED: _ClassVar[ReplicaState]
    REPLICA_STATE_STARTING: _ClassVar[ReplicaState]
    REPLICA_STATE_READY: _ClassVar[ReplicaState]
    REPLICA_STATE_DRAINING: _ClassVar[ReplicaState]
    REPLICA_STATE_LOST: _ClassVar[ReplicaState]
REPLICA_STATE_UNSPECIFIED: ReplicaState
REPLICA_STATE_STARTING: ReplicaState
REPLICA_STATE_READY: ReplicaState
REPLICA_STATE_DRAINING: ReplicaState
REPLICA_STATE_LOST: ReplicaState

class Replica(_message.Message):
    __slots__ = ("role", "replica_id", "incarnation_id", "endpoint", "memory_manager_id", "interfaces", "state", "protocol_revisions", "max_activations", "process_id", "node", "runs_segments", "lanes", "runs_pipelines")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MANAGER_ID_FIELD_NUMBER: _ClassVar[int]
    INTERFACES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RUNS_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    RUNS_PIPELINES_FIELD_NUMBER: _ClassVar[int]
    role: str
    replica_id: str
    incarnation_id: str
    endpoint: str
    memory_manager_id: str
    interfaces: _containers.RepeatedScalarFieldContainer[str]
    state: ReplicaState
    protocol_revisions: _containers.RepeatedScalarFieldContainer[int]
    max_activations: int
    process_id: int
    node: str
    runs_segments: bool
    lanes: _containers.RepeatedCompositeFieldContainer[LaneOffer]
    runs_pipelines: bool
    def __init__(self, role: _Optional[str] = ..., replica_id: _Optional[str] = ..., incarnation_id: _Optional[str] = ..., endpoint: _Optional[str] = ..., memory_manager_id: _Optional[str] = ..., interfaces: _Optional[_Iterable[str]] = ..., state: _Optional[_Union[ReplicaState, str]] = ..., protocol_revisions: _Optional[_Iterable[int]] = ..., max_activations: _Optional[int] = ..., process_id: _Optional[int] = ..., node: _Optional[str] = ..., runs_segments: bool = ..., lanes: _Optional[_Iterable[_Union[LaneOffer, _Mapping]]] = ..., runs_pipelines: bool = ...) -> None: ...

class ReplicaLoad(_message.Message):
    __slots__ = ("running", "waiting", "kv_utilization")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    running: int
    waiting: int
    kv_utilization: float
    def __init__(self, running: _Optional[int] = ..., waiting: _Optional[int] = ..., kv_utilization: _Optional[float] = ...) -> None: ...

class LaneOffer(_message.Message):
    __slots__ = ("kind", "address")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    address: str
    def __init__(self, kind: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...
