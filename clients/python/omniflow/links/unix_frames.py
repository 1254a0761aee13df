"""The lane of kind unix-frames, from either end: messages with their lengths on a unix stream socket.

Written at once when nothing is queued. What is sent while a piece of input is taken in, acknowledgements above all, waits
for its end and goes as one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from omniflow.links.framing import MessageCutter, header
from omniflow.links.port import END, NewSide

_COPIED_BYTES = 16 * 1024
"""Up to this size a message is copied behind its length: cheaper than giving the transport two pieces."""


class UnixFrames(asyncio.Protocol):
    """One connection."""

    def __init__(self, new_side: NewSide, on_closed: Callable[[UnixFrames, Exception | None], None]) -> None:
        """`on_closed` is called once, with the error for which this end gave the connection up, if it did."""
        self._side = new_side(self.wake)
        self._on_closed = on_closed
        self._cutter = MessageCutter()
        self._transport: asyncio.WriteTransport | None = None
        self._is_held = False
        """No writing now: input is being taken in, or the socket is full."""
        self._is_full = False
        self._error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._is_held = True
        try:
            for message in self._cutter.feed(data):
                self._side.received(message)
        except Exception as error:
            self._give_up(error)
            return
        finally:
            self._is_held = self._is_full
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._side.closed()
        self._on_closed(self, self._error)

    def pause_writing(self) -> None:
        self._is_held = self._is_full = True

    def resume_writing(self) -> None:
        self._is_held = self._is_full = False
        self._flush()

    def wake(self) -> None:
        """Something is queued at the side."""
        if not self._is_held:
            self._flush()

    def abort(self) -> None:
        """Ends the connection without another word."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        try:
            while not self._is_held and self._transport is not None and not self._transport.is_closing():
                message = self._side.take()
                if message is not None:
                    self._write(message)
                    continue
                if self._side.is_finished:
                    self._write(END)
                    self._transport.close()
                return
        except Exception as error:
            self._give_up(error)

    def _write(self, message: bytes) -> None:
        assert self._transport is not None
        if len(message) <= _COPIED_BYTES:
            self._transport.write(header(len(message)) + message)
        else:
            self._transport.writelines((header(len(message)), message))

    def _give_up(self, error: Exception) -> None:
        self._error = error
        self.abort()
