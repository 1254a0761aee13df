"""Messages over each kind of lane, from both ends, by code of its own.

dial_lane(kind, address)             ─▶ Pipe: read() -> message or None at the end, write(message), ...
listen_on_lane(kind, path, on_pipe)  ─▶ serves until its context is left; `on_pipe(pipe)` runs for each peer
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import pytest
import zmq
import zmq.asyncio

KINDS = ("grpc", "unix-frames", "zmq-ipc")
FAST = "unix-frames"
"""What is used by default on one host."""
TRANSPORTS = tuple(
    pytest.param(kind) if kind == FAST else pytest.param(kind, marks=pytest.mark.integration) for kind in KINDS
)
"""The same for fixtures: the others are left out of the fast tests."""


class Pipe(Protocol):
    """One transport. `read` gives None when the peer has ended or is gone."""

    kind: str

    async def read(self) -> bytes | None: ...
    async def write(self, message: bytes) -> None: ...
    async def end(self) -> None:
        """Says that nothing comes any more."""

    def drop(self) -> None:
        """Breaks it."""


class UnixPipe:
    """unix-frames."""

    kind = "unix-frames"

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes | None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            size = int.from_bytes(await self._reader.readexactly(4), "little")
            return await self._reader.readexactly(size) or None
        return None

    async def write(self, message: bytes) -> None:
        await self.write_raw(len(message).to_bytes(4, "little") + message)

    async def write_raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        await self.write(b"")

    def drop(self) -> None:
        self._writer.transport.abort()


class DealerPipe:
    """zmq-ipc, dialled."""

    kind = "zmq-ipc"

    def __init__(self, address: str) -> None:
        self._socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        self._socket.connect(f"ipc://{address}")

    async def read(self) -> bytes | None:
        return await self._socket.recv() or None

    async def write(self, message: bytes) -> None:
        await self._socket.send(message)

    async def end(self) -> None:
        await self.write(b"")

    def drop(self) -> None:
        self._socket.close(0)


class RouterPipe:
    """zmq-ipc, one peer of a listening socket."""

    kind = "zmq-ipc"

    def __init__(self, socket: Any, address: bytes) -> None:
        self._socket, self._address = socket, address
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()

    async def read(self) -> bytes | None:
        return await self.messages.get() or None

    async def write(self, message: bytes) -> None:
        await self._socket.send_multipart([self._address, message])

    async def end(self) -> None:
        await self.write(b"")

    def drop(self) -> None:
        self.messages.put_nowait(b"")


async def dial_lane(kind: str, address: str) -> UnixPipe | DealerPipe:
    """A lane of that kind."""
    if kind == "zmq-ipc":
        return DealerPipe(address)
    return UnixPipe(*await asyncio.open_unix_connection(address))


OnPipe = Callable[[Any], Awaitable[None]]


@contextlib.asynccontextmanager
async def listen_on_lane(kind: str, path: str, on_pipe: OnPipe) -> AsyncIterator[None]:
    """Serves a lane of that kind; leaving the context breaks every connection."""
    async with contextlib.AsyncExitStack() as stack:
        serving = set[asyncio.Future[None]]()
        pipes: list[Pipe] = []

        def begin(pipe: Pipe) -> None:
            pipes.append(pipe)
            serving.add(asyncio.ensure_future(on_pipe(pipe)))

        if kind == "zmq-ipc":
            await stack.enter_async_context(_router(path, begin))
        else:
            server = await asyncio.start_unix_server(lambda reader, writer: begin(UnixPipe(reader, writer)), path)
            stack.callback(server.close)
        try:
            yield
        finally:
            for pipe in pipes:
                pipe.drop()
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)


@contextlib.asynccontextmanager
async def _router(path: str, begin: Callable[[RouterPipe], None]) -> AsyncIterator[None]:
    socket = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
    socket.bind(f"ipc://{path}")
    pipes: dict[bytes, RouterPipe] = {}

    async def read() -> None:
        while True:
            address, message = await socket.recv_multipart()
            if address not in pipes:
                pipes[address] = RouterPipe(socket, address)
                begin(pipes[address])
            pipes[address].messages.put_nowait(message)

    reading = asyncio.ensure_future(read())
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        socket.close(0)
