"""Which store is meant, and which servers are refused."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.connecting import address_of, open_store, url_from
from omniflow_server.data.metadata.embedded import url_of
from omniflow_server.data.metadata.endpoint import Tls, endpoint_of
from omniflow_server.data.metadata.port import MetadataStore
from omniflow_server.data.metadata.server import connection_of, objections
from tests.server.data.metadata.contract import ask, opened
from tests.server.data.metadata.scripted import ScriptedStore
from tests.support.processes import Process, free_port

GOOD = {"redis_version": "7.2.4", "valkey_version": "9.1.2", "maxmemory_policy": "noeviction", "aof_enabled": "1"}


@pytest.mark.parametrize(
    ("settings_url", "environ", "url"),
    [
        ("", {}, ""),
        ("", {"REDIS_PORT": "tcp://10.0.0.1:6379", "REDIS_PASSWORD": "x"}, ""),
        ("unix:///run/store.sock", {"REDIS_URL": "redis://other"}, "unix:///run/store.sock"),
        ("", {"REDIS_URL": "rediss://u:p@host:1/2", "REDIS_HOST": "other"}, "rediss://u:p@host:1/2"),
        ("", {"REDIS_HOST": "host"}, "redis://host:6379/0"),
        ("", {"REDIS_HOST": "::1", "REDIS_PORT": "7000"}, "redis://[::1]:7000/0"),
        ("", {"REDIS_HOST": "host", "REDIS_PASSWORD": "p@ss/w:rd"}, "redis://:p%40ss%2Fw%3Ard@host:6379/0"),
    ],
)
def test_url_from_takes_the_first_that_is_set(settings_url: str, environ: Mapping[str, str], url: str) -> None:
    assert url_from(settings_url, environ) == url


@pytest.mark.parametrize(
    ("settings_url", "environ", "source", "words"),
    [
        ("http://u:secret@h", {}, "control.metadata_url", "begins with none of redis://"),
        ("redis://u:secret@h:x", {}, "control.metadata_url", "a port that is no number"),
        ("", {"REDIS_URL": "redis://u:secret@h/abc"}, "REDIS_URL", "not the number of a database"),
        ("", {"REDIS_URL": "unix://secret"}, "REDIS_URL", "no absolute path"),
        ("", {"REDIS_HOST": "h", "REDIS_PORT": "tcp://10.0.0.1:6379"}, "REDIS_PORT", "set REDIS_URL instead"),
        ("", {"REDIS_HOST": "h", "REDIS_PORT": "0"}, "REDIS_PORT", "not the number of a port"),
        ("", {"REDIS_HOST": "redis://:secret@h"}, "REDIS_HOST", "set REDIS_URL for a URL"),
    ],
)
def test_url_from_names_what_is_wrong_and_no_password(
    settings_url: str, environ: Mapping[str, str], source: str, words: str
) -> None:
    with pytest.raises(OmniFlowError, match=words) as caught:
        url_from(settings_url, environ)
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert [violation.field for violation in caught.value.violations] == [source]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://user:secret@host", "redis://host:6379/0"),
        ("rediss://:secret@[::1]:7000/3?ssl_ca_certs=/x", "rediss://[::1]:7000/3"),
        ("unix://user:secret@/run/a%20b.sock?password=secret", "unix:///run/a b.sock"),
    ],
)
def test_address_of_has_no_credentials(url: str, address: str) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"valkey_version": "7.1.9"}, "it is Valkey 7.1.9"),
        ({"valkey_version": "", "redis_version": "6.0.16"}, "it is Redis 6.0.16"),
        ({"valkey_version": "", "redis_version": ""}, "it is Redis of an unknown version"),
        ({"redis_mode": "cluster"}, "it is a cluster"),
        ({"role": "slave"}, "it is a replica"),
        ({"maxmemory_policy": "volatile-ttl"}, "its maxmemory-policy is volatile-ttl"),
        ({"maxmemory_policy": None}, "its maxmemory-policy is unknown"),
        ({"aof_enabled": "0"}, "does not write what it is told to disk"),
        ({"aof_enabled": None}, "does not write what it is told to disk"),
    ],
)
def test_server_that_would_lose_rows_is_refused(changes: Mapping[str, str | None], words: str) -> None:
    info = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    (found,) = objections(info, allow_volatile=False)
    assert words in found


@pytest.mark.parametrize(
    "changes", [{}, {"valkey_version": "7.2.0"}, {"valkey_version": "", "redis_version": "6.2.0"}, {"role": "master"}]
)
def test_server_that_keeps_rows_is_taken(changes: Mapping[str, str]) -> None:
    assert list(objections({**GOOD, **changes}, allow_volatile=False)) == []
    assert list(objections({**GOOD, **changes, "aof_enabled": "0"}, allow_volatile=True)) == []


def test_tls_checks_the_name_and_the_authority(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.touch()
    tls = endpoint_of(f"rediss://host?ssl_ca_certs={quote(str(authority))}").tls
    assert tls == Tls(authority=str(authority), is_certificate_checked=True, is_name_checked=True)
    assert endpoint_of("rediss://host?ssl_check_hostname=no").tls == Tls(is_name_checked=False)
    with pytest.raises(OmniFlowError, match="there is no such file"):
        connection_of("rediss://host?ssl_ca_certs=/no/such/file")


@pytest.mark.parametrize("option", ["colour=red", "socket_keepalive_options=1&db=x", "protocol=9"])
def test_option_that_is_unknown_is_refused(option: str) -> None:
    with pytest.raises(OmniFlowError, match="has an option that is unknown or has a wrong value") as caught:
        connection_of(f"redis://:secret@host?{option}")
    assert "secret" not in str(caught.value)


def test_client_library_is_only_imported_for_a_url() -> None:
    code = (
        "import sys, omniflow_server.data.metadata.connecting as c, omniflow_server.data.metadata.embedded, "
        "omniflow_server.data.metadata.memory; c.url_from('', {}); sys.exit('hiredis' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def opened_store(url: str, *, allow_volatile: bool = False, timeout_s: float = 5.0) -> MetadataStore:
    return await open_store(url, namespace="n", allow_volatile=allow_volatile, timeout_s=timeout_s)


@pytest.mark.integration
async def test_open_store_connects_to_the_embedded_server(store_socket: Path) -> None:
    store = await opened_store(url_of(store_socket))
    try:
        assert await opened(store, "a") > 0
    finally:
        await store.close()


@pytest.mark.integration
async def test_open_store_refuses_a_server_that_is_set_up_wrong(tmp_path: Path, own_store: Process) -> None:
    url = url_of(tmp_path / "store.sock")
    await ask(url, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    await ask(url, "CONFIG", "SET", "appendonly", "no")
    await ask(url, "REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(OmniFlowError) as caught:
        await opened_store(url)
    assert caught.value.reason is Reason.INVALID_CONFIG
    found = [violation.description for violation in caught.value.violations]
    assert [text.split(",")[0].split(";")[0] for text in found] == [
        "it is a replica",
        "its maxmemory-policy is allkeys-lru",
        "it does not write what it is told to disk",
    ]
    await ask(url, "REPLICAOF", "NO", "ONE")
    await ask(url, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    store = await opened_store(url, allow_volatile=True)
    await store.close()


@pytest.mark.integration
async def test_open_store_wants_the_right_password_and_tells_none(
    tmp_path: Path, own_store: Process, caplog: pytest.LogCaptureFixture
) -> None:
    url = url_of(tmp_path / "store.sock")
    await ask(url, "CONFIG", "SET", "requirepass", "open sesame")
    with caplog.at_level(logging.DEBUG):
        for options in ("", "?password=sesame-secret"):
            with pytest.raises(OmniFlowError, match="wants another user or password") as caught:
                await opened_store(url + options)
            assert caught.value.reason is Reason.INVALID_CONFIG
            assert "secret" not in str(caught.value)
        store = await opened_store(f"{url}?password={quote('open sesame')}")
        try:
            assert await opened(store, "a") > 0
        finally:
            await store.close()
    assert "sesame" not in caplog.text


@pytest.mark.integration
async def test_open_store_refuses_a_database_that_there_is_not(store_socket: Path) -> None:
    with pytest.raises(OmniFlowError, match="has no database of that number") as caught:
        await opened_store(f"{url_of(store_socket)}?db=99")
    assert caught.value.reason is Reason.INVALID_CONFIG


@pytest.mark.integration
async def test_open_store_uses_the_database_of_its_url(tmp_path: Path, own_store: Process) -> None:
    url = url_of(tmp_path / "store.sock")
    store = await opened_store(f"{url}?db=3")
    try:
        await opened(store, "a")
    finally:
        await store.close()
    assert b"db3:keys=" in await ask(url, "INFO", "keyspace")
    assert b"db0:" not in await ask(url, "INFO", "keyspace")


async def test_open_store_waits_for_a_server_that_starts(tmp_path: Path) -> None:
    info = "".join(f"{name}:{value}\r\n" for name, value in GOOD.items())
    good = f"${len(info)}\r\n{info}\r\n".encode()
    infos = iter([b"-LOADING loading the dataset\r\n", b"-ERR max number of clients reached\r\n", good])
    async with ScriptedStore(lambda words: [next(infos) if words == [b"INFO"] else b"$1\r\nx\r\n"]).at(tmp_path / "s"):
        store = await opened_store(f"unix://{tmp_path / 's'}")
        await store.close()
    assert list(infos) == []


async def test_open_store_refuses_a_server_without_scripts(tmp_path: Path) -> None:
    def answer(words: list[bytes]) -> list[bytes]:
        return [b"$0\r\n\r\n" if words == [b"INFO"] else b"-ERR unknown command 'EVAL'\r\n"]

    async with ScriptedStore(answer).at(tmp_path / "s"):
        with pytest.raises(OmniFlowError, match="cannot run Lua scripts") as caught:
            await opened_store(f"unix://{tmp_path / 's'}")
    assert caught.value.reason is Reason.INVALID_CONFIG


@pytest.mark.integration
async def test_open_store_refuses_a_user_that_may_not_run_scripts(tmp_path: Path, own_store: Process) -> None:
    url = url_of(tmp_path / "store.sock")
    await ask(url, "ACL", "SETUSER", "weak", "on", ">pass", "~*", "+@all", "-@scripting")
    with pytest.raises(OmniFlowError, match=r"\+@scripting") as caught:
        await opened_store(url.replace("unix://", "unix://weak:pass@"))
    assert caught.value.reason is Reason.INVALID_CONFIG


@pytest.mark.integration
async def test_open_store_takes_a_user_with_the_rights_that_it_names(tmp_path: Path, own_store: Process) -> None:
    url = url_of(tmp_path / "store.sock")
    rights = ("~{omniflow:*", "+@scripting", "+@read", "+@write", "+info", "+time", "+select")
    await ask(url, "ACL", "SETUSER", "fit", "on", ">pass", *rights)
    store = await opened_store(url.replace("unix://", "unix://fit:pass@"))
    try:
        assert await opened(store, "a") > 0
    finally:
        await store.close()


async def test_open_store_without_a_server_is_unavailable() -> None:
    port = free_port()
    with pytest.raises(OmniFlowError, match=f"redis://127.0.0.1:{port}/0 does not answer") as caught:
        await opened_store(f"redis://:secret@127.0.0.1:{port}", timeout_s=0.1)
    assert caught.value.reason is Reason.STORE_UNAVAILABLE
    assert caught.value.info.retry_after_s == 0.5


async def test_open_store_with_tls_of_a_server_without_names_tls() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"-ERR Protocol error\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OmniFlowError, match=f"TLS with rediss://127.0.0.1:{port}/0 failed") as caught:
            await opened_store(f"rediss://127.0.0.1:{port}")
        assert caught.value.reason is Reason.INVALID_CONFIG
