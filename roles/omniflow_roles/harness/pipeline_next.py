"""The outlet of every stage but the last: each yield starts an activation on the replica of the next node.

    start = what all starts of the run share + activation {id} + pipeline {path} + facet

Ids of activations that are started so, unique in their call as those of the core are, which has none this large:

    bits 63..56 stage | 55..32 activation of the first node | 31..0 counted in the process that starts them
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import cast

from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2
from omniflow.interface import Outputs
from omniflow.large_values import ValueStore, encode, remote_of
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import Value
from omniflow.wire import sized, varint
from omniflow_core.errors import ErrorInfo, OmniFlowError, Reason
from omniflow_roles.harness.inputs import StartActivation
from omniflow_roles.harness.peers import PeerLink, PeerLinks
from omniflow_roles.harness.pipeline import Item, PipelineRun, StageSink
from omniflow_roles.harness.sink import MAX_TEXT_BYTES, check_size

# Fields of the contract, each with its wire type.
_FIRST = (
    b"\x0a"  # 1, length-delimited: StartActivation.activation, Facet.input_group, a map's key, FieldValues.values, …
)
_SECOND = b"\x12"  # 2, length-delimited: StartActivation.facets, Facet.fields, a map's value, FieldValue.origin_path
_PIPELINE = b"\x92\x01"  # StartActivation.pipeline = 18, length-delimited
_PATH = b"\x22"  # Pipeline.origin_path = 4, packed
_ACTIVATION_ID = b"\x20"  # ActivationRef.activation_id = 4, varint


class NextStage:
    """Implements `Outlet`."""

    is_lasting = False

    def __init__(
        self, start: StartActivation, run: PipelineRun, peers: PeerLinks, store: ValueStore, numbers: Iterator[int]
    ) -> None:
        """`start` is any of the stage; `numbers` counts the activations that this process has started."""
        pipeline = start.pipeline
        stage = pipeline.stages[0]
        self.node = stage.node
        self._run = run
        self._peers = peers
        self._store = store
        self._numbers = numbers
        self._call_id = start.activation.call_id
        self._own_node = start.activation.node
        self._group_name = stage.input_group
        self._group = sized(_FIRST, stage.input_group.encode())
        self._sources = _sources(stage.routes)
        self._inputs = [(sized(_FIRST, name.encode()), sources) for name, sources in self._sources.items()]
        """The key of each input in a facet, and the outputs that give to it."""
        self._outputs = tuple(dict.fromkeys(route.output_field for route in stage.routes))
        self._required = tuple(sorted(stage.required_fields))
        self._is_never_whole = not self._sources.keys() >= {*stage.required_fields}
        self._fails_when_partial = stage.fails_when_partial
        self._replica = replica_pb2.Replica()
        self._replica.CopyFrom(stage.replica)  # else the start with its inputs would live as long as the run
        self._window = max(1, stage.activation_window)
        self._first_id = (pipeline.stage + 1 & 0xFF) << 56 | (pipeline.entry_activation_id & 0xFFFFFF) << 32
        self._shared = _shared_of(start).SerializeToString()
        self._alive = 0
        self._link: PeerLink | None = None

    @property
    def has_room(self) -> bool:
        return self._alive < self._window

    def item(self, sink: StageSink, ordinal: int, outputs: Outputs) -> Item | None:
        """Raises IMPOSSIBLE_INPUT for a yield with some of the required inputs, and what `encode` and `check_size` raise."""
        given = [name for name in self._outputs if name in outputs]
        if not given:
            return None
        path = sink.path + varint(ordinal)
        if len(given) < len(self._outputs) or self._is_never_whole:
            missing = [name for name in self._required if not any(o in outputs for o in self._sources.get(name, ()))]
            if missing and self._fails_when_partial:
                raise self._partial(missing, path)
            if missing:
                return None
        refs: list[tensor_pb2.RemoteRef] = []
        try:
            fields = [(name, self._encoded(outputs[name], refs)) for name in given]
            body = sized(_PIPELINE, sized(_PATH, path)) + sized(_SECOND, self._facet(dict(fields), path))
            if len(body) > MAX_TEXT_BYTES:
                check_size(self._own_node, fields, len(body))
        except Exception:
            self._release(refs)
            raise
        return Item(sink, ordinal, body, sum(ref.size_bytes for ref in refs) if refs else 0, refs)

    def send(self, item: Item) -> None:
        link = self._link
        if link is None or link.is_over:
            link = self._link = self._peers.link_to(self._replica)
        activation_id = self._first_id | next(self._numbers) & 0xFFFFFFFF
        self._alive += 1
        child = _Child(self, item, link)
        item.sink.started(child)
        ref = sized(_FIRST, _ACTIVATION_ID + varint(activation_id))
        child.handle = link.start(b"".join((self._shared, ref, item.body)), child)
        item.body = b""  # the link keeps it for as long as it must

    def drop(self, item: Item) -> None:
        self._release(item.refs)

    def close(self) -> None:
        """What it has started belongs to the activations that it has started it for."""

    def ended(self, item: Item) -> None:
        """The activation that the item has started is over, or nobody hears of it any more."""
        self._alive -= 1
        self._release(item.refs)
        self._run.pump()

    def _encoded(self, value: Value, refs: list[tensor_pb2.RemoteRef]) -> value_pb2.Value:
        """The message of a value; a payload that no message takes along is kept here, and its reference added."""
        message, payload_bytes = encode(value, self._call_id, self._store)
        if payload_bytes:
            refs.append(cast("tensor_pb2.RemoteRef", remote_of(message)))
        return message

    def _facet(self, values: Mapping[str, value_pb2.Value], path: bytes) -> bytes:
        """The inputs that outputs become, all with the path of their yield."""
        origin = sized(_SECOND, path)
        facet = self._group
        for key, sources in self._inputs:
            given = [
                sized(_FIRST, sized(_FIRST, values[name].SerializeToString()) + origin)
                for name in sources
                if name in values
            ]
            if given:
                facet += sized(_SECOND, key + sized(_SECOND, b"".join(given)))
        return facet

    def _release(self, refs: Collection[tensor_pb2.RemoteRef]) -> None:
        for ref in refs:
            self._store.release(ref)

    def _partial(self, missing: Collection[str], path: bytes) -> OmniFlowError:
        """As the core says it."""
        ordinals = messages.FieldValue.FromString(sized(_SECOND, path)).origin_path
        return OmniFlowError(
            Reason.IMPOSSIBLE_INPUT,
            f"Input group {self.node}.{self._group_name} got some of its fields but can never get {', '.join(missing)}.",
            metadata={
                "node": self.node,
                "group": self._group_name,
                "missing": ",".join(missing),
                "path": ".".join(map(str, ordinals)),
            },
        )


class _Child:
    """Implements `PeerActivation` and `PipelineChild`."""

    __slots__ = ("_is_accepted", "_item", "_link", "_next", "handle")

    def __init__(self, following: NextStage, item: Item, link: PeerLink) -> None:
        self.handle = 0
        self._next = following
        self._item = item
        self._link = link
        self._is_accepted = False

    def accepted(self) -> None:
        if not self._is_accepted:
            self._is_accepted = True
            self._item.sink.delivered(self._item.ordinal)

    def progress(self, message: graph_event_pb2.Progress) -> None:
        self._item.sink.progress(message.completed, message.total, message.message)

    def completed(self, message: messages.ActivationCompleted) -> None:
        self.accepted()
        self._next.ended(self._item)
        self._item.sink.child_completed(self, message)

    def failed(self, error: ErrorInfo) -> None:
        named = dataclasses.replace(error, metadata={"node": self._next.node, **error.metadata})
        self._item.sink.child_failed(self, named)
        self._next.ended(self._item)

    def lost(self, replica: str) -> None:
        node = self._next.node
        message = f"Node {node!r} lost its replica {replica}."
        self.failed(ErrorInfo(reason=Reason.REPLICA_LOST, message=message, metadata={"node": node, "replica": replica}))

    def cancel(self, reason: str) -> None:
        self._link.cancel(self.handle, reason)
        self._next.ended(self._item)


def _sources(routes: Iterable[messages.PipelineRoute]) -> dict[str, list[str]]:
    """Output fields by the input that they give to, in order."""
    found: dict[str, list[str]] = {}
    for route in routes:
        found.setdefault(route.input_field, []).append(route.output_field)
    return found


def _shared_of(start: StartActivation) -> StartActivation:
    """What the starts of the next stage have in common."""
    above, stage = start.pipeline, start.pipeline.stages[0]
    shared = StartActivation(
        activation=messages.ActivationRef(
            call_id=start.activation.call_id, node=stage.node, interface=stage.interface, attempt=1
        ),
        tenant=start.tenant,
        session=start.session,
        session_fence=start.session_fence,
        traceparent=start.traceparent,
        yield_window=stage.yield_window,
        byte_credit=start.byte_credit,
        priority=start.priority,
        pipeline=messages.Pipeline(
            stages=above.stages[1:],
            exit=above.exit,
            entry_activation_id=above.entry_activation_id,
            stage=above.stage + 1,
        ),
    )
    if start.HasField("deadline"):
        shared.deadline.CopyFrom(start.deadline)
    if start.HasField("sampling"):
        shared.sampling.CopyFrom(start.sampling)
    return shared
