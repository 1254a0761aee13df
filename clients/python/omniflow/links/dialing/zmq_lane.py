"""The lane zmq-ipc, dialled: a DEALER socket, and a monitor that tells when the replica is gone."""

from __future__ import annotations

import asyncio

import zmq
from zmq.utils.monitor import parse_monitor_message

from omniflow.links.port import LaneKind, LinkSide
from omniflow.links.zmq_ipc import LoopSocket, ZmqPeer, open_socket

_GONE = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED


class ZmqLane:
    """Implements `Transport`."""

    name = LaneKind.ZMQ_IPC.value

    def __init__(self, path: str) -> None:
        self._path = path
        self._peer: ZmqPeer | None = None

    def wake(self) -> None:
        if self._peer is not None:
            self._peer.wake()

    async def carry(self, side: LinkSide) -> None:
        closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        dealer = open_socket(zmq.DEALER)
        dealer.setsockopt(zmq.RECONNECT_IVL, -1)  # by then another process may listen there
        socket = LoopSocket(dealer, lambda parts: peer.received(parts[-1]))
        monitor = LoopSocket(dealer.get_monitor_socket(_GONE), lambda parts: self._on_monitor(peer, parts))
        peer = self._peer = ZmqPeer(lambda _: side, lambda message: socket.send([message]), closed.set_result)
        try:
            dealer.connect(f"ipc://{self._path}")
            peer.wake()
            error = await asyncio.shield(closed)
        finally:
            peer.close(None)
            dealer.disable_monitor()
            monitor.close()
            socket.close()
        if error is not None:
            raise error

    def _on_monitor(self, peer: ZmqPeer, parts: list[bytes]) -> None:
        if parse_monitor_message(parts)["event"] & _GONE:
            peer.close(ConnectionResetError(f"nobody listens on {self._path}"))
