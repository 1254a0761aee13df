"""Pieces of protobuf messages as bytes, for messages that are made so often that what they share is serialized once.

Fields may come in any order, and a message field that comes twice is merged: what varies is written behind what does not.
"""

from __future__ import annotations

from collections.abc import Iterable

_SMALL_VARINTS = tuple(bytes([i]) for i in range(128))


def varint(number: int) -> bytes:
    """Base-128 encoding of a number of at least 0."""
    if number < 128:
        return _SMALL_VARINTS[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def packed(numbers: Iterable[int]) -> bytes:
    """The content of a packed field."""
    return b"".join(map(varint, numbers))


def sized(tag: bytes, content: bytes) -> bytes:
    """A length-delimited field."""
    size = len(content)
    return tag + (_SMALL_VARINTS[size] if size < 128 else varint(size)) + content
