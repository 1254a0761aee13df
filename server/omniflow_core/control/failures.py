"""Errors that end a call, as the core finds them."""

from __future__ import annotations

from omniflow_core.control.buckets import Bucket
from omniflow_core.control.counts import AmbiguousCompanionError, CountConflictError, Unmet
from omniflow_core.errors import ErrorInfo, Reason
from omniflow_core.graph.routing import Delivery, NodePlan


class CallFailure(Exception):  # noqa: N818 - it is control flow inside one step, never seen outside
    """Ends the call in the middle of a step."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)
        self.error = error


def partial_yield(delivery: Delivery, missing: frozenset[str], path: tuple[int, ...]) -> ErrorInfo:
    """A single source gave some but not all required fields."""
    return _impossible(delivery.node.name, delivery.group, sorted(missing), path)


def impossible_bucket(bucket: Bucket) -> ErrorInfo:
    """A bucket closed with some but not all required fields."""
    return _impossible(bucket.join.node.name, bucket.join.group, bucket.missing, bucket.anchor.ordinals())


def _impossible(node: str, group: str, missing: list[str], path: tuple[int, ...]) -> ErrorInfo:
    return ErrorInfo(
        reason=Reason.IMPOSSIBLE_INPUT,
        message=f"Input group {node}.{group} got some of its fields but can never get {', '.join(missing)}.",
        metadata={"node": node, "group": group, "missing": ",".join(missing), "path": ".".join(map(str, path))},
    )


def count_not_reached(node: str, unmet: Unmet) -> ErrorInfo:
    """The call's work is done, but a count join that something came for has not fired."""
    want = "unknown" if unmet.want is None else str(unmet.want)
    what = (
        f"{unmet.have} of {want} companions {unmet.group}.{unmet.field}"
        if unmet.group
        else f"{unmet.have} events of {unmet.field}, whose count never came,"
        if unmet.want is None
        else f"{unmet.have} of {want} events of {unmet.field}"
    )
    return ErrorInfo(
        reason=Reason.COUNT_NOT_REACHED,
        message=f"Count join {node!r} got {what} and nothing can come any more.",
        metadata={
            "node": node,
            "field": unmet.field,
            "have": str(unmet.have),
            "want": want,
            **({"group": unmet.group} if unmet.group else {}),
        },
    )


def count_conflict(node: str, conflict: CountConflictError) -> ErrorInfo:
    """Two different counts for one trigger."""
    return ErrorInfo(
        reason=Reason.COUNT_CONFLICT,
        message=f"Count join {node!r} was given {conflict.field} = {conflict.other} after {conflict.known}.",
        metadata={"node": node, "field": conflict.field},
    )


def invalid_count(node: str, field: str) -> ErrorInfo:
    """A count that is no count."""
    return ErrorInfo(
        reason=Reason.INVALID_FIELD,
        message=f"The count {field!r} of {node!r} is not a JSON integer of at least 0.",
        metadata={"node": node, "field": field},
    )


def ambiguous_companion(node: str, ambiguous: AmbiguousCompanionError) -> ErrorInfo:
    """Two companions at the same distance."""
    path = ".".join(map(str, ambiguous.anchor.ordinals()))
    return ErrorInfo(
        reason=Reason.AMBIGUOUS_COMPANION,
        message=f"Two values of {node}.{ambiguous.group}.{ambiguous.field} are equally near to the event {path}.",
        metadata={"node": node, "group": ambiguous.group, "field": ambiguous.field, "path": path},
    )


def store_full(node: str, group: str, limit_bytes: int) -> ErrorInfo:
    """What one join or chunk has to keep is more than the call may keep."""
    return ErrorInfo(
        reason=Reason.BUFFER_FULL,
        message=f"Input group {node}.{group} must keep more than {limit_bytes} bytes before it can run.",
        metadata={"node": node, "group": group},
    )


def output_full(output: str, limit_bytes: int) -> ErrorInfo:
    """Too much of an ordered output waits for an earlier sibling that itself waits for a place on a replica."""
    return ErrorInfo(
        reason=Reason.BUFFER_FULL,
        message=f"More than {limit_bytes} bytes of output {output!r} wait for an earlier sibling.",
        metadata={"output": output},
    )


def too_many_activations(node: NodePlan, limit: int) -> ErrorInfo:
    """The call started too much."""
    return _too_many(f"The call started more than {limit} activations.", node)


def loop_bound_exceeded(node: NodePlan) -> ErrorInfo:
    """A loop ran too often."""
    return _too_many(f"Node {node.name!r} ran more than loop_bound = {node.loop_bound} times.", node)


def _too_many(message: str, node: NodePlan) -> ErrorInfo:
    return ErrorInfo(reason=Reason.LOOP_BOUND_EXCEEDED, message=message, metadata={"node": node.name})


def broken_protocol(node: NodePlan, message: str) -> ErrorInfo:
    """An activation did what it must not do."""
    return ErrorInfo(reason=Reason.INTERNAL, message=f"Node {node.name!r} {message}.", metadata={"node": node.name})


def replay_diverged(node: NodePlan, ordinal: int) -> ErrorInfo:
    """A deterministic node gave something else the second time."""
    return ErrorInfo(
        reason=Reason.REPLAY_DIVERGED,
        message=f"Node {node.name!r} is declared deterministic, but yield {ordinal} is not that of an earlier attempt.",
        metadata={"node": node.name, "ordinal": str(ordinal)},
    )
