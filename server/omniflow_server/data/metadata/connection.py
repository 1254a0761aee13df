"""One connection to a store's server: a socket, TLS if wanted, user and password, the number of a database, and replies in
the order of what was sent.

    connect ──▶ [TLS] ──▶ AUTH, SELECT ──▶ send_packed_command ──▶ read_response ──▶ disconnect ──▶ connect ...

Replies are parsed by hiredis, the C parser of the Redis project: it costs 0.1 MiB of memory, where a whole client library
took 11. What the server refuses is a value (`ReplyError`), for it is one reply among others; only `connect` raises
it. A connection that breaks, and a server that speaks another protocol, are OSError. It does not know what commands mean,
repeats nothing, and has no deadlines: whoever uses it has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from typing import Any

from hiredis import ProtocolError, Reader, ReplyError

from omniflow_server.data.metadata.endpoint import Endpoint, Tls

Command = Sequence[bytes]
Reply = Any
"""As the protocol has it: bytes, int, None, ReplyError, or a list of these."""

_READ_BYTES = 1 << 16
_INCOMPLETE = object()


class Connection:
    """To one server, open or not. For one user at a time."""

    __slots__ = ("_context", "_endpoint", "_parser", "_reader", "_writer")

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._context: ssl.SSLContext | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._parser = _parser()

    async def connect(self) -> None:
        """Opens it, unless it is open. Raises ReplyError when the server refuses user, password or database, OSError."""
        if self._writer is not None:
            return
        self._reader, self._writer = await self._open()
        try:
            await self._begin()
        except BaseException:
            await self.disconnect(nowait=True)
            raise

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where = self._endpoint
        if where.tls is not None and self._context is None:
            self._context = context_of(where.tls)
        try:
            if where.path:
                return await asyncio.open_unix_connection(where.path)
            return await asyncio.open_connection(where.host, where.port, ssl=self._context)
        except OSError:  # a certificate that is refused is one, and a ValueError too
            raise
        except ValueError as error:  # no host can have such a name, no file such a path
            raise ConnectionError(str(error)) from None

    async def _begin(self) -> None:
        """Says who asks, and for which database, in one round trip."""
        where, commands = self._endpoint, []
        if where.username:
            commands.append(packed((b"AUTH", where.username.encode(), where.password.encode())))
        elif where.password:
            commands.append(packed((b"AUTH", where.password.encode())))
        if where.database:
            commands.append(packed((b"SELECT", b"%d" % where.database)))
        if commands:
            await self.send_packed_command(b"".join(commands))
        for _ in commands:
            if isinstance(reply := await self.read_response(), ReplyError):
                raise reply

    async def disconnect(self, *, nowait: bool = False) -> None:
        """Ends it. `nowait`: at once, and what the server has not taken yet is lost."""
        writer, self._reader, self._writer = self._writer, None, None
        self._parser = _parser()  # this one may be in the middle of a reply
        if writer is None:
            return
        if nowait:
            writer.transport.abort()  # to close would wait for a server that takes nothing any more
            return
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()

    async def send_command(self, *words: bytes | str | int) -> None:
        """Sends one command."""
        await self.send_packed_command(
            packed([word if isinstance(word, bytes) else str(word).encode() for word in words])
        )

    async def send_packed_command(self, data: bytes) -> None:
        """Sends commands that are `packed`, and returns when the server has begun to take them."""
        if self._writer is None:
            raise _not_connected()
        self._writer.write(data)
        await self._writer.drain()

    async def read_response(self) -> Reply:
        """The next reply."""
        try:
            while (reply := self._parser.gets()) is _INCOMPLETE:
                self._parser.feed(await self._read())
        except ProtocolError as error:
            raise ConnectionError(f"this is no server of a store: {error}") from None
        return reply

    async def _read(self) -> bytes:
        if self._reader is None:
            raise _not_connected()
        if data := await self._reader.read(_READ_BYTES):
            return data
        raise ConnectionResetError("the server has closed the connection")


def context_of(tls: Tls) -> ssl.SSLContext:
    """How TLS is spoken. Raises OSError, of which ssl.SSLError is one, for files that do not hold what they should."""
    context = ssl.create_default_context()
    if tls.authority:
        context.load_verify_locations(tls.authority)
    if tls.certificate:
        # With no password, OpenSSL would ask a terminal for that of a key that has one.
        context.load_cert_chain(tls.certificate, tls.key or None, password="")
    context.check_hostname = tls.is_name_checked
    if not tls.is_certificate_checked:
        context.verify_mode = ssl.CERT_NONE
    return context


def _parser() -> Reader:
    return Reader(notEnoughData=_INCOMPLETE)


def packed(command: Command) -> bytes:
    """A command as the protocol has it."""
    return b"*%d\r\n%b" % (len(command), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in command]))


def _not_connected() -> OSError:
    return ConnectionError("the connection is not open")
