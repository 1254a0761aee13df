"""StartActivation as bytes: what many starts have in common is serialized once, and values are spliced in.

A start is made for every activation, and a message around a message around a value would copy the value each time. What is
put together here is what protobuf would write; a test compares the two.

    StartActivation = ref (of the call, of the node, own numbers) + of the call + of the node + facets + what few have
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from omniflow.codec.common import payload_of
from omniflow.common.v1 import value_pb2
from omniflow.large_values import ValueStore, externalise
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow.wire import packed, sized, varint
from omniflow_core.control.commands import Facet, StartActivation
from omniflow_core.graph.plan import NodePlan
from omniflow_server.control.carried import CarriedValue

if TYPE_CHECKING:
    from omniflow_server.control.call import Call

# Fields of the contract, each with its wire type.
_FIRST = (
    b"\x0a"  # 1, length-delimited: StartActivation.activation, Facet.input_group, a map's key, FieldValues.values, …
)
_SECOND = b"\x12"  # 2, length-delimited: StartActivation.facets, Facet.fields, a map's value, FieldValue.origin_path
_ACTIVATION_ID = b"\x20"  # ActivationRef.activation_id = 4, varint
_ATTEMPT = b"\x28"  # ActivationRef.attempt = 5, varint
_CONTEXT_COUNT = b"\x10"  # FieldValues.context_count = 2, varint


class StartMessages:
    """Makes starts. `yield_window` is that of nodes without one of their own."""

    def __init__(self, *, yield_window: int, byte_credit: int, store: ValueStore) -> None:
        self._yield_window = yield_window
        self._byte_credit = byte_credit
        self._store = store
        self._nodes: WeakKeyDictionary[NodePlan, tuple[bytes, bytes]] = WeakKeyDictionary()
        """By node, for as long as somebody has its plan: its part of the reference, and of the start."""

    def serialized(
        self,
        call: Call,
        command: StartActivation,
        *,
        session_ordinal: int,
        segment: pb.Segment | None = None,
        pipeline: pb.Pipeline | None = None,
    ) -> bytes:
        """The message. Large payloads of values stay here, to be fetched. Raises BUFFER_FULL when there is no room."""
        of_ref, of_node = self._nodes.get(command.node) or self._parts_of(command.node)
        if call.start_head is None:
            call.start_head = self._head_of(call)
        in_ref, head = call.start_head
        ref = b"".join(
            (in_ref, of_ref, _ACTIVATION_ID, varint(command.activation_id), _ATTEMPT, varint(command.attempt))
        )
        parts = [sized(_FIRST, ref), head, of_node]
        for facet in command.facets:
            body = self._facet(call, facet, command.origin_path)
            parts.append(sized(_SECOND, body))
        if session_ordinal or segment is not None or pipeline is not None or command.delivered:
            rest = pb.StartActivation(session_ordinal=session_ordinal, segment=segment, pipeline=pipeline)
            parts.append(self._filled(rest, call, command).SerializeToString())
        return b"".join(parts)

    def _parts_of(self, node: NodePlan) -> tuple[bytes, bytes]:
        spec = node.spec
        assert spec is not None, "the call's source is not started"
        parts = self._nodes[node] = (
            pb.ActivationRef(node=spec.name, interface=spec.interface).SerializeToString(),
            pb.StartActivation(yield_window=spec.yield_window or self._yield_window).SerializeToString(),
        )
        return parts

    def _head_of(self, call: Call) -> tuple[bytes, bytes]:
        message = pb.StartActivation(
            tenant=call.tenant, session=call.session, byte_credit=self._byte_credit, priority=call.priority
        )
        if call.fence:
            message.session_fence = call.fence
        if call.spec.HasField("deadline"):
            message.deadline.CopyFrom(call.spec.deadline)
        if call.spec.HasField("sampling"):
            message.sampling.CopyFrom(call.spec.sampling)
        return pb.ActivationRef(call_id=call.call_id).SerializeToString(), message.SerializeToString()

    def _facet(self, call: Call, facet: Facet, path: tuple[int, ...]) -> bytes:
        group = facet.group.encode()
        parts = [sized(_FIRST, group)]
        own = _packed(path)
        for name, values in facet.fields.items():
            field: list[bytes] = []
            for index, value in enumerate(values):
                assert isinstance(value, CarriedValue)
                content = self._portable(value.message, call).SerializeToString()
                origin = own if facet.paths is None else _packed(facet.paths[name][index])
                field.append(sized(_FIRST, sized(_FIRST, content) + origin))
            if name in facet.context:
                field += (_CONTEXT_COUNT, varint(facet.context[name]))
            parts.append(sized(_SECOND, sized(_FIRST, name.encode()) + sized(_SECOND, b"".join(field))))
        return b"".join(parts)

    def _filled(self, message: pb.StartActivation, call: Call, command: StartActivation) -> pb.StartActivation:
        for ordinal, fields in enumerate(command.delivered):
            delivered = message.delivered_yields.add(ordinal=ordinal)
            for name, value in fields.items():
                assert isinstance(value, CarriedValue)
                delivered.fields[name].CopyFrom(self._portable(value.message, call))
        return message

    def _portable(self, value: value_pb2.Value, call: Call) -> value_pb2.Value:
        """The value as it may travel to a role: large payloads stay here and are fetched."""
        return externalise(value, call.call_id, self._store) if payload_of(value) is not None else value


def _packed(path: tuple[int, ...]) -> bytes:
    """FieldValue.origin_path, left out when empty."""
    if not path:
        return b""
    return sized(_SECOND, packed(path))
