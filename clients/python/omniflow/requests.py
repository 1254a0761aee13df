"""From keyword arguments to the request of a call, and the pieces of its large inputs.

    prepare_call("assistant", audio=Audio(data, "audio/wav"), session="s1")

A payload over 64 KiB is announced in the request and uploaded in pieces of 256 KiB, so the default message limits do
for inputs of any size. Nothing here does I/O; payloads are sliced when they are sent, not copied before.
"""

from __future__ import annotations

import functools
import inspect
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from omniflow.codec.common import payload_of, split_value
from omniflow.codec.graph import sampling_to_proto
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_service_pb2, sampling_pb2
from omniflow.interface import Sampling
from omniflow.values import Buffer, Json, Tensor, Value, type_of
from omniflow_core.errors import OmniFlowError, Violation

INLINE_LIMIT_BYTES = 65_536
"""Larger payloads are uploaded in pieces."""
INLINE_TOTAL_BYTES = 1024 * 1024
"""Inline payloads of one request together; what comes on top is uploaded too, as receivers take 4 MiB a message."""
CHUNK_BYTES = 262_144

InputValue = Value | Mapping[str, Any] | Sequence[Any] | int | float | bool | None
"""What may be given as an input: a value of `omniflow.values`, JSON (a dict, list or number), or None for absent.

A numpy array is taken for a tensor; a JSON string or null needs `Json(...)`, since a `str` is text and None is absent.
"""

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Self = TypeVar("_Self")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A payload that was announced as `transfer_id`."""

    transfer_id: int
    data: memoryview

    def chunks(self) -> Iterator[tensor_pb2.PayloadChunk]:
        """The payload's pieces, made one at a time."""
        for offset in range(0, len(self.data), CHUNK_BYTES):
            yield tensor_pb2.PayloadChunk(
                transfer_id=self.transfer_id,
                offset_bytes=offset,
                data=bytes(self.data[offset : offset + CHUNK_BYTES]),
                last=offset + CHUNK_BYTES >= len(self.data),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A call that can be started any number of times: its request id makes a repeat join the first."""

    graph: str
    """Resource name."""
    spec: graph_service_pb2.CallSpec
    uploads: tuple[Upload, ...]
    is_chunked: bool
    """Large outputs are given in pieces."""
    resume_timeout_s: float | None
    """None: the client's, or `timeout_s` when that is less."""
    timeout_s: float | None
    """Of the call itself."""

    @property
    def request_id(self) -> str:
        return self.spec.request_id

    @property
    def session(self) -> str:
        return self.spec.session

    def request(self) -> graph_service_pb2.StreamCallRequest:
        """The request of StreamCall; only for a call without uploads."""
        return graph_service_pb2.StreamCallRequest(graph=self.graph, call=self.spec)

    def messages(self, call_key: str) -> Iterator[graph_service_pb2.ConverseMessage]:
        """The start and the uploads as messages of a conversation."""
        start = graph_service_pb2.StartCall(graph=self.graph, call=self.spec)
        yield graph_service_pb2.ConverseMessage(call_key=call_key, start=start)
        for upload in self.uploads:
            for chunk in upload.chunks():
                yield graph_service_pb2.ConverseMessage(call_key=call_key, chunk=chunk)


def prepare_call(
    graph: str,
    /,
    *,
    inputs: Mapping[str, InputValue] | None = None,
    session: str | None = None,
    request_id: str | None = None,
    sampling: Sampling | None = None,
    open_inputs: Sequence[str] = (),
    key: str | None = None,
    timeout_s: float | None = None,
    priority: int = 0,
    supersede: bool = False,
    history_step: int | None = None,
    heartbeat_interval_s: float | None = None,
    detach_grace_s: float | None = None,
    chunks: bool = False,
    resume_timeout_s: float | None = None,
    **fields: InputValue,
) -> PreparedCall:
    """A call of `graph` ("assistant" or "graphs/assistant").

    The graph's inputs are keyword arguments; `inputs` takes those whose names are options here or no identifiers.

    session: name of the session; its calls run first in, first out.
    request_id: a repeat with the same request joins the first call; drawn (UUID4) when None.
    sampling: for the nodes that sample.
    open_inputs: streaming inputs that take more values while the call runs; only in a conversation.
    key: comes back with every event of the call; drawn in a conversation when None.
    timeout_s: the call itself ends with DEADLINE_EXCEEDED after this time.
    priority: -100 to 100; higher is scheduled first.
    supersede: cancel earlier calls of the session first.
    history_step: cap of the kept history before the new turn, in tokens.
    heartbeat_interval_s: 1 to 3600, 15 by default.
    detach_grace_s: how long the call runs on without a client, 0 to 300, 10 by default.
    chunks: give large outputs as `OutputPiece`s when they arrive instead of one `Output` at the end.
    resume_timeout_s: how long a lost connection is retried since the last sign of life; by default the client's, and
        no longer than `timeout_s`.

    Raises OmniFlowError naming the input that cannot be sent, TypeError for one that is no value.
    """
    spec = graph_service_pb2.CallSpec(
        request_id=request_id or str(uuid.uuid4()),
        call_key=key or "",
        session=session_name(session) if session else "",
        open_inputs=open_inputs,
        history_step=history_step,
        supersede=supersede,
        priority=priority,
    )
    if sampling is not None:
        spec.sampling.CopyFrom(_sampling(sampling))
    if heartbeat_interval_s is not None:
        spec.heartbeat_interval.FromNanoseconds(round(heartbeat_interval_s * 1e9))
    if detach_grace_s is not None:
        spec.detach_grace.FromNanoseconds(round(detach_grace_s * 1e9))
    if timeout_s is not None:
        spec.deadline.FromNanoseconds(time.time_ns() + round(timeout_s * 1e9))
    return PreparedCall(
        graph=graph_name(graph),
        spec=spec,
        uploads=_fill_inputs(spec, _merged(inputs or {}, fields)),
        is_chunked=chunks,
        resume_timeout_s=resume_timeout_s,
        timeout_s=timeout_s,
    )


def _sampling(sampling: Sampling) -> sampling_pb2.SamplingParameters:
    try:
        return sampling_to_proto(sampling)
    except OmniFlowError as error:
        error.is_stated = False
        raise


def graph_name(graph: str) -> str:
    """Resource name of a graph."""
    return _resource("graphs", graph)


def session_name(session: str) -> str:
    """Resource name of a session."""
    return _resource("sessions", session)


def _resource(collection: str, name: str) -> str:
    return name if name.startswith(f"{collection}/") else f"{collection}/{name}"


def _merged(inputs: Mapping[str, InputValue], fields: Mapping[str, InputValue]) -> Mapping[str, InputValue]:
    twice = inputs.keys() & fields.keys()
    if twice:
        raise TypeError(f"given twice, in inputs= and as keyword arguments: {', '.join(sorted(twice))}")
    return {**inputs, **fields}


def _fill_inputs(spec: graph_service_pb2.CallSpec, inputs: Mapping[str, InputValue]) -> tuple[Upload, ...]:
    uploads: list[Upload] = []
    inline_bytes = 0
    for name, given in inputs.items():
        if given is None:
            continue
        message, upload = encode_input(given, f"inputs[{name}]", len(uploads) + 1, INLINE_TOTAL_BYTES - inline_bytes)
        inline_bytes += message.ByteSize()
        if upload is not None:
            uploads.append(upload)
        spec.inputs[name].CopyFrom(message)
    return tuple(uploads)


def encode_input(
    given: InputValue, path: str, transfer_id: int, room_bytes: int = INLINE_LIMIT_BYTES
) -> tuple[value_pb2.Value, Upload | None]:
    """The message of an input, and its upload when it is over the inline limit or over `room_bytes`.

    `path` is the field that errors name.
    """
    try:
        message, data = split_value(as_value(given))
    except OmniFlowError as error:
        raise _under(path, error) from None
    except TypeError as error:
        raise TypeError(f"{path}: {error}") from None
    if data is None:
        return message, None
    payload = cast("tensor_pb2.Payload", payload_of(message))
    view = _flat(data)
    if len(view) <= min(INLINE_LIMIT_BYTES, room_bytes):
        payload.inline = bytes(view)
        return message, None
    payload.chunked.transfer_id = transfer_id
    payload.chunked.total_bytes = len(view)
    return message, Upload(transfer_id=transfer_id, data=view)


def as_value(given: InputValue) -> Value:
    """The field value of an input. Raises TypeError for what is none."""
    if isinstance(given, Mapping | list | tuple | int | float):
        return Json(given)
    if hasattr(given, "__array_interface__"):
        return Tensor.from_numpy(cast("Any", given))
    type_of(given)
    return cast("Value", given)


def _flat(data: Buffer) -> memoryview:
    view = memoryview(data)
    return view.cast("B") if view.c_contiguous else memoryview(bytes(view))


def _under(path: str, error: OmniFlowError) -> OmniFlowError:
    """The same error with its fields below `path`."""
    return OmniFlowError(
        error.reason,
        f"{path}.{error.message}",
        violations=[Violation(field=f"{path}.{v.field}", description=v.description) for v in error.violations],
        metadata=error.info.metadata,
        is_stated=False,
    )


def takes_call(
    prepare: Callable[_P, PreparedCall],
) -> Callable[[Callable[[_Self, PreparedCall], _R]], Callable[Concatenate[_Self, _P], _R]]:
    """Makes a method of a `PreparedCall` take the arguments of `prepare` instead: the signature is written once."""

    def decorate(method: Callable[[_Self, PreparedCall], _R]) -> Callable[Concatenate[_Self, _P], _R]:
        @functools.wraps(method)
        def prepared(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            return method(self, prepare(*args, **kwargs))

        own = inspect.signature(method)
        slf, *_ = own.parameters.values()
        parameters = [slf.replace(kind=slf.POSITIONAL_ONLY), *inspect.signature(prepare).parameters.values()]
        prepared.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return prepared

    return decorate
