import datetime

from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.workflow.v1 import graph_spec_pb2 as _graph_spec_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOIN_KIND_UNSPECIFIED: _ClassVar[JoinKind]
    JOIN_KIND_SINGLE: _ClassVar[JoinKind]
    JOIN_KIND_PREFIX: _ClassVar[JoinKind]
    JOIN_KIND_COUNT: _ClassVar[JoinKind]
JOIN_KIND_UNSPECIFIED: JoinKind
JOIN_KIND_SINGLE: JoinKind
JOIN_KIND_PREFIX: JoinKind
JOIN_KIND_COUNT: JoinKind

class Diagnostic(_message.Message):
    __slots__ = ("reason", "field", "message", "fix", "node", "group")
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIX_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    reason: str
    field: str
    message: str
    fix: str
    node: str
    group: str
    def __init__(self, reason: _Optional[str] = ..., field: _Optional[str] = ..., message: _Optional[str] = ..., fix: _Optional[str] = ..., node: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ValidateGraphRequest(_message.Message):
    __slots__ = ("graph",)
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    graph: _graph_spec_pb2.GraphSpec
    def __init__(self, graph: _Optional[_Union[_graph_spec_pb2.GraphSpec, _Mapping]] = ...) -> None: ...

class ValidateGraphResponse(_message.Message):
    __slots__ = ("diagnostics",)
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    diagnostics: _containers.RepeatedCompositeFieldContainer[Diagnostic]
    def __init__(self, diagnostics: _Optional[_Iterable[_Union[Diagnostic, _Mapping]]] = ...) -> None: ...

class ApplyGraphRequest(_message.Message):
    __slots__ = ("graph", "validate_only", "canary_percent")
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    CANARY_PERCENT_FIELD_NUMBER: _ClassVar[int]
    graph: _graph_spec_pb2.GraphSpec
    validate_only: bool
    canary_percent: int
    def __init__(self, graph: _Optional[_Union[_graph_spec_pb2.GraphSpec, _Mapping]] = ..., validate_only: bool = ..., canary_percent: _Optional[int] = ...) -> None: ...

class ApplyGraphResponse(_message.Message):
    __slots__ = ("graph",)
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    graph: _graph_spec_pb2.GraphSpec
    def __init__(self, graph: _Optional[_Union[_graph_spec_pb2.GraphSpec, _Mapping]] = ...) -> None: ...

class GetGraphRequest(_message.Message):
    __slots__ = ("name", "revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    revision: str
    def __init__(self, name: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class GetGraphResponse(_message.Message):
    __slots__ = ("graph",)
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    graph: _graph_spec_pb2.GraphSpec
    def __init__(self, graph: _Optional[_Union[_graph_spec_pb2.GraphSpec, _Mapping]] = ...) -> None: ...

class ListGraphsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListGraphsResponse(_message.Message):
    __slots__ = ("graphs", "next_page_token")
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    graphs: _containers.RepeatedCompositeFieldContainer[_graph_spec_pb2.GraphSpec]
    next_page_token: str
    def __init__(self, graphs: _Optional[_Iterable[_Union[_graph_spec_pb2.GraphSpec, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ExplainGraphRequest(_message.Message):
    __slots__ = ("name", "graph")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    name: str
    graph: _graph_spec_pb2.GraphSpec
    def __init__(self, name: _Optional[str] = ..., graph: _Optional[_Union[_graph_spec_pb2.GraphSpec, _Mapping]] = ...) -> None: ...

class RoutePlan(_message.Message):
    __slots__ = ("nodes", "fields")
    NODES_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    fields: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, nodes: _Optional[_Iterable[str]] = ..., fields: _Optional[_Iterable[str]] = ...) -> None: ...

class GroupPlan(_message.Message):
    __slots__ = ("node", "group", "kind", "anchor_node", "routes")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_NODE_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    node: str
    group: str
    kind: JoinKind
    anchor_node: str
    routes: _containers.RepeatedCompositeFieldContainer[RoutePlan]
    def __init__(self, node: _Optional[str] = ..., group: _Optional[str] = ..., kind: _Optional[_Union[JoinKind, str]] = ..., anchor_node: _Optional[str] = ..., routes: _Optional[_Iterable[_Union[RoutePlan, _Mapping]]] = ...) -> None: ...

class SegmentPlan(_message.Message):
    __slots__ = ("segment_id", "role", "nodes")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    segment_id: str
    role: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, segment_id: _Optional[str] = ..., role: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class ExplainGraphResponse(_message.Message):
    __slots__ = ("groups", "edge_count", "segments", "text", "svg")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    EDGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SVG_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupPlan]
    edge_count: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentPlan]
    text: str
    svg: str
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupPlan, _Mapping]]] = ..., edge_count: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentPlan, _Mapping]]] = ..., text: _Optional[str] = ..., svg: _Optional[str] = ...) -> None: ...

class TrafficShare(_message.Message):
    __slots__ = ("revision", "percent")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    revision: str
    percent: int
    def __init__(self, revision: _Optional[str] = ..., percent: _Optional[int] = ...) -> None: ...

class ListGraphRevisionsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GraphRevision(_message.Message):
    __slots__ = ("revision", "create_time", "percent")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    revision: str
    create_time: _timestamp_pb2.Timestamp
    percent: int
    def __init__(self, revision: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., percent: _Optional[int] = ...) -> None: ...

class ListGraphRevisionsResponse(_message.Message):
    __slots__ = ("revisions", "etag")
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    revisions: _containers.RepeatedCompositeFieldContainer[GraphRevision]
    etag: str
    def __init__(self, revisions: _Optional[_Iterable[_Union[GraphRevision, _Mapping]]] = ..., etag: _Optional[str] = ...) -> None: ...

class SetGraphTrafficRequest(_message.Message):
    __slots__ = ("name", "shares", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    shares: _containers.RepeatedCompositeFieldContainer[TrafficShare]
    etag: str
    def __init__(self, name: _Optional[str] = ..., shares: _Optional[_Iterable[_Union[TrafficShare, _Mapping]]] = ..., etag: _Optional[str] = ...) -> None: ...

class SetGraphTrafficResponse(_message.Message):
    __slots__ = ("revisions", "etag")
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    revisions: _containers.RepeatedCompositeFieldContainer[GraphRevision]
    etag: str
    def __init__(self, revisions: _Optional[_Iterable[_Union[GraphRevision, _Mapping]]] = ..., etag: _Optional[str] = ...) -> None: ...
