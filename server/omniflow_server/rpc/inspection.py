"""Calls from the inside as messages of `omniflow.graph.v1`, and records of them as events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from google.protobuf import timestamp_pb2

from omniflow.codec.error import status_to_proto
from omniflow.graph.v1 import inspection_pb2 as pb
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.control.inspection import ActivationView, BucketView, CallInspection, GateView
from omniflow_core.control.replay import RecordedEvent
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.plan import JoinKind
from omniflow_server.control import recording
from omniflow_server.control.call import Call
from omniflow_server.control.recording import CallRecorder
from omniflow_server.rpc.workflow_service import JOIN_KINDS

LISTED = 4096
"""Activations, and buckets, that a snapshot lists; the contract names the number."""
LISTED_HOLDERS = 64
"""Holders that a bucket lists; one more says how many there are besides."""
RECORD_BYTES = 2 * 1024 * 1024
"""Entries that one answer carries: with the graph it must fit into a message of 4 MiB."""

_PHASES = {
    "held": pb.ACTIVATION_PHASE_HELD,
    "sent": pb.ACTIVATION_PHASE_SENT,
    "running": pb.ACTIVATION_PHASE_RUNNING,
}


def inspection_to_proto(call: Call, graph: graph_spec_pb2.GraphSpec, options: Mapping[str, int]) -> pb.CallInspection:
    """The call as it is now."""
    message = pb.CallInspection(
        call_id=call.call_id,
        graph=graph,
        create_time=timestamp(call.create_time_s),
        inspect_time=timestamp(time.time()),
        session=call.spec.session,
        options=pb.SchedulerOptions(**options),
        record=record_to_proto(call.recorder),
        snapshot=snapshot_to_proto(call.scheduler.inspect()),
    )
    if call.error is not None:
        message.status.CopyFrom(status_to_proto(call.error))
    return message


def record_to_proto(recorder: CallRecorder) -> pb.ControlRecord:
    """The record; what is too much for a message is left out at its end."""
    entries = recorder.entries[: RECORD_BYTES - RECORD_BYTES % recording.ENTRY_BYTES]
    cut = recording.count_events(recorder.entries[len(entries) :])
    return pb.ControlRecord(
        format=recording.FORMAT, entries=entries, texts=recorder.texts, events_left_out=recorder.left_out + cut
    )


def record_from_proto(record: pb.ControlRecord) -> Iterator[RecordedEvent]:
    """The events of a record. Raises OmniFlowError INVALID_FIELD for one that this version cannot read."""
    if record.format != recording.FORMAT:
        raise OmniFlowError(
            Reason.INVALID_FIELD,
            f"the record has format {record.format}, and this version reads {recording.FORMAT}; "
            "use the version of omniflow that wrote it",
        )
    try:
        yield from recording.events_of(record.entries, record.texts)
    except ValueError as problem:
        raise OmniFlowError(Reason.INVALID_FIELD, f"the record is damaged: {problem}") from None


def snapshot_to_proto(inspection: CallInspection) -> pb.SchedulerSnapshot:
    """What a scheduler holds."""
    return pb.SchedulerSnapshot(
        phase=inspection.phase,
        started=inspection.started,
        finished=inspection.finished,
        stored_bytes=inspection.stored_bytes,
        activations=map(_activation, inspection.activations[:LISTED]),
        buckets=map(_bucket, inspection.buckets[:LISTED]),
        gates=map(_gate, inspection.gates),
        activations_left_out=max(0, len(inspection.activations) - LISTED),
        buckets_left_out=max(0, len(inspection.buckets) - LISTED),
    )


def timestamp(unix_s: float) -> timestamp_pb2.Timestamp:
    """Seconds since 1970 as a message."""
    message = timestamp_pb2.Timestamp()
    message.FromNanoseconds(int(unix_s * 1e9))
    return message


def _activation(view: ActivationView) -> pb.ActivationInspection:
    return pb.ActivationInspection(
        activation_id=view.activation_id,
        node=view.node,
        input_group=view.group,
        origin_path=view.origin_path,
        attempt=view.attempt,
        phase=_PHASES[view.state],
        yields=view.yields,
        undelivered=view.undelivered,
        bucket_ids=view.buckets,
    )


def _bucket(view: BucketView) -> pb.BucketInspection:
    beside = len(view.holders) - LISTED_HOLDERS
    return pb.BucketInspection(
        bucket_id=view.bucket_id,
        node=view.node,
        input_group=view.group,
        kind=JOIN_KINDS[JoinKind(view.kind)],
        anchor_path=view.anchor_path,
        contributions=view.fields,
        wanted=view.wanted,
        size_bytes=view.size_bytes,
        holders=(*view.holders[:LISTED_HOLDERS], *((f"{beside} more",) if beside > 0 else ())),
        missing=view.missing,
    )


def _gate(view: GateView) -> pb.GateInspection:
    return pb.GateInspection(node=view.node, running=view.running, waiting=view.waiting)
