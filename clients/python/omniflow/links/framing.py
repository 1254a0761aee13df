"""Messages on a stream of bytes: each after its length in 4 bytes, little-endian.

02 00 00 00 'h' 'i'   03 00 00 00 'y' 'o' 'u'   00 00 00 00
└ a message           └ the next              └ END, which has no bytes
"""

from __future__ import annotations

from omniflow.internal_rpc import MAX_FRAME_BYTES
from omniflow_core.errors import OmniFlowError, Reason

HEADER_BYTES = 4


def header(size_bytes: int) -> bytes:
    """What goes before a message of this size."""
    return size_bytes.to_bytes(HEADER_BYTES, "little")


class MessageCutter:
    """Cuts messages out of bytes that come in pieces of any size."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def has_rest(self) -> bool:
        """A message has begun to come."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete. Raises PROTOCOL_VIOLATION for one larger than MAX_FRAME_BYTES, at its
        length and before its bytes are kept."""
        if not self._rest:
            messages, end = _cut(data)
            self._rest += data[end:]
            return messages
        self._rest += data
        if len(self._rest) < HEADER_BYTES + int.from_bytes(self._rest[:HEADER_BYTES], "little") <= _LARGEST_BYTES:
            return []  # most pieces of a large message end here, and nothing is copied for them
        messages, end = _cut(bytes(self._rest))
        del self._rest[:end]
        return messages


_LARGEST_BYTES = HEADER_BYTES + MAX_FRAME_BYTES


def _cut(data: bytes) -> tuple[list[bytes], int]:
    """The whole messages at the start, and where the rest begins."""
    messages: list[bytes] = []
    begin, size = 0, len(data)
    while size - begin >= HEADER_BYTES:
        body = begin + HEADER_BYTES
        end = body + int.from_bytes(data[begin:body], "little")
        if end - begin > _LARGEST_BYTES:
            raise OmniFlowError(
                Reason.PROTOCOL_VIOLATION, f"a message of {end - body} bytes; at most {MAX_FRAME_BYTES} are allowed"
            )
        if end > size:
            break
        messages.append(data[body:end])
        begin = end
    return messages, begin
