"""A field value on its way through the control plane: a message, a Python value, or both, converted when first asked for.

Yields of role processes reach the caller as messages and are never turned into Python values; values between inline
interfaces stay Python values and are never serialized.
"""

from __future__ import annotations

from omniflow.codec.common import payload_of, split_value, value_from_proto, value_to_proto
from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.values import Action, Buffer, Media, Tensor, Value


class CarriedValue:
    """One value; immutable."""

    __slots__ = ("_message", "_native")

    def __init__(self, *, message: value_pb2.Value | None = None, native: Value | None = None) -> None:
        self._message = message
        self._native = native

    @property
    def message(self) -> value_pb2.Value:
        if self._message is None:
            assert self._native is not None, "a value is made from a message or a Python value"
            self._message = value_to_proto(self._native)
        return self._message

    @property
    def native(self) -> Value:
        """The Python value. A payload kept by another process must have been fetched: see `is_remote`."""
        if self._native is None:
            self._native = value_from_proto(self.message)
        return self._native

    def is_larger_than(self, size_bytes: int) -> bool:
        """The payload is larger, or kept by another process."""
        if self._message is None:
            data = data_of(self._native)
            return data is not None and memoryview(data).nbytes > size_bytes
        payload = payload_of(self._message)
        return payload is not None and (payload.WhichOneof("place") == "remote" or len(payload.inline) > size_bytes)

    def split(self) -> tuple[value_pb2.Value, memoryview | tensor_pb2.RemoteRef]:
        """The message without its payload, and the payload, not copied where it is not in a message."""
        if self._message is None:
            assert self._native is not None
            message, data = split_value(self._native)
            assert data is not None, "only values with a payload are split"
            return message, memoryview(data).cast("B")
        payload = payload_of(self._message)
        assert payload is not None, "only values with a payload are split"
        place = payload.remote if payload.WhichOneof("place") == "remote" else memoryview(payload.inline)
        message = value_pb2.Value()
        message.CopyFrom(self._message)
        emptied = payload_of(message)
        assert emptied is not None
        emptied.ClearField("inline" if isinstance(place, memoryview) else "remote")
        return message, place

    @property
    def stored_bytes(self) -> int:
        """Bytes of the payload that another process keeps."""
        if self._message is None:
            return 0
        payload = payload_of(self._message)
        return payload.remote.size_bytes if payload is not None and payload.WhichOneof("place") == "remote" else 0

    @property
    def is_remote(self) -> bool:
        """The payload is kept by another process."""
        if self._message is None:
            return False
        payload = payload_of(self._message)
        return payload is not None and payload.WhichOneof("place") == "remote"


INSIDE = object()
"""Stands for a value that stays with the replica that runs its segment; nothing here ever looks at it."""


def data_of(value: object) -> Buffer | None:
    """The bytes of a Python value that has a payload."""
    if isinstance(value, Action):
        value = value.values
    if isinstance(value, Tensor | Media):
        return value.data
    return value if isinstance(value, bytes | bytearray | memoryview) else None
