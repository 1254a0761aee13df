"""The lane of kind unix-frames, from either end: messages with their lengths on a unix stream socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from omniflow.links.framing import MessageCutter, header
from omniflow.links.pacing import Pacing
from omniflow.links.port import END, NewSide

_COPIED_BYTES = 16 * 1024
"""Up to this size a message is copied behind its length: cheaper than giving the transport two pieces."""


class UnixFrames(asyncio.Protocol):
    """One connection."""

    def __init__(self, new_side: NewSide, on_closed: Callable[[UnixFrames, Exception | None], None]) -> None:
        """`on_closed` is called once, with the error for which this end gave the connection up, if it did."""
        self._pacing = Pacing(self._flush)
        self.wake = self._pacing.wake
        """Something is queued at the side."""
        self._side = new_side(self.wake)
        self._on_closed = on_closed
        self._cutter = MessageCutter()
        self._transport: asyncio.WriteTransport | None = None
        self._is_full = False
        """The transport holds enough."""
        self._error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._pacing.hold()
        try:
            for message in self._cutter.feed(data):
                self._side.received(message)
        except Exception as error:
            self._give_up(error)
        self._pacing.release()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._side.closed()
        self._on_closed(self, self._error)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._flush()

    def abort(self) -> None:
        """Ends the connection without another word."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        try:
            while not self._is_full:
                message = self._side.take()
                if message is not None:
                    self._write(transport, message)
                    continue
                if self._side.is_finished:
                    self._write(transport, END)
                    transport.close()
                return
        except Exception as error:
            self._give_up(error)

    def _write(self, transport: asyncio.WriteTransport, message: bytes) -> None:
        if len(message) <= _COPIED_BYTES:
            transport.write(header(len(message)) + message)
        else:
            transport.writelines((header(len(message)), message))

    def _give_up(self, error: Exception) -> None:
        self._error = error
        self.abort()
