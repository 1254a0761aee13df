"""One connection with a server that is scripted: replies in all shapes and pieces, ends in the middle, and TLS."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hiredis import ReplyError

from omniflow_server.data.metadata.connection import Connection, context_of, packed
from omniflow_server.data.metadata.endpoint import Endpoint, Tls
from tests.server.data.metadata.scripted import BREAK, ScriptedStore


class CountingReads(Connection):
    """Counts how often bytes came."""

    reads = 0

    async def _read(self) -> bytes:
        self.reads += 1
        return await super()._read()


def always(*pieces: bytes) -> ScriptedStore:
    return ScriptedStore(lambda command: pieces)


def plain(reply: Any) -> Any:
    """With errors as their texts, for errors compare by identity."""
    if isinstance(reply, list):
        return [plain(each) for each in reply]
    return ("error", str(reply)) if isinstance(reply, ReplyError) else reply


async def asked(connection: Connection, *commands: Sequence[bytes]) -> list[Any]:
    """The replies to commands that are sent together."""
    await connection.send_packed_command(b"".join(map(packed, commands)))
    return [plain(await connection.read_response()) for _ in commands]


# --- replies ---------------------------------------------------------------------------------------------------------

SHAPES = (
    b"+OK\r\n:-12\r\n$5\r\na\r\nbc\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n-WRONGTYPE no\r\n"
    b"*3\r\n:1\r\n*2\r\n$1\r\n\xff\r\n$-1\r\n-ERR inside\r\n"
)
SHAPED = [
    b"OK",
    -12,
    b"a\r\nbc",
    b"",
    None,
    None,
    [],
    ("error", "WRONGTYPE no"),
    [1, [b"\xff", None], ("error", "ERR inside")],
]


@pytest.mark.parametrize("size", [1, 2, 7, len(SHAPES)])
async def test_replies_of_every_shape_arrive_in_order_in_whatever_pieces(tmp_path: Path, size: int) -> None:
    pieces = [SHAPES[start : start + size] for start in range(0, len(SHAPES), size)]
    connection = CountingReads(Endpoint(path=str(tmp_path / "s")))
    async with always(*pieces).at(tmp_path / "s"):
        await connection.connect()
        await connection.send_command("ASK")
        assert [plain(await connection.read_response()) for _ in SHAPED] == SHAPED
        await connection.disconnect()
    assert connection.reads == len(pieces)


async def test_large_replies_arrive_whole(tmp_path: Path) -> None:
    large = bytes(range(256)) * (1 << 15)
    many = [b"%d" % number for number in range(20_000)]
    bulk = b"$%d\r\n%b\r\n" % (len(large), large)
    array = b"*%d\r\n" % len(many) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in many)
    connection = CountingReads(Endpoint(path=str(tmp_path / "s")))
    async with ScriptedStore(lambda command: [bulk if command == [b"BULK"] else array]).at(tmp_path / "s"):
        await connection.connect()
        assert await asked(connection, [b"BULK"], [b"ARRAY"], [b"BULK"]) == [large, many, large]
        await connection.disconnect()
    assert connection.reads > 2 * len(large) // (1 << 20)


async def test_large_commands_arrive_whole(tmp_path: Path) -> None:
    words = [b"SET", b"a\r\nb", b"x" * (1 << 22)]
    async with always(b"+OK\r\n").at(tmp_path / "s") as store:
        connection = Connection(Endpoint(path=str(tmp_path / "s")))
        await connection.connect()
        assert await asked(connection, words, words) == [b"OK", b"OK"]
        await connection.disconnect()
    assert store.commands == [words, words]


async def test_send_command_takes_words_as_they_are_written(tmp_path: Path) -> None:
    async with always(b"+OK\r\n").at(tmp_path / "s") as store:
        connection = Connection(Endpoint(path=str(tmp_path / "s")))
        await connection.connect()
        await connection.send_command("EVAL", "return 'é'", 0, b"\xff")
        assert await connection.read_response() == b"OK"
        await connection.disconnect()
    assert store.commands == [[b"EVAL", "return 'é'".encode(), b"0", b"\xff"]]


# --- beginnings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "commands"),
    [
        ({}, []),
        ({"password": "p w"}, [[b"AUTH", b"p w"]]),
        ({"username": "é", "password": "p", "database": 3}, [[b"AUTH", "é".encode(), b"p"], [b"SELECT", b"3"]]),
        ({"username": "u"}, [[b"AUTH", b"u", b""]]),
        ({"database": 1}, [[b"SELECT", b"1"]]),
    ],
)
async def test_connect_says_who_asks_and_for_which_database(
    tmp_path: Path, who: dict[str, Any], commands: list[list[bytes]]
) -> None:
    async with always(b"+OK\r\n").at(tmp_path / "s") as store:
        connection = Connection(Endpoint(path=str(tmp_path / "s"), **who))
        await connection.connect()
        await connection.connect()
        await connection.disconnect()
        await connection.disconnect()
        await store.wait_ended()
    assert store.commands == commands
    assert store.connection_count == 1


async def test_connect_raises_what_the_server_refuses_and_leaves_nothing_open(tmp_path: Path) -> None:
    async with always(b"-WRONGPASS invalid\r\n", BREAK).at(tmp_path / "s") as store:
        connection = Connection(Endpoint(path=str(tmp_path / "s"), password="p", database=2))
        for _ in range(2):
            with pytest.raises(ReplyError, match=r"^WRONGPASS invalid$"):
                await connection.connect()
            await store.wait_ended()
    assert store.connection_count == 2


@pytest.mark.parametrize(
    "endpoint",
    [Endpoint(path="/no/such/socket"), Endpoint(path="/a\0b"), Endpoint(host="a" * 64), Endpoint(host="h..h")],
)
async def test_connect_to_what_cannot_be_is_an_error_of_the_system(endpoint: Endpoint) -> None:
    with pytest.raises(OSError):
        await Connection(endpoint).connect()


async def test_connection_over_tcp_sends_at_once() -> None:
    async with always(b"+OK\r\n").on_port() as store:
        connection = Connection(Endpoint(host="127.0.0.1", port=store.port))
        await connection.connect()
        writer = connection._writer
        assert writer is not None
        assert writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        await connection.disconnect()


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"$10\r\nabc", b"*2\r\n:1\r\n", b"+OK"])
async def test_server_that_closes_in_the_middle_of_a_reply_is_an_error_and_can_be_asked_again(
    tmp_path: Path, said: bytes
) -> None:
    answers = iter([(*([said] if said else []), BREAK), (b":7\r\n",)])
    async with ScriptedStore(lambda command: next(answers)).at(tmp_path / "s"):
        connection = Connection(Endpoint(path=str(tmp_path / "s")))
        await connection.connect()
        with pytest.raises(ConnectionResetError, match="has closed the connection"):
            await asked(connection, [b"ASK"])
        await connection.disconnect(nowait=True)
        await connection.connect()
        assert await asked(connection, [b"ASK"]) == [7]
        await connection.disconnect()


async def test_server_of_something_else_is_an_error(tmp_path: Path) -> None:
    async with always(b"HTTP/1.1 400 Bad Request\r\n\r\n").at(tmp_path / "s"):
        connection = Connection(Endpoint(path=str(tmp_path / "s")))
        await connection.connect()
        with pytest.raises(ConnectionError, match="this is no server of a store"):
            await asked(connection, [b"ASK"])
        await connection.disconnect(nowait=True)


async def test_connection_that_is_not_open_takes_nothing() -> None:
    connection = Connection(Endpoint())
    for call in (connection.send_command("PING"), connection.read_response()):
        with pytest.raises(ConnectionError, match="is not open"):
            await call
    await connection.disconnect()


async def test_disconnect_does_not_wait_for_a_server_that_takes_nothing(tmp_path: Path) -> None:
    async def stuck(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await release.wait()
        writer.transport.abort()
        ended.set()

    release, ended = asyncio.Event(), asyncio.Event()
    async with await asyncio.start_unix_server(stuck, tmp_path / "s"):
        connection = Connection(Endpoint(path=str(tmp_path / "s")))
        await connection.connect()
        writer = connection._writer
        assert writer is not None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await connection.send_packed_command(b"x" * (1 << 23))
        await connection.disconnect(nowait=True)
        async with asyncio.timeout(5.0):
            await writer.wait_closed()
        release.set()
        await ended.wait()


# --- TLS -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A certificate of `localhost` that is its own authority."""

    certificate: str
    key: str
    locked_key: str
    """The same, with a password."""

    def server(self, *, wants_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if wants_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.certificate)
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")

    def run(words: str) -> None:
        subprocess.run([openssl, *words.split()], cwd=folder, check=True, capture_output=True)

    run(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key -out certificate -days 2 "
        "-subj /CN=store -addext subjectAltName=DNS:localhost"
    )
    run("pkcs8 -topk8 -in key -out locked -passout pass:secret")
    return Files(
        **{
            name: str(folder / file)
            for name, file in (("certificate", "certificate"), ("key", "key"), ("locked_key", "locked"))
        }
    )


