"""A store's server that says what a test tells it to, in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from hiredis import Reader

Answer = Callable[[list[bytes]], Sequence[bytes]]
"""From the words of a command to the pieces of what is sent; an empty piece breaks the connection."""
BREAK = b""
_TURNS = 5
"""Of the loop between two pieces, so that the other side reads them one by one."""


class ScriptedStore:
    """Answers every command. `commands`: all that came, over all connections."""

    def __init__(self, answer: Answer) -> None:
        self.commands: list[list[bytes]] = []
        self.connection_count = 0
        self.port = 0
        self._answer = answer
        self._open: set[asyncio.StreamWriter] = set()
        self._has_ended = asyncio.Event()

    async def wait_ended(self) -> None:
        """Returns when no connection is open and there was one."""
        async with asyncio.timeout(5.0):
            while self._open or not self.connection_count:
                self._has_ended.clear()
                await self._has_ended.wait()

    @contextlib.asynccontextmanager
    async def at(self, socket: Path) -> AsyncIterator[ScriptedStore]:
        """Listens on a unix socket."""
        server = await asyncio.start_unix_server(self._serve, socket)
        async with self._running(server):
            yield self

    @contextlib.asynccontextmanager
    async def on_port(self, context: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedStore]:
        """Listens on a `port` of this machine."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        async with self._running(server):
            yield self

    @contextlib.asynccontextmanager
    async def _running(self, server: asyncio.Server) -> AsyncIterator[None]:
        try:
            yield
        finally:
            server.close()
            for writer in self._open:
                writer.transport.abort()
            if self.connection_count:
                await self.wait_ended()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self._open.add(writer)
        try:
            await self._converse(reader, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()
            self._open.discard(writer)
            self._has_ended.set()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = Reader()
        while data := await reader.read(1 << 16):
            parser.feed(data)
            while command := parser.gets():
                self.commands.append(command)
                for piece in self._answer(command):
                    if piece == BREAK:
                        await writer.drain()
                        return
                    writer.write(piece)
                    await writer.drain()
                    for _ in range(_TURNS):
                        await asyncio.sleep(0)
