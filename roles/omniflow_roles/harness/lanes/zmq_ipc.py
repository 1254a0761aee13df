"""The lane zmq-ipc: a ROUTER socket that all control planes share, each with an address of its own."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import zmq

from omniflow.links.port import END, LaneKind, NewSide
from omniflow.links.zmq_ipc import LoopSocket, ZmqPeer, open_socket
from omniflow.process import listen_umask
from omniflow_roles.harness.lanes.socket_file import SocketFile

logger = logging.getLogger(__name__)


class ZmqIpcLane:
    """Implements `Lane`. ZeroMQ does not say when a peer goes: it is noticed when the next heartbeat cannot be sent."""

    kind = LaneKind.ZMQ_IPC

    def __init__(self, path: Path) -> None:
        """Raises OSError when there can be no socket at the path."""
        self.path = path
        self._router = open_socket(zmq.ROUTER)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._peers: dict[bytes, ZmqPeer] = {}
        try:
            self._file = SocketFile(path)
            with listen_umask():
                self._router.bind(f"ipc://{path}")
        except (OSError, zmq.ZMQError) as error:
            self._router.close(0)
            raise OSError(error.errno, str(error)) from None
        self._file.bound()

    @contextlib.asynccontextmanager
    async def serving(self, new_side: NewSide) -> AsyncIterator[None]:
        self._new_side = new_side
        self._socket = LoopSocket(self._router, self._on_message)
        try:
            yield
        finally:
            for peer in tuple(self._peers.values()):
                peer.close(None)
            self._socket.close()

    def close(self) -> None:
        self._router.close(0)
        self._file.remove()

    def _on_message(self, parts: list[bytes]) -> None:
        address, message = parts[0], parts[-1]
        peer = self._peers.get(address)
        if peer is None and message == END:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.send([address, END])
            return
        if peer is None:
            peer = self._peers[address] = self._new_peer(address)
        peer.received(message)

    def _new_peer(self, address: bytes) -> ZmqPeer:
        def ended(error: Exception | None) -> None:
            self._peers.pop(address, None)
            if error is not None:
                logger.warning("a control plane's connection was given up: %s", error)

        return ZmqPeer(self._new_side, lambda message: self._socket.send([address, message]), ended)