def secure(store: ScriptedStore, tls: Tls, *, host: str = "localhost") -> Connection:
    return Connection(Endpoint(host=host, port=store.port, password="p", tls=tls))


async def test_tls_with_the_authority_and_the_name_is_spoken(files: Files) -> None:
    async with always(b"+OK\r\n").on_port(files.server()) as store:
        connection = secure(store, Tls(authority=files.certificate))
        for _ in range(2):
            await connection.connect()
            assert await asked(connection, [b"PING"], [b"PING"]) == [b"OK", b"OK"]
            await connection.disconnect()
    assert store.commands == 2 * [[b"AUTH", b"p"], [b"PING"], [b"PING"]]


async def test_tls_without_the_authority_is_refused_before_the_password_is_told(files: Files) -> None:
    async with always(b"+OK\r\n").on_port(files.server()) as store:
        with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate"):
            await secure(store, Tls()).connect()
        with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate"):
            await secure(store, Tls(is_name_checked=False)).connect()
    assert store.commands == []


async def test_tls_with_another_name_is_refused_unless_the_check_is_off(files: Files) -> None:
    async with always(b"+OK\r\n").on_port(files.server()) as store:
        with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
            await secure(store, Tls(authority=files.certificate), host="127.0.0.1").connect()
        assert store.commands == []
        connection = secure(store, Tls(authority=files.certificate, is_name_checked=False), host="127.0.0.1")
        await connection.connect()
        await connection.disconnect()
    assert store.commands == [[b"AUTH", b"p"]]


