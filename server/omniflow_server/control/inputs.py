"""Inputs of one call on their way to its scheduler: checked, assembled from chunks, and handed on in order.

A value whose payload is announced as chunks takes its place in line when it is announced and holds what comes after it;
its bytes go straight into a block of the value store, sized and charged before the first one arrives.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from omniflow.codec.common import crc32c, payload_of
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_service_pb2
from omniflow.large_values import Block, ValueStore, externalise
from omniflow.values import ElementType
from omniflow_core.errors import OmniFlowError, Reason, Violation, invalid_field
from omniflow_core.graph.findings import nearest
from omniflow_core.graph.plan import GraphPlan
from omniflow_core.graph.spec import FieldSpec

_TYPE_OF_KIND = {
    "text": "TEXT",
    "tokens": "TOKENS",
    "tensor": "TENSOR",
    "image": "IMAGE",
    "audio": "AUDIO",
    "video": "VIDEO",
    "action": "ACTION",
    "data": "BYTES",
    "json": "JSON",
    "signal": "SIGNAL",
}


def check_inputs(plan: GraphPlan, spec: graph_service_pb2.CallSpec, *, max_payload_bytes: int) -> None:
    """Refuses inputs that the graph cannot take, naming the field, before anything is allocated."""
    for name, value in spec.inputs.items():
        path = f"call.inputs[{name}]"
        placeholder = plan.static_inputs.get(name) or plan.streaming_inputs.get(name)
        if placeholder is None:
            raise _unknown_placeholder(plan, name, path)
        check_value(value, placeholder, path, max_payload_bytes=max_payload_bytes)
    for name in spec.open_inputs:
        if name not in plan.streaming_inputs:
            raise _unknown_placeholder(plan, name, "call.open_inputs")
    _check_required(plan, spec)


def _check_required(plan: GraphPlan, spec: graph_service_pb2.CallSpec) -> None:
    missing = [n for n, f in plan.static_inputs.items() if not f.is_optional and n not in spec.inputs]
    if not spec.inputs and not spec.open_inputs and not missing:
        missing = sorted((*plan.static_inputs, *plan.streaming_inputs))
        if missing:
            raise OmniFlowError(
                Reason.MISSING_INPUT,
                f"{plan.spec.name} needs at least one of its inputs: {', '.join(missing)}.",
                violations=tuple(Violation(field=f"call.inputs[{n}]", description="none is given") for n in missing),
            )
    elif missing:
        raise OmniFlowError(
            Reason.MISSING_INPUT,
            f"{plan.spec.name} needs {', '.join(missing)}.",
            violations=tuple(Violation(field=f"call.inputs[{n}]", description="it is required") for n in missing),
        )


def check_value(value: value_pb2.Value, placeholder: FieldSpec, path: str, *, max_payload_bytes: int) -> None:
    """Refuses a value of another type, from inside the platform, too large, or at odds with its own description."""
    kind = value.WhichOneof("kind")
    if kind is None:
        raise invalid_field(path, "no kind of value is set")
    if _TYPE_OF_KIND[kind] != placeholder.type:
        raise invalid_field(
            path, f"it takes {placeholder.type}, not {_TYPE_OF_KIND[kind]}", reason=Reason.TYPE_MISMATCH
        )
    payload = payload_of(value)
    if payload is None:
        return
    place = payload.WhichOneof("place")
    if place in ("buffer", "remote"):
        raise invalid_field(
            path,
            "buffers of the platform cannot be named from outside; send the bytes",
            reason=Reason.BUFFER_REF_REFUSED,
        )
    size = payload.chunked.total_bytes if place == "chunked" else len(payload.inline)
    if size > max_payload_bytes:
        raise invalid_field(
            path, f"{size} bytes are announced, the limit is {max_payload_bytes}", reason=Reason.PAYLOAD_TOO_LARGE
        )
    _check_tensor(value, size, path)


def _check_tensor(value: value_pb2.Value, size_bytes: int, path: str) -> None:
    kind = value.WhichOneof("kind")
    if kind not in ("tensor", "action"):
        return
    spec = (value.tensor if kind == "tensor" else value.action.values).spec
    try:
        element = ElementType(spec.element_type)
    except ValueError:
        raise invalid_field(f"{path}.spec.element_type", f"{spec.element_type} is no element type") from None
    if len(spec.shape) > 16 or any(size < 0 for size in spec.shape):
        raise invalid_field(f"{path}.spec.shape", "at most 16 dimensions, none negative")
    want = math.prod(spec.shape) * element.size_bytes
    if want != size_bytes:
        raise invalid_field(
            f"{path}.payload", f"a {element.name} tensor of shape {list(spec.shape)} has {want} bytes, not {size_bytes}"
        )


def _unknown_placeholder(plan: GraphPlan, name: str, path: str) -> OmniFlowError:
    known = (*plan.static_inputs, *plan.streaming_inputs)
    if name in plan.static_inputs:
        return invalid_field(path, f"{name!r} is no streaming input", reason=Reason.UNKNOWN_FIELD)
    return invalid_field(
        path, f"{plan.spec.name} has no input {name!r}. {nearest(name, known)}", reason=Reason.UNKNOWN_FIELD
    )


LINE_VALUES = 4096
LINE_BYTES = 16 * 1024 * 1024
"""Values of streaming inputs that may wait in line: for a queued call, behind one that is still being uploaded, or for
nodes that take them more slowly than they come. Payloads over 64 KiB are in the value store and count there."""


@dataclass(slots=True, kw_only=True)
class _Arriving:
    """A value in line. `block` is None once its bytes are complete, or when they never were apart."""

    name: str
    value: value_pb2.Value | None
    is_last: bool = False
    block: Block | None = None
    received: int = 0
    size_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class InputLine:
    """The values of one call that have not reached its scheduler.

    `on_started` is called once, when the start's single values are complete; `deliver` for each streaming value in
    order, once the call runs (`release`) and while `has_room` says that its nodes keep up.
    """

    plan: GraphPlan
    call_id: str
    store: ValueStore
    max_payload_bytes: int
    on_started: Callable[[dict[str, value_pb2.Value]], None]
    deliver: Callable[[str, value_pb2.Value | None, bool], None]
    has_room: Callable[[], bool] = lambda: True
    _start: list[_Arriving] = field(default_factory=list)
    _line: deque[_Arriving] = field(default_factory=deque)
    _transfers: dict[int, _Arriving] = field(default_factory=dict)
    _completed: set[int] = field(default_factory=set)
    _open: set[str] = field(default_factory=set)
    """Streaming inputs whose last value has not been taken in line."""
    _is_started: bool = False
    _is_released: bool = False
    _line_bytes: int = 0

    def start(self, spec: graph_service_pb2.CallSpec) -> None:
        """The call's single inputs, and streaming ones that came with its start. Already checked."""
        self._open.update(spec.open_inputs)
        for name, value in spec.inputs.items():
            arriving = self._arrive(name, value, is_last=name not in self._open)
            if name in self.plan.static_inputs:
                self._start.append(arriving)
            else:
                self._queue(arriving)
        self._move()

    def release(self) -> None:
        """The call runs: streaming values may reach its scheduler."""
        self._is_released = True
        self._move()

    def push(self, message: graph_service_pb2.StreamInput, path: str) -> None:
        """One more value of a streaming input, not checked yet."""
        placeholder = self.plan.streaming_inputs.get(message.field)
        if placeholder is None:
            raise _unknown_placeholder(self.plan, message.field, f"{path}.field")
        value = message.value if message.HasField("value") else None
        if value is not None:
            check_value(value, placeholder, f"{path}.value", max_payload_bytes=self.max_payload_bytes)
        elif not message.is_last:
            raise invalid_field(f"{path}.value", "give a value, or is_last, or both")
        if message.field not in self._open:
            raise invalid_field(f"{path}.field", f"input {message.field!r} is closed", reason=Reason.CALL_ENDED)
        if len(self._line) >= LINE_VALUES or self._line_bytes > LINE_BYTES:
            raise OmniFlowError(
                Reason.BUFFER_FULL,
                f"{len(self._line)} values of {self._line_bytes} bytes wait for the call; push more slowly.",
                retry_after_s=1.0,
            )
        self._queue(self._arrive(message.field, value, is_last=message.is_last))
        if message.is_last:
            self._open.discard(message.field)
        self._move()

    def add_chunk(self, chunk: tensor_pb2.PayloadChunk, path: str) -> None:
        """A piece of an announced payload: in order, without a gap, within what was announced.

        A repeat changes nothing: a client that lost its stream before it saw the call accepted sends everything again.
        """
        if chunk.transfer_id in self._completed:
            return
        arriving = self._transfers.get(chunk.transfer_id)
        if arriving is None or arriving.block is None:
            raise invalid_field(f"{path}.transfer_id", f"no payload {chunk.transfer_id} was announced")
        total = arriving.block.ref.size_bytes
        end = chunk.offset_bytes + len(chunk.data)
        if end <= arriving.received:
            return
        if chunk.offset_bytes != arriving.received or end > total:
            raise invalid_field(
                f"{path}.offset_bytes",
                f"byte {arriving.received} of {total} comes next, not {chunk.offset_bytes} to {end}",
            )
        if chunk.HasField("crc32c") and crc32c(chunk.data) != chunk.crc32c:
            raise invalid_field(f"{path}.crc32c", "the bytes do not match", reason=Reason.CHECKSUM_MISMATCH)
        if chunk.last != (end == total):
            raise invalid_field(f"{path}.last", f"the payload has {total} bytes, this chunk ends at {end}")
        arriving.block.write(chunk.offset_bytes, chunk.data)
        arriving.received = end
        if end == total:
            self._complete(chunk.transfer_id, arriving)
            self._move()

    def move(self) -> None:
        """There is room again."""
        if self._line:
            self._move()

    def _queue(self, arriving: _Arriving) -> None:
        arriving.size_bytes = arriving.value.ByteSize() if arriving.value is not None else 0
        self._line_bytes += arriving.size_bytes
        self._line.append(arriving)

    def close(self) -> None:
        """The call has ended: what is in line is dropped, also blocks that were being filled."""
        self._start.clear()
        self._line.clear()
        self._transfers.clear()
        self._open.clear()

    def _arrive(self, name: str, value: value_pb2.Value | None, *, is_last: bool) -> _Arriving:
        payload = payload_of(value) if value is not None else None
        if value is None or payload is None:
            return _Arriving(name=name, value=value, is_last=is_last)
        if payload.WhichOneof("place") != "chunked":
            kept = externalise(value, self.call_id, self.store)
            return _Arriving(name=name, value=kept, is_last=is_last)
        transfer_id = payload.chunked.transfer_id
        if transfer_id in self._transfers or transfer_id in self._completed:
            raise invalid_field("chunked.transfer_id", f"{transfer_id} is in use")
        block = self.store.reserve(self.call_id, payload.chunked.total_bytes)
        arriving = _Arriving(name=name, value=value, is_last=is_last, block=block)
        self._transfers[transfer_id] = arriving
        if not payload.chunked.total_bytes:
            self._complete(transfer_id, arriving)
        return arriving

    def _complete(self, transfer_id: int, arriving: _Arriving) -> None:
        assert arriving.block is not None and arriving.value is not None
        whole = value_pb2.Value()
        whole.CopyFrom(arriving.value)
        payload = payload_of(whole)
        assert payload is not None
        payload.remote.CopyFrom(arriving.block.ref)
        arriving.value, arriving.block = whole, None
        del self._transfers[transfer_id]
        self._completed.add(transfer_id)

    def _move(self) -> None:
        """Hands on what is complete, in order."""
        if not self._is_started:
            if any(arriving.block is not None for arriving in self._start):
                return
            self._is_started = True
            self.on_started({a.name: a.value for a in self._start if a.value is not None})
            self._start.clear()
        while self._is_released and self._line and self._line[0].block is None and self.has_room():
            arriving = self._line.popleft()
            self._line_bytes -= arriving.size_bytes
            self.deliver(arriving.name, arriving.value, arriving.is_last)
