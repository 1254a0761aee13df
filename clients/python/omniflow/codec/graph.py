"""Sampling parameters and events of calls as messages of `omniflow.graph.v1`, and back."""

from __future__ import annotations

from google.protobuf import timestamp_pb2

from omniflow.codec.common import value_from_proto
from omniflow.events import (
    Accepted,
    CallState,
    CallStatus,
    CallUsage,
    Finished,
    FinishReason,
    HistoryResult,
    Output,
    Progress,
    ToolCall,
)
from omniflow.graph.v1 import graph_event_pb2, graph_service_pb2, sampling_pb2
from omniflow.interface import Sampling
from omniflow_core.errors import OmniFlowError, invalid_field

_OPTIONAL_NUMBERS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "max_tokens",
    "top_logprobs",
    "completions",
)


def sampling_to_proto(sampling: Sampling) -> sampling_pb2.SamplingParameters:
    """The message; what is None stays absent. Raises INVALID_FIELD for a value that its field cannot hold."""
    if sampling.json_schema is not None and sampling.regex is not None:
        raise invalid_field("sampling.regex", "give json_schema or regex, not both")
    message = sampling_pb2.SamplingParameters()
    for name in (*_OPTIONAL_NUMBERS, "json_schema", "regex"):
        value = getattr(sampling, name)
        if value is not None:
            _set(message, name, value)
    try:
        message.logit_bias.update(sampling.logit_bias)
        message.stop.extend(sampling.stop)
        message.stop_token_ids.extend(sampling.stop_token_ids)
    except (TypeError, ValueError) as error:
        raise _unfit("sampling", error) from None
    return message


def _set(message: sampling_pb2.SamplingParameters, name: str, value: object) -> None:
    try:
        setattr(message, name, value)
    except (TypeError, ValueError) as error:
        raise _unfit(f"sampling.{name}", error) from None


def _unfit(path: str, error: Exception) -> OmniFlowError:
    return invalid_field(path, str(error).splitlines()[0])


def sampling_from_proto(message: sampling_pb2.SamplingParameters) -> Sampling:
    """The parameters; what is absent is None."""
    numbers = {name: getattr(message, name) for name in _OPTIONAL_NUMBERS if message.HasField(name)}
    constraint = message.WhichOneof("constraint")
    if constraint is not None:
        numbers[constraint] = getattr(message, constraint)
    return Sampling(
        **numbers,
        logit_bias=dict(message.logit_bias),
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
    )


# Events. What comes once per token reads as few attributes as it can.


def accepted_from_proto(event: graph_event_pb2.GraphEvent) -> Accepted:
    """The event that opens a call."""
    accepted = event.accepted
    return Accepted(
        accepted.call_id,
        accepted.is_replayed,
        accepted.resume_token,
        unix_s_from_proto(accepted.resume_expire_time),
        event.sequence,
    )


def output_from_proto(event: graph_event_pb2.GraphEvent) -> Output:
    """A value whose payload is inline. Raises PROTOCOL_VIOLATION for one whose bytes are elsewhere."""
    return Output(
        event.field,
        value_from_proto(event.value, path=event.field),
        event.node,
        tuple(event.origin_path),
        event.sequence,
    )


def progress_from_proto(event: graph_event_pb2.GraphEvent) -> Progress:
    """Progress of a node."""
    progress = event.progress
    return Progress(event.node, progress.completed, progress.total, progress.message, event.sequence)


def tool_call_from_proto(event: graph_event_pb2.GraphEvent) -> ToolCall:
    """A tool call."""
    call = event.tool_call
    return ToolCall(call.tool_call_id, call.name, call.arguments_json, event.node, event.sequence)


def finished_from_proto(event: graph_event_pb2.GraphEvent) -> Finished:
    """The end of a successful call; a reason that this version does not know is UNSPECIFIED."""
    finished = event.finished
    known = {reason.value for reason in FinishReason}
    return Finished(
        FinishReason(finished.reason if finished.reason in known else 0),
        CallUsage(
            finished.usage.input_tokens,
            finished.usage.cached_input_tokens,
            finished.usage.output_tokens,
            finished.usage.activations,
        ),
        tuple(
            HistoryResult(entry.field, entry.boundary_tokens, entry.prefill_tokens, entry.history_tokens)
            for entry in finished.histories
        ),
        event.sequence,
    )


def call_status_from_proto(message: graph_service_pb2.GetCallResponse) -> CallStatus:
    """State of a call; one that this version does not know is UNSPECIFIED."""
    known = {state.value for state in CallState}
    return CallStatus(
        state=CallState(message.state if message.state in known else 0),
        last_sequence=message.last_sequence,
        first_kept_sequence=message.first_kept_sequence,
        graph=message.graph,
        create_unix_s=unix_s_from_proto(message.create_time),
        is_attached=message.is_attached,
        active_activations=message.active_activations,
    )


def unix_s_from_proto(time: timestamp_pb2.Timestamp) -> float:
    """Seconds since 1970."""
    return time.seconds + time.nanos / 1e9
