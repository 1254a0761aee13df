import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.role.v1 import replica_pb2 as _replica_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterReplicaRequest(_message.Message):
    __slots__ = ("replica",)
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    replica: _replica_pb2.Replica
    def __init__(self, replica: _Optional[_Union[_replica_pb2.Replica, _Mapping]] = ...) -> None: ...

class RegisterReplicaResponse(_message.Message):
    __slots__ = ("lease_id", "lease_ttl", "protocol_revision", "registries")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_REVISION_FIELD_NUMBER: _ClassVar[int]
    REGISTRIES_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    lease_ttl: _duration_pb2.Duration
    protocol_revision: int
    registries: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lease_id: _Optional[str] = ..., lease_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., protocol_revision: _Optional[int] = ..., registries: _Optional[_Iterable[str]] = ...) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("lease_id", "state", "load")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    state: _replica_pb2.ReplicaState
    load: _replica_pb2.ReplicaLoad
    def __init__(self, lease_id: _Optional[str] = ..., state: _Optional[_Union[_replica_pb2.ReplicaState, str]] = ..., load: _Optional[_Union[_replica_pb2.ReplicaLoad, _Mapping]] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("lease_expire_time", "drain", "reregister", "registries")
    LEASE_EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    REREGISTER_FIELD_NUMBER: _ClassVar[int]
    REGISTRIES_FIELD_NUMBER: _ClassVar[int]
    lease_expire_time: _timestamp_pb2.Timestamp
    drain: DrainDirective
    reregister: ReregisterDirective
    registries: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lease_expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., drain: _Optional[_Union[DrainDirective, _Mapping]] = ..., reregister: _Optional[_Union[ReregisterDirective, _Mapping]] = ..., registries: _Optional[_Iterable[str]] = ...) -> None: ...

class DrainDirective(_message.Message):
    __slots__ = ("grace",)
    GRACE_FIELD_NUMBER: _ClassVar[int]
    grace: _duration_pb2.Duration
    def __init__(self, grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReregisterDirective(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeregisterReplicaRequest(_message.Message):
    __slots__ = ("lease_id",)
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    def __init__(self, lease_id: _Optional[str] = ...) -> None: ...

class DeregisterReplicaResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainReplicaRequest(_message.Message):
    __slots__ = ("role", "replica_id", "grace")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    role: str
    replica_id: str
    grace: _duration_pb2.Duration
    def __init__(self, role: _Optional[str] = ..., replica_id: _Optional[str] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class DrainReplicaResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListReplicasRequest(_message.Message):
    __slots__ = ("role", "page_size", "page_token")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    role: str
    page_size: int
    page_token: str
    def __init__(self, role: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListReplicasResponse(_message.Message):
    __slots__ = ("replicas", "next_page_token")
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[_replica_pb2.Replica]
    next_page_token: str
    def __init__(self, replicas: _Optional[_Iterable[_Union[_replica_pb2.Replica, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchReplicasRequest(_message.Message):
    __slots__ = ("role", "after_revision")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    AFTER_REVISION_FIELD_NUMBER: _ClassVar[int]
    role: str
    after_revision: int
    def __init__(self, role: _Optional[str] = ..., after_revision: _Optional[int] = ...) -> None: ...

class WatchReplicasResponse(_message.Message):
    __slots__ = ("revision", "is_snapshot", "replicas")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    IS_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    is_snapshot: bool
    replicas: _containers.RepeatedCompositeFieldContainer[_replica_pb2.Replica]
    def __init__(self, revision: _Optional[int] = ..., is_snapshot: bool = ..., replicas: _Optional[_Iterable[_Union[_replica_pb2.Replica, _Mapping]]] = ...) -> None: ...

class ListControlPlanesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ControlPlane(_message.Message):
    __slots__ = ("control_id", "incarnation_id", "epoch", "endpoint", "is_draining", "protocol_revisions")
    CONTROL_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    control_id: str
    incarnation_id: str
    epoch: int
    endpoint: str
    is_draining: bool
    protocol_revisions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, control_id: _Optional[str] = ..., incarnation_id: _Optional[str] = ..., epoch: _Optional[int] = ..., endpoint: _Optional[str] = ..., is_draining: bool = ..., protocol_revisions: _Optional[_Iterable[int]] = ...) -> None: ...

class ListControlPlanesResponse(_message.Message):
    __slots__ = ("control_planes",)
    CONTROL_PLANES_FIELD_NUMBER: _ClassVar[int]
    control_planes: _containers.RepeatedCompositeFieldContainer[ControlPlane]
    def __init__(self, control_planes: _Optional[_Iterable[_Union[ControlPlane, _Mapping]]] = ...) -> None: ...
