"""Pieces reach their readers in order, one wake-up of the loop for whatever a step gave."""

from __future__ import annotations

import asyncio
import threading
from unittest import mock

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.requests import Piece
from omniflow_roles.engines.torch.stream import Outbox, PieceStream


async def test_pieces_of_several_streams_come_in_order_by_one_wake_up() -> None:
    loop = asyncio.get_running_loop()
    first, second, outbox = PieceStream(loop), PieceStream(loop), Outbox()
    for number in (1, 2):
        outbox.add(first, Piece(ids=(number,)))
        outbox.add(second, Piece(ids=(number * 10,)))
    outbox.add(first, None)
    with mock.patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe) as wake:
        thread = threading.Thread(target=outbox.flush)
        thread.start()
        thread.join()
        assert wake.call_count == 1
    found = [await first.next(), await first.next(), await second.next(), await second.next()]
    assert [piece.ids for piece in found if piece] == [(1,), (2,), (10,), (20,)]
    assert not first.has_ended
    assert await first.next() is None
    assert first.has_ended
    assert not second.has_ended


async def test_error_is_raised_after_what_came_before_it() -> None:
    stream, outbox = PieceStream(asyncio.get_running_loop()), Outbox()
    outbox.add(stream, Piece(text="a"))
    outbox.add(stream, OmniFlowError(Reason.DRAINING, "closed"))
    outbox.flush()
    assert await stream.next() == Piece(text="a")
    with pytest.raises(OmniFlowError, match="closed"):
        await stream.next()
    assert stream.has_ended


def test_loop_that_is_closed_has_nobody_to_read() -> None:
    loop = asyncio.new_event_loop()
    stream, outbox = PieceStream(loop), Outbox()
    loop.close()
    outbox.add(stream, Piece(text="a"))
    outbox.flush()
    outbox.flush()
