"""A call as its record and its scheduler tell it together: its history, and what it holds or held."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.graph.v1 import inspection_pb2
from omniflow_core.control.commands import FailCall
from omniflow_core.control.replay import RecordedEvent, Step
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.plan import GraphPlan
from omniflow_server.cli import call_source
from omniflow_server.cli.call_history import CallHistory
from omniflow_server.cli.call_text import describe_event
from omniflow_server.rpc.inspection import record_from_proto, snapshot_to_proto

_ENDED = frozenset({pb.CALL_STATE_FINISHED, pb.CALL_STATE_FAILED})


def steps(call: inspection_pb2.CallInspection, plan: GraphPlan, *, until: int | None = None) -> Iterator[Step]:
    """The steps of a replay. Raises OmniFlowError when the scheduler breaks on an event."""
    run = call_source.replay_of(call, plan)
    for recorded in itertools.islice(record_from_proto(call.record), until):
        yield _step(run.step, recorded)


def _step(step: Callable[[RecordedEvent], Step], recorded: RecordedEvent) -> Step:
    try:
        return step(recorded)
    except Exception as problem:
        there = "it broke there too" if recorded.has_raised else "it did not when it was recorded"
        raise OmniFlowError(
            Reason.INTERNAL,
            f"the scheduler breaks on event {recorded.index} ({describe_event(recorded.event)}), and {there}: "
            f"{type(problem).__name__}: {problem}",
        ) from problem


def look(
    response: pb.InspectCallResponse, plan: GraphPlan, at: int | None
) -> tuple[CallHistory, inspection_pb2.SchedulerSnapshot, str]:
    """The call's history, with what its scheduler holds now, or held at the event that is asked for."""
    call = response.call
    history = CallHistory(plan=plan)
    for step in steps(call, plan, until=None if at is None else at + 1):
        history.add(step)
    if at is not None:
        if at >= history.events:
            raise OmniFlowError(
                Reason.INVALID_CONFIG, f"the record has {history.events} events, numbered from 0: there is no {at}"
            )
        return history, _state_after(call, plan, at), f"joins after event {at}"
    if response.state not in _ENDED:
        now_us = call.inspect_time.ToMicroseconds() - call.create_time.ToMicroseconds()
        is_complete = not call.record.events_left_out
        history.add_live(call.snapshot, now_us=now_us, is_complete=is_complete)
        return history, call.snapshot, "joins"
    if call.record.events_left_out:
        history.add_live(call.snapshot, now_us=history.now_us, is_complete=False)
    if isinstance(history.end, FailCall) and history.end_event > 0:
        before = history.end_event - 1
        return history, _state_after(call, plan, before), f"joins before the end, after event {before}"
    return history, call.snapshot, "joins"


def _state_after(call: inspection_pb2.CallInspection, plan: GraphPlan, event: int) -> inspection_pb2.SchedulerSnapshot:
    run = call_source.replay_of(call, plan)
    for recorded in itertools.islice(record_from_proto(call.record), event + 1):
        _step(run.step, recorded)
    return snapshot_to_proto(run.scheduler.inspect())
