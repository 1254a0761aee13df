"""A TCP relay that can be cut: every connection through it is reset at once, as when a host or a proxy dies."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self


class TcpProxy:
    """Relays a free port to a target port of this machine."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.is_refusing = False
        """New connections are dropped."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        if self._relays:
            await asyncio.wait(self._relays)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Resets every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)
        if self.is_refusing:
            writer.transport.abort()
            return
        self.connections += 1
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_copy(reader, up_writer))
                tasks.create_task(_copy(up_reader, writer))
        finally:
            self._writers -= {writer, up_writer}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