async def test_tls_without_any_check_is_spoken_with_anybody(files: Files) -> None:
    async with always(b"+OK\r\n").on_port(files.server()) as store:
        connection = secure(store, Tls(is_certificate_checked=False, is_name_checked=False), host="127.0.0.1")
        await connection.connect()
        assert await asked(connection, [b"PING"]) == [b"OK"]
        await connection.disconnect()


async def test_tls_shows_a_certificate_to_a_server_that_wants_one(files: Files) -> None:
    async with always(b"+OK\r\n").on_port(files.server(wants_certificate=True)) as store:
        connection = secure(store, Tls(authority=files.certificate, certificate=files.certificate, key=files.key))
        await connection.connect()
        assert await asked(connection, [b"PING"]) == [b"OK"]
        await connection.disconnect()
        with pytest.raises(OSError):
            await secure(store, Tls(authority=files.certificate)).connect()
    assert store.commands == [[b"AUTH", b"p"], [b"PING"]]


def test_key_with_a_password_is_an_error_and_no_question(files: Files) -> None:
    with pytest.raises(ssl.SSLError):
        context_of(Tls(certificate=files.certificate, key=files.locked_key))


async def test_tls_that_breaks_in_the_middle_of_a_reply_is_an_error(files: Files) -> None:
    answers = iter([(b"+OK\r\n",), (b"$10\r\nabc", BREAK)])
    async with ScriptedStore(lambda command: next(answers)).on_port(files.server()) as store:
        connection = secure(store, Tls(authority=files.certificate))
        await connection.connect()
        with pytest.raises(OSError):
            await asked(connection, [b"ASK"])
        await connection.disconnect(nowait=True)


async def test_tls_with_a_server_that_never_answers_ends_with_the_caller(files: Files) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.set_result(await reader.read(1 << 16))
        rest.set_result(await reader.read())
        writer.close()

    hello, rest = asyncio.Future[bytes](), asyncio.Future[bytes]()
    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = Connection(Endpoint(host="localhost", port=port, tls=Tls(authority=files.certificate)))
        connecting = asyncio.ensure_future(connection.connect())
        assert (await hello)[:1] == b"\x16"  # a handshake
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        async with asyncio.timeout(5.0):
            assert await rest == b""


async def test_tls_that_the_server_leaves_half_open_ends_at_once(files: Files) -> None:
    """It has the socket and takes nothing, not even our goodbye."""
    async with ScriptedStore(lambda command: [b"+OK\r\n"] if command[0] == b"AUTH" else []).on_port(
        files.server()
    ) as store:
        connection = secure(store, Tls(authority=files.certificate))
        await connection.connect()
        await connection.send_command("ASK")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await connection.read_response()
        await connection.disconnect(nowait=True)
        await store.wait_ended()
    assert store.commands == [[b"AUTH", b"p"], [b"ASK"]]
