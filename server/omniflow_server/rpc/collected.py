"""The outputs of a call that RunCall waits for, joined once at the end.

Text and token deltas are kept as Python parts: appending to a field of a message would copy it anew for every delta, and
the copies stay in the message's arena.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from omniflow.codec.common import payload_of
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.graph.v1 import graph_event_pb2
from omniflow.graph.v1 import graph_service_pb2 as pb

RUN_LIMIT_BYTES = 4 * 1024 * 1024 - 64 * 1024
"""Outputs that RunCall collects: what a client takes by default, less room for the rest of the message."""
FRAMING_BYTES = 16
"""What a value costs in the response beside its content."""


class _Text:
    """Consecutive text values."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def add(self, value: value_pb2.Value) -> None:
        self.parts.append(value.text)

    def message(self) -> value_pb2.Value:
        return value_pb2.Value(text="".join(self.parts))


class _Tokens:
    """Consecutive token values."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.texts: list[str] = []
        self.logprobs: list[float] = []

    def add(self, value: value_pb2.Value) -> None:
        self.ids.extend(value.tokens.ids)
        self.texts.append(value.tokens.text)
        self.logprobs.extend(value.tokens.logprobs)

    def message(self) -> value_pb2.Value:
        tokens = value_pb2.Tokens(ids=self.ids, text="".join(self.texts), logprobs=self.logprobs)
        return value_pb2.Value(tokens=tokens)


_JOINTS: Mapping[str, type[_Text | _Tokens]] = {"text": _Text, "tokens": _Tokens}


class Collected:
    """Takes the events of a call; `size_bytes` is what the response will have at least."""

    def __init__(self) -> None:
        self._values: dict[str, list[value_pb2.Value | _Text | _Tokens]] = defaultdict(list)
        self._finished = graph_event_pb2.CallFinished()
        self._transfers: dict[int, tuple[tensor_pb2.Payload, bytearray]] = {}
        self.size_bytes = 0

    def add(self, event: graph_event_pb2.GraphEvent) -> None:
        """The next event."""
        kind = event.WhichOneof("event")
        if kind == "finished":
            self._finished = event.finished
        elif kind == "chunk":
            self._add_chunk(event.chunk)
        elif kind == "value":
            self._add_value(event.field, event.value)

    def _add_value(self, field: str, value: value_pb2.Value) -> None:
        self.size_bytes += value.ByteSize()
        values = self._values[field]
        joint = _JOINTS.get(value.WhichOneof("kind") or "")
        if joint is not None:
            last = values[-1] if values else None
            if not isinstance(last, joint):
                last = joint()
                values.append(last)
                self.size_bytes += FRAMING_BYTES
            last.add(value)
            return
        self.size_bytes += FRAMING_BYTES
        values.append(value)
        payload = payload_of(value)
        if payload is not None and payload.WhichOneof("place") == "chunked":
            self.size_bytes += payload.chunked.total_bytes
            self._transfers[payload.chunked.transfer_id] = (payload, bytearray())

    def _add_chunk(self, chunk: tensor_pb2.PayloadChunk) -> None:
        payload, data = self._transfers[chunk.transfer_id]
        data += chunk.data
        if chunk.last:
            payload.inline = bytes(data)
            del self._transfers[chunk.transfer_id]

    def response(self, call_id: str) -> pb.RunCallResponse:
        """All outputs by field."""
        response = pb.RunCallResponse(call_id=call_id, finished=self._finished)
        for name, values in self._values.items():
            response.outputs[name].values.extend(
                value if isinstance(value, value_pb2.Value) else value.message() for value in values
            )
        return response
