"""The proxy between a client and an echo server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.fault_proxy import Direction, FaultProxy


@dataclass
class Line:
    """A client's connection through the proxy."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.reader.readexactly(len(data))

    async def is_silent(self) -> bool:
        """Nothing comes for a while."""
        try:
            async with asyncio.timeout(0.05):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.write(b"bye")
    except OSError:
        pass
    writer.close()


async def dial(proxy: FaultProxy) -> Line:
    if proxy.target.startswith("unix:"):
        return Line(*await asyncio.open_unix_connection(proxy.target.removeprefix("unix:")))
    host, _, port = proxy.target.rpartition(":")
    return Line(*await asyncio.open_connection(host, int(port)))


@pytest.fixture(params=["tcp", "unix"])
async def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    if request.param == "unix":
        server = await asyncio.start_unix_server(_echo, str(tmp_path / "echo.sock"))
        target = f"unix:{tmp_path}/echo.sock"
    else:
        server = await asyncio.start_server(_echo, "127.0.0.1", 0)
        target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with FaultProxy(target) as proxy:
        yield proxy
    server.close()


async def test_proxy_relays_both_ways(proxy: FaultProxy) -> None:
    line = await dial(proxy)
    large = bytes(range(256)) * 8192
    writing = asyncio.ensure_future(_write_all(line, large))
    assert await line.reader.readexactly(len(large)) == large
    await writing
    assert proxy.relayed_bytes == {Direction.UP: len(large), Direction.DOWN: len(large)}
    line.writer.close()


async def _write_all(line: Line, data: bytes) -> None:
    line.writer.write(data)
    await line.writer.drain()


async def test_proxy_passes_a_half_close_on(proxy: FaultProxy) -> None:
    line = await dial(proxy)
    line.writer.write(b"last words ")
    line.writer.write_eof()
    assert await line.reader.read() == b"last words bye"
    line.writer.close()


async def test_proxy_cut_resets_what_is_open_and_accepts_new(proxy: FaultProxy) -> None:
    line = await dial(proxy)
    assert await line.ask(b"ping") == b"ping"
    proxy.cut()
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await line.reader.readexactly(1)
    again = await dial(proxy)
    assert await again.ask(b"pong") == b"pong"
    assert proxy.accepted_count == 2
    line.writer.close()
    again.writer.close()


async def test_proxy_stalls_without_closing_and_loses_nothing(proxy: FaultProxy) -> None:
    line = await dial(proxy)
    assert await line.ask(b"one") == b"one"
    proxy.stall()
    line.writer.write(b"two")
    assert await line.is_silent()
    proxy.resume()
    assert await line.reader.readexactly(3) == b"two"
    line.writer.close()


async def test_proxy_stalls_one_direction_only(proxy: FaultProxy) -> None:
    line = await dial(proxy)
    assert await line.ask(b"one") == b"one"
    proxy.stall(Direction.DOWN)
    line.writer.write(b"two")
    assert await line.is_silent()
    assert (proxy.relayed_bytes[Direction.UP], proxy.relayed_bytes[Direction.DOWN]) == (6, 3)
    line.writer.close()


async def test_proxy_cuts_after_exactly_so_many_bytes(proxy: FaultProxy) -> None:
    line = await dial(proxy)
    proxy.cut_after(5)
    line.writer.write(b"0123456789")
    arrived = b""
    try:
        while piece := await line.reader.read(100):
            arrived += piece
    except OSError:
        pass
    assert arrived == b"01234"
    line.writer.close()


async def test_proxy_delays_without_slowing(proxy: FaultProxy) -> None:
    proxy.delay_s = 0.05
    line, loop = await dial(proxy), asyncio.get_running_loop()
    started_s = loop.time()
    line.writer.write(b"a")
    await asyncio.sleep(0.02)
    line.writer.write(b"b")
    assert await line.reader.readexactly(2) == b"ab"
    assert 0.1 < loop.time() - started_s < 0.2
    line.writer.close()


async def test_proxy_limits_the_rate(proxy: FaultProxy) -> None:
    proxy.bytes_per_s = 100_000
    line, loop = await dial(proxy), asyncio.get_running_loop()
    started_s = loop.time()
    await line.ask(bytes(20_000))
    assert 0.18 < loop.time() - started_s < 1.0
    line.writer.close()


async def test_proxy_refuses_while_told_to(proxy: FaultProxy) -> None:
    proxy.is_refusing = True
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await (await dial(proxy)).ask(b"hello")
    proxy.is_refusing = False
    line = await dial(proxy)
    assert await line.ask(b"hello") == b"hello"
    line.writer.close()


async def test_proxy_resets_clients_of_a_server_that_is_gone(tmp_path: Path) -> None:
    async with FaultProxy(f"unix:{tmp_path}/nobody.sock") as proxy:
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await (await dial(proxy)).ask(b"hello")
