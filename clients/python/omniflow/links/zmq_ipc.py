"""The lane of kind zmq-ipc, from either end: a ZeroMQ socket on the event loop, without a task or a future per message.

Needs pyzmq, so it is imported where a lane of this kind is used.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import zmq

from omniflow.internal_rpc import MAX_FRAME_BYTES
from omniflow.links.pacing import Pacing
from omniflow.links.port import END, NewSide

SEND_LIMIT = 64
"""Messages that ZeroMQ holds for one peer; what is sent beyond them queues up at the link, and is joined there."""
_BATCH = 64
"""Messages taken in before others on the loop have their turn."""
_RETRY_S = 0.002
"""A full ROUTER does not say when there is room for a peer again."""
_LINGER_MS = 500
"""For what was sent before the socket was closed."""


def open_socket(kind: int) -> zmq.SyncSocket:
    """A socket of the process's context, bounded in what it holds and takes in."""
    socket: zmq.SyncSocket = zmq.Context.instance().socket(kind)
    socket.setsockopt(zmq.SNDHWM, SEND_LIMIT)
    socket.setsockopt(zmq.RCVHWM, SEND_LIMIT)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    return socket


class LoopSocket:
    """A socket whose messages come by callback, as lists of parts. Owns the socket."""

    def __init__(self, socket: zmq.SyncSocket, on_message: Callable[[list[bytes]], None]) -> None:
        self._socket = socket
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(socket.fileno(), self._read)
        self._loop.call_soon(self._read)  # the descriptor only tells of what comes from now on

    def send(self, parts: list[bytes]) -> bool:
        """False when the peer's queue is full. Raises zmq.ZMQError, EHOSTUNREACH from a ROUTER whose peer is gone."""
        try:
            self._socket.send_multipart(parts, zmq.NOBLOCK)
        except zmq.Again:
            return False
        if int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._loop.call_soon(self._read)  # sending has used up the descriptor's news of an arrival
        return True

    def close(self) -> None:
        """What was sent is still delivered. Repeats change nothing."""
        if not self._socket.closed:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close(_LINGER_MS)

    def _read(self) -> None:
        for _ in range(_BATCH):
            if self._socket.closed:
                return
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._on_message(parts)
        self._loop.call_soon(self._read)


class ZmqPeer:
    """Carries a side's messages to and from one peer of a socket."""

    def __init__(
        self, new_side: NewSide, send: Callable[[bytes], bool], on_closed: Callable[[Exception | None], None]
    ) -> None:
        """`send` gives ZeroMQ a message for the peer, and returns False when it takes none. `on_closed` is called once,
        with the error for which this end gave the peer up, if it did."""
        self._pacing = Pacing(self._flush)
        self.wake = self._pacing.wake
        """Something is queued at the side."""
        self._side = new_side(self.wake)
        self._send = send
        self._on_closed = on_closed
        self._refused: bytes | None = None
        """Taken from the side, and not by ZeroMQ."""
        self._is_closed = False

    def received(self, message: bytes) -> None:
        """A message of the peer."""
        if self._is_closed:
            return
        self._pacing.hold()
        try:
            self._side.received(message)
        except Exception as error:
            self.close(error)
        self._pacing.release()

    def _flush(self) -> None:
        try:
            while self._refused is None and not self._is_closed:
                message = self._side.take()
                if message is not None:
                    self._write(message)
                    continue
                if self._side.is_finished:
                    self.close(None)
                return
        except Exception as error:
            self.close(error)

    def close(self, error: Exception | None) -> None:
        """Ends it here; the peer hears of it if it still listens."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(zmq.ZMQError):
            self._send(END)
        self._side.closed()
        is_gone = isinstance(error, zmq.ZMQError) and error.errno == zmq.EHOSTUNREACH  # how a ROUTER learns of it
        self._on_closed(None if is_gone else error)

    def _write(self, message: bytes) -> None:
        if not self._send(message):
            self._refused = message
            asyncio.get_running_loop().call_later(_RETRY_S, self._retry)

    def _retry(self) -> None:
        message, self._refused = self._refused, None
        if message is not None and not self._is_closed:
            try:
                self._write(message)
            except zmq.ZMQError as error:
                self.close(error)
        self._flush()
