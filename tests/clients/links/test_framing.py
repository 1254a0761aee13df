"""Messages on a stream of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniflow.internal_rpc import MAX_FRAME_BYTES
from omniflow.links.framing import MessageCutter, header
from omniflow_core.errors import OmniFlowError, Reason


def framed(*messages: bytes) -> bytes:
    return b"".join(header(len(message)) + message for message in messages)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(1, 30), min_size=1, max_size=40), st.data())
def test_any_cut_of_the_bytes_gives_the_same_messages(
    messages: list[bytes], sizes: list[int], data: st.DataObject
) -> None:
    stream = framed(*messages)
    cutter, found, begin = MessageCutter(), list[bytes](), 0
    while begin < len(stream):
        size = data.draw(st.sampled_from(sizes))
        found += cutter.feed(stream[begin : begin + size])
        begin += size
    assert found == messages
    assert not cutter.has_rest


def test_length_is_four_bytes_little_endian() -> None:
    assert framed(b"hi", b"") == b"\x02\x00\x00\x00hi\x00\x00\x00\x00"


def test_largest_message_comes_through_in_pieces() -> None:
    message = bytes(range(256)) * (MAX_FRAME_BYTES // 256)
    stream, cutter, found = framed(message, b"next"), MessageCutter(), list[bytes]()
    for begin in range(0, len(stream), 100_000):
        found += cutter.feed(stream[begin : begin + 100_000])
    assert found == [message, b"next"]


@pytest.mark.parametrize("cut", [1, 3, 4, 5])
def test_larger_message_is_refused_by_its_length(cut: int) -> None:
    stream, cutter = header(MAX_FRAME_BYTES + 1) + b"x" * 8, MessageCutter()
    with pytest.raises(OmniFlowError) as caught:
        cutter.feed(stream[:cut])
        cutter.feed(stream[cut:])
    assert caught.value.reason is Reason.PROTOCOL_VIOLATION


def test_part_of_a_message_is_known_to_be_one() -> None:
    cutter = MessageCutter()
    assert cutter.feed(framed(b"whole") + b"\x05\x00") == [b"whole"]
    assert cutter.has_rest
