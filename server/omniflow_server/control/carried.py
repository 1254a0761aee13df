"""A field value on its way through the control plane: a message, a Python value, or both, converted when first asked for.

Yields of role processes reach the caller as messages and are never turned into Python values; values between inline
interfaces stay Python values and are never serialized.
"""

from __future__ import annotations

from omniflow.codec.common import payload_of, value_from_proto, value_to_proto
from omniflow.common.v1 import value_pb2
from omniflow.values import Value


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

    @property
    def is_remote(self) -> bool:
        """The payload is kept by another process."""
        if self._message is None:
            return False
        payload = payload_of(self._message)
        return payload is not None and payload.WhichOneof("place") == "remote"
