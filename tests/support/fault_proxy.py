"""A proxy that cuts, stalls and slows the connections between a client and a server.

    async with FaultProxy(server.target) as proxy:
        client = connect(proxy.target)
        proxy.stall()          # bytes stop, connections stay: a host that hangs, a network that swallows
        proxy.resume()
        proxy.cut()            # every connection is reset: a host or a proxy that died

It knows bytes only, so it works for anything over TCP or a unix socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import shutil
import socket
import struct
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self

_PIECE_BYTES = 64 * 1024
_BUFFER_BYTES = 1024 * 1024
"""What a proxy holds of one direction: about what a socket would."""


class Direction(enum.Flag):
    """Which way bytes go."""

    UP = enum.auto()
    """From the client to the server."""
    DOWN = enum.auto()
    """From the server to the client."""
    BOTH = UP | DOWN


class FaultProxy:
    """Relays connections to a gRPC-style target: `host:port` or `unix:/path`, listening on one of the same kind.

    Faults concern all connections, those to come included. `delay_s` and `bytes_per_s` may be set at any time.
    """

    def __init__(self, upstream: str, *, delay_s: float = 0.0, bytes_per_s: float | None = None) -> None:
        self.upstream = upstream
        self.target = ""
        """Where clients connect."""
        self.delay_s = delay_s
        """Each byte arrives this much later. Bytes on their way overlap, as on a long line."""
        self.bytes_per_s = bytes_per_s
        """Most bytes a second in one direction of one connection; None without a limit."""
        self.is_refusing = False
        """New connections are reset at once."""
        self.accepted_count = 0
        """Connections so far."""
        self.relayed_bytes = {Direction.UP: 0, Direction.DOWN: 0}
        self._connections: set[_Connection] = set()
        self._stalled = Direction(0)
        self._flowing = asyncio.Condition()
        self._cut_at: dict[Direction, int] = {}
        self._tasks = asyncio.TaskGroup()
        self._folder: str | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._server = await self._listen()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        await self._tasks.__aexit__(None, None, None)
        if self._folder is not None:
            shutil.rmtree(self._folder)

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    def cut(self) -> None:
        """Resets every connection, as when the peer dies. New ones are accepted."""
        for connection in tuple(self._connections):
            connection.reset()

    def cut_after(self, size_bytes: int, direction: Direction = Direction.DOWN) -> None:
        """Resets every connection as soon as so many more bytes have gone in a direction; the last of them arrives."""
        self._cut_at[direction] = self.relayed_bytes[direction] + size_bytes

    def stall(self, direction: Direction = Direction.BOTH) -> None:
        """Lets no byte through; connections stay open."""
        self._stalled |= direction

    def resume(self) -> None:
        """Ends a stall."""
        self._stalled = Direction(0)
        self._tasks.create_task(self._wake())

    async def _wake(self) -> None:
        async with self._flowing:
            self._flowing.notify_all()

    async def wait_flowing(self, direction: Direction) -> None:
        """Returns when the direction is not stalled."""
        if self._stalled & direction:
            async with self._flowing:
                await self._flowing.wait_for(lambda: not self._stalled & direction)

    def allowance(self, direction: Direction, wanted_bytes: int) -> int:
        """How many of the bytes may still go before a cut."""
        cut_at = self._cut_at.get(direction)
        return wanted_bytes if cut_at is None else min(wanted_bytes, cut_at - self.relayed_bytes[direction])

    def relayed(self, direction: Direction, size_bytes: int) -> None:
        """Counts bytes that were passed on, and cuts when it is time."""
        self.relayed_bytes[direction] += size_bytes
        if self._cut_at.get(direction) == self.relayed_bytes[direction]:
            del self._cut_at[direction]
            self.cut()

    async def _listen(self) -> asyncio.Server:
        if self.upstream.startswith("unix:"):
            self._folder = tempfile.mkdtemp(prefix="proxy-")
            path = str(Path(self._folder) / "proxy.sock")
            self.target = f"unix:{path}"
            return await asyncio.start_unix_server(self._accept, path)
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted_count += 1
        if self.is_refusing:
            _reset(writer)
        else:
            self._tasks.create_task(self._relay(reader, writer))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await _connect(self.upstream)
        except OSError:
            _reset(writer)
            return
        connection = _Connection(writer, up_writer)
        self._connections.add(connection)
        lanes = (
            _Lane(self, Direction.UP, reader, up_writer, connection.reset),
            _Lane(self, Direction.DOWN, up_reader, writer, connection.reset),
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                connection.tasks = [tasks.create_task(lane.run()) for lane in lanes]
        finally:
            self._connections.discard(connection)
            connection.reset()


class _Connection:
    """Both ends of a relayed connection."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._ends = (client, server)
        self.tasks: list[asyncio.Task[None]] = []

    def reset(self) -> None:
        for writer in self._ends:
            _reset(writer)
        for task in self.tasks:
            task.cancel()


class _Lane:
    """One direction of one connection: a reader that takes bytes in, a writer that passes them on when it is time."""

    def __init__(
        self,
        proxy: FaultProxy,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_broken: Callable[[], None],
    ) -> None:
        self._proxy = proxy
        self._direction = direction
        self._reader = reader
        self._writer = writer
        self._on_broken = on_broken
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._held_bytes = 0
        self._changed = asyncio.Condition()
        self._has_ended = False

    async def run(self) -> None:
        """Until the source has closed its side, or an end breaks: then both are reset."""
        self._writer.transport.set_write_buffer_limits(high=0)  # `drain` waits until the kernel has everything
        async with asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(self._take())
            try:
                await self._give()
            except OSError:
                self._on_broken()
            finally:
                taking.cancel()

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._has_ended:
            try:
                data = await self._reader.read(_PIECE_BYTES)
            except OSError:
                self._on_broken()
                return
            async with self._changed:
                if data:
                    self._pieces.append((loop.time() + self._proxy.delay_s, data))
                    self._held_bytes += len(data)
                else:
                    self._has_ended = True
                self._changed.notify_all()
                await self._changed.wait_for(lambda: self._held_bytes < _BUFFER_BYTES)

    async def _give(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._pieces or self._has_ended)
                if not self._pieces:
                    break
                due_s, data = self._pieces.popleft()
            if due_s > loop.time():
                await asyncio.sleep(due_s - loop.time())
            await self._write(data)
            async with self._changed:
                self._held_bytes -= len(data)
                self._changed.notify_all()
        await self._proxy.wait_flowing(self._direction)
        self._writer.write_eof()

    async def _write(self, data: bytes) -> None:
        while data:
            await self._proxy.wait_flowing(self._direction)
            rate = self._proxy.bytes_per_s
            # A slow line passes twenty small pieces a second rather than a large one now and then.
            size = len(data) if rate is None else max(1, min(len(data), int(rate / 20)))
            size = self._proxy.allowance(self._direction, size)
            if rate is not None:
                await asyncio.sleep(size / rate)
            self._writer.write(data[:size])
            await self._writer.drain()
            data = data[size:]
            self._proxy.relayed(self._direction, size)


async def _connect(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if target.startswith("unix:"):
        return await asyncio.open_unix_connection(target.removeprefix("unix:"))
    host, _, port = target.rpartition(":")
    return await asyncio.open_connection(host, int(port))


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes without a farewell: TCP peers see a reset, unix peers the end. What the kernel has taken still arrives."""
    transport = writer.transport
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX and not transport.is_closing():
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
