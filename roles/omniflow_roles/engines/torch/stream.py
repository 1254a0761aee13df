"""Pieces of a request on their way from the engine's thread to the event loop of who asked.

The engine gathers what a step gives to all requests and wakes each loop once for it, not once a token.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from typing import Any

from omniflow_roles.engines.requests import Piece

logger = logging.getLogger(__name__)

_Item = Piece | BaseException | None
"""None ends the stream; an exception is raised instead."""


class PieceStream:
    """The reader's side. Belongs to one loop, and has one reader. Unbounded: a few bytes a token, at most `max_tokens`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._items: deque[_Item] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.has_ended = False
        """The reader has been given the end."""

    async def next(self) -> Piece | None:
        """The next piece; None after the last. Raises what the engine reported."""
        while not self._items:
            self._waiter = self.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        item = self._items.popleft()
        self.has_ended = not isinstance(item, Piece)
        if isinstance(item, BaseException):
            raise item
        return item

    def put(self, items: list[_Item]) -> None:
        """On the loop's thread."""
        self._items.extend(items)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Outbox:
    """The engine's side: items of many streams, handed over together."""

    def __init__(self) -> None:
        self._items: dict[asyncio.AbstractEventLoop, dict[PieceStream, list[_Item]]] = defaultdict(dict)

    def add(self, stream: PieceStream, item: _Item) -> None:
        """Keeps the item until `flush`."""
        self._items[stream.loop].setdefault(stream, []).append(item)

    def flush(self) -> None:
        """Hands everything over; a loop that has been closed has nobody to read."""
        if not self._items:
            return
        items, self._items = self._items, defaultdict(dict)
        for loop, by_stream in items.items():
            try:
                loop.call_soon_threadsafe(_put_all, by_stream)
            except RuntimeError:
                logger.debug("a loop was closed before its last pieces came")


def _put_all(by_stream: dict[PieceStream, list[Any]]) -> None:
    for stream, items in by_stream.items():
        stream.put(items)
