from omniflow.common.v1 import rules_pb2 as _rules_pb2
from omniflow.common.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_DEVICE: _ClassVar[Tier]
    TIER_HOST: _ClassVar[Tier]
    TIER_DISK: _ClassVar[Tier]

class RecomputePolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOMPUTE_POLICY_UNSPECIFIED: _ClassVar[RecomputePolicy]
    RECOMPUTE_POLICY_RECOMPUTABLE: _ClassVar[RecomputePolicy]
    RECOMPUTE_POLICY_PRESERVE_LAST: _ClassVar[RecomputePolicy]
TIER_UNSPECIFIED: Tier
TIER_DEVICE: Tier
TIER_HOST: Tier
TIER_DISK: Tier
RECOMPUTE_POLICY_UNSPECIFIED: RecomputePolicy
RECOMPUTE_POLICY_RECOMPUTABLE: RecomputePolicy
RECOMPUTE_POLICY_PRESERVE_LAST: RecomputePolicy

class Dimension(_message.Message):
    __slots__ = ("name", "labels")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ...) -> None: ...

class KvLayout(_message.Message):
    __slots__ = ("layout_id", "parameter", "outer", "slices", "page_tokens", "slice_spec", "cache_semantics_id", "axis_order", "strides_bytes")
    LAYOUT_ID_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    OUTER_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SLICE_SPEC_FIELD_NUMBER: _ClassVar[int]
    CACHE_SEMANTICS_ID_FIELD_NUMBER: _ClassVar[int]
    AXIS_ORDER_FIELD_NUMBER: _ClassVar[int]
    STRIDES_BYTES_FIELD_NUMBER: _ClassVar[int]
    layout_id: str
    parameter: str
    outer: _containers.RepeatedCompositeFieldContainer[Dimension]
    slices: _containers.RepeatedCompositeFieldContainer[Dimension]
    page_tokens: int
    slice_spec: _tensor_pb2.TensorSpec
    cache_semantics_id: str
    axis_order: _containers.RepeatedScalarFieldContainer[str]
    strides_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, layout_id: _Optional[str] = ..., parameter: _Optional[str] = ..., outer: _Optional[_Iterable[_Union[Dimension, _Mapping]]] = ..., slices: _Optional[_Iterable[_Union[Dimension, _Mapping]]] = ..., page_tokens: _Optional[int] = ..., slice_spec: _Optional[_Union[_tensor_pb2.TensorSpec, _Mapping]] = ..., cache_semantics_id: _Optional[str] = ..., axis_order: _Optional[_Iterable[str]] = ..., strides_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class LayoutGroup(_message.Message):
    __slots__ = ("layout_ids",)
    LAYOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    layout_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, layout_ids: _Optional[_Iterable[str]] = ...) -> None: ...
