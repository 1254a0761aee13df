"""The lane unix-frames: a unix stream socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from omniflow.links.port import LaneKind, NewSide
from omniflow.links.unix_frames import UnixFrames
from omniflow.process import listen_umask
from omniflow_roles.harness.lanes.socket_file import SocketFile

logger = logging.getLogger(__name__)


class UnixFramesLane:
    """Implements `Lane`."""

    kind = LaneKind.UNIX_FRAMES

    def __init__(self, path: Path) -> None:
        """Raises OSError when there can be no socket at the path."""
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._file = SocketFile(path)
            with listen_umask():
                self._socket.bind(str(path))
        except OSError:
            self._socket.close()
            raise
        self._file.bound()
        self._connections: set[UnixFrames] = set()

    @contextlib.asynccontextmanager
    async def serving(self, new_side: NewSide) -> AsyncIterator[None]:
        server = await asyncio.get_running_loop().create_unix_server(lambda: self._accept(new_side), sock=self._socket)
        try:
            yield
        finally:
            server.close()
            for connection in tuple(self._connections):
                connection.abort()

    def close(self) -> None:
        self._socket.close()
        self._file.remove()

    def _accept(self, new_side: NewSide) -> UnixFrames:
        connection = UnixFrames(new_side, self._ended)
        self._connections.add(connection)
        return connection

    def _ended(self, connection: UnixFrames, error: Exception | None) -> None:
        self._connections.discard(connection)
        if error is not None:
            logger.warning("a control plane's connection was given up: %s", error)
