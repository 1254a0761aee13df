"""Wire frames of events, built once per event and sent to any number of streams.

`StreamCallResponse`, `ConverseCallResponse` and `ResumeCallResponse` all are `{repeated GraphEvent events = 1}`, and
protobuf messages concatenate: joining fragments of single events gives a valid packed response. Values of outputs are
spliced in by their serialized bytes, which spares a copy of the message per token; a test compares the bytes with what
protobuf itself writes.
"""

from __future__ import annotations

from omniflow.common.v1 import value_pb2
from omniflow.graph.v1 import graph_event_pb2
from omniflow.wire import sized, varint

_EVENTS = b"\x0a"  # field 1, length-delimited
_SEQUENCE = b"\x08"  # GraphEvent.sequence = 1, varint
_ORIGIN_PATH = b"\x1a"  # GraphEvent.origin_path = 3, packed
_VALUE = b"\x5a"  # GraphEvent.value = 11, length-delimited


def fragment(event: graph_event_pb2.GraphEvent) -> bytes:
    """One event as a fragment of a response."""
    body = event.SerializeToString()
    return sized(_EVENTS, body)


class ValueFrames:
    """Fragments of one output's values: what does not change between them is serialized once."""

    __slots__ = ("_after_path", "_before_path")

    def __init__(self, *, node: str, field: str, call_key: str) -> None:
        self._before_path = graph_event_pb2.GraphEvent(node=node).SerializeToString()
        self._after_path = graph_event_pb2.GraphEvent(field=field, call_key=call_key).SerializeToString()

    def fragment(self, sequence: int, origin_path: tuple[int, ...], value: value_pb2.Value) -> bytes:
        """The event that carries `value`."""
        path = b"".join(map(varint, origin_path))
        content = value.SerializeToString()
        body = b"".join(
            (
                _SEQUENCE,
                varint(sequence),
                self._before_path,
                *((_ORIGIN_PATH, varint(len(path)), path) if path else ()),
                self._after_path,
                _VALUE,
                varint(len(content)),
                content,
            )
        )
        return sized(_EVENTS, body)
