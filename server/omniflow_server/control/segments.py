"""Segments that replicas iterate by themselves: what they are told of one, and what they report of it.

A replica numbers the activations that it starts inside. The core has registered the same ones for the same reasons
(`HostedSegment`); here the numbers are matched, so that from then on its events are those of any activation. Calls and
acknowledgements find it under the core's id, at an `ActivationHost` that speaks of it by the replica's.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from omniflow.codec.workflow import edge_to_proto, node_to_proto
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as pb
from omniflow_core.control.events import ActivationFailed
from omniflow_core.control.work_items import HostedSegment
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.plan import NodePlan, SegmentPlan
from omniflow_server.control import results

if TYPE_CHECKING:
    from omniflow_server.control.call import Call


class SegmentMessages:
    """The messages of segments, made once each. `yield_window` is that of nodes without one of their own."""

    def __init__(self, *, is_enabled: bool, yield_window: int) -> None:
        self._is_enabled = is_enabled
        self._yield_window = yield_window
        self._made: WeakKeyDictionary[SegmentPlan, pb.Segment] = WeakKeyDictionary()

    def for_start(self, node: NodePlan, replica: replica_pb2.Replica) -> pb.Segment | None:
        """What a start of the node on the replica takes along; None when it is to be run alone."""
        segment = node.segment
        if segment is None or not self._is_enabled or node.name != segment.entry or not replica.runs_segments:
            return None
        if any(inner.interface not in replica.interfaces for inner in segment.nodes):
            return None
        message = self._made.get(segment)
        if message is None:
            message = self._made[segment] = self._make(segment)
        return message

    def _make(self, segment: SegmentPlan) -> pb.Segment:
        message = pb.Segment(
            nodes=map(node_to_proto, segment.nodes),
            edges=map(edge_to_proto, segment.edges),
            exits=[pb.SegmentExit(node=node, fields=fields) for node, fields in segment.exits.items()],
        )
        for node in message.nodes:
            # The replica and the core must count against the same window, or each could wait for the other.
            node.yield_window = node.yield_window or self._yield_window
        message.segment_id = hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest()[:32]
        return message


class SegmentHost(Protocol):
    """The link that a segment runs behind."""

    def ack_inner(self, handle: int, inner_id: int, next_ordinal: int) -> None: ...

    def cancel_handle(self, handle: int, reason: str) -> None: ...


class HostedRun:
    """One run of a segment on a replica, from the acceptance of its entry to the end of its handle."""

    def __init__(self, call: Call, entry_id: int, hosted: HostedSegment, host: SegmentHost, handle: int) -> None:
        self._call = call
        self._hosted = hosted
        self._host = host
        self._handle = handle
        self._ids = {0: entry_id}
        """The core's id of each activation, by the replica's; ended ones too, as they may still be named as parents."""
        self._open = {entry_id: hosted.plan.entry}
        """Node of each activation that has not ended."""
        self._is_cancelled = False
        call.running[entry_id] = _InnerHost(self, 0)

    def take(self, event: pb.InnerEvent) -> ErrorInfo | None:
        """Hands on what happened inside. Returns what is wrong with it."""
        kind = event.WhichOneof("event")
        if kind == "started":
            return self._start(event.inner_activation_id, event.started)
        own_id = self._ids.get(event.inner_activation_id, 0)
        node = self._open.get(own_id)
        if node is None:
            return _broken(f"{kind} of the activation {event.inner_activation_id}, which does not run")
        if kind == "yield":
            self._call.handle(results.yielded(own_id, 1, getattr(event, "yield")))
        elif kind == "completed":
            self._end(own_id)
            self._call.handle(results.finished(own_id, 1, event.completed))
        elif kind == "failed":
            self._end(own_id)
            self._call.handle(ActivationFailed(own_id, results.error_of(event.failed, node)))
        return None

    def end(self, error: ErrorInfo | None) -> None:
        """The handle has ended. Whatever is left inside has failed with it."""
        error = error or _broken("the segment ended before its activations")
        for own_id, node in list(self._open.items()):
            self._end(own_id)
            self._call.handle(ActivationFailed(own_id, results.named(error, node)))
        while left := self._hosted.forget_unreported():  # an end above may have started more
            for own_id in left:
                self._call.handle(ActivationFailed(own_id, error))

    def ack(self, inner_id: int, next_ordinal: int) -> None:
        self._host.ack_inner(self._handle, inner_id, next_ordinal)

    def cancel(self, reason: str) -> None:
        """Stops all of it, once."""
        if not self._is_cancelled:
            self._is_cancelled = True
            self._host.cancel_handle(self._handle, reason)

    def _start(self, inner_id: int, start: pb.InnerStart) -> ErrorInfo | None:
        parent = self._ids.get(start.parent_activation_id, 0)
        own_id = self._hosted.take(start.node, start.input_group, parent, start.parent_ordinal)
        if own_id is None:
            return None if self._call.has_ended else _broken(f"started {start.node!r}, which nothing has asked for")
        self._ids[inner_id] = own_id
        self._open[own_id] = start.node
        self._call.running[own_id] = _InnerHost(self, inner_id)
        return None

    def _end(self, own_id: int) -> None:
        del self._open[own_id]
        self._call.activation_ended(own_id)


class _InnerHost:
    """Where an activation inside a segment runs."""

    __slots__ = ("_inner_id", "_run")

    def __init__(self, run: HostedRun, inner_id: int) -> None:
        self._run = run
        self._inner_id = inner_id

    def ack(self, call_id: str, activation_id: int, next_ordinal: int) -> None:
        self._run.ack(self._inner_id, next_ordinal)

    def cancel(self, call_id: str, activation_id: int, reason: str) -> None:
        self._run.cancel(reason)


def _broken(what: str) -> ErrorInfo:
    return ErrorInfo(reason=Reason.PROTOCOL_VIOLATION, message=f"The replica broke the protocol of segments: {what}.")
