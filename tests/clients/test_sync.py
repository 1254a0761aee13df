"""The synchronous client, against a server in another process: grpc.aio allows one loop in each."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import omniflow
import omniflow.sync
from omniflow import Finished, Health, OmniFlowError, Output, Reason
from tests.clients.fake_server import FakeServer

pytestmark = pytest.mark.integration


class ServerProcess:
    """The fake server as a process of its own."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("fake_server.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.target = f"127.0.0.1:{int(self._process.stdout.readline())}"

    def stop(self) -> tuple[int, int]:
        """Cancels that it got, and RPCs that were still open."""
        output, _ = self._process.communicate("", timeout=10)
        cancels, active = output.split()
        return int(cancels), int(active)


@pytest.fixture
def server_process() -> Iterator[ServerProcess]:
    process = ServerProcess()
    yield process
    process._process.kill()
    process._process.communicate()


def test_sync_client_has_the_methods_of_the_asynchronous_one(server_process: ServerProcess) -> None:
    with omniflow.sync.connect(server_process.target) as client:
        assert client.run("echo", text="hello").text("text") == "hello"
        events = list(client.stream("echo", text="hi"))
        assert [event.sequence for event in events] == [1, 2, 3, 4, 5]
        assert isinstance(events[-1], Finished)
        assert client.health() is Health.SERVING
        assert client.graphs() == []
        client.wait_ready(1)
        assert {"run", "stream", "converse", "apply"} <= set(dir(client))
        with pytest.raises(AttributeError):
            client.nothing
    assert server_process.stop() == (0, 0)


def test_sync_errors_are_typed(server_process: ServerProcess) -> None:
    with omniflow.sync.connect(server_process.target) as client:
        with pytest.raises(OmniFlowError) as caught:
            client.run("nowhere")
        assert caught.value.reason is Reason.UNKNOWN_GRAPH
        with pytest.raises(OmniFlowError):
            list(client.stream("nowhere"))
        with pytest.raises(OmniFlowError):
            client.get_call("none")


def test_sync_break_cancels_the_call(server_process: ServerProcess) -> None:
    with omniflow.sync.connect(server_process.target) as client:
        for _ in range(20):
            for event in client.stream("endless"):
                if isinstance(event, Output):
                    break
        gc.collect()
        with client.stream("endless") as events:
            next(events)
        stream = client.stream("endless")
        next(stream)
        stream.close()
    assert server_process.stop() == (22, 0)


def test_sync_conversation_carries_several_calls(server_process: ServerProcess) -> None:
    with omniflow.sync.connect(server_process.target) as client, client.converse() as conversation:
        first = conversation.start("echo", text="abc")
        second = conversation.start("echo", text="def")
        assert second.result().text("text") == "def"
        assert [event.value for event in first if isinstance(event, Output)] == ["a", "b", "c"]


def test_sync_client_serves_several_threads(server_process: ServerProcess) -> None:
    found: list[str] = []

    def work(number: int) -> None:
        found.append(client.run("echo", text=str(number)).text("text"))

    with omniflow.sync.connect(server_process.target) as client:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == [str(number) for number in range(8)]


def test_sync_clients_share_one_loop_and_end_it(server_process: ServerProcess) -> None:
    with omniflow.sync.connect(server_process.target) as first:
        with omniflow.sync.connect(server_process.target) as second:
            assert second.run("echo", text="b").text("text") == "b"
        assert first.run("echo", text="a").text("text") == "a"
        assert [thread.name for thread in threading.enumerate()].count("omniflow-sync") == 1
    assert "omniflow-sync" not in [thread.name for thread in threading.enumerate()]
    with omniflow.sync.connect(server_process.target) as again:
        assert again.run("echo", text="c").text("text") == "c"


def test_sync_client_outside_its_block_says_so() -> None:
    with pytest.raises(RuntimeError, match="block"):
        omniflow.sync.connect().run("echo")


async def test_sync_client_is_refused_beside_an_asynchronous_client(server_process: ServerProcess) -> None:
    async with omniflow.connect(server_process.target) as client:
        await client.run("echo", text="a")
        with pytest.raises(OmniFlowError, match="one loop per process") as caught:
            omniflow.sync.connect(server_process.target).__enter__()
        assert not caught.value.is_stated
        assert (await client.run("echo", text="b")).text("text") == "b"


async def test_sync_client_is_refused_beside_any_grpc_aio_server() -> None:
    async with FakeServer():
        with pytest.raises(OmniFlowError, match=r"grpc\.aio (server|channel) is open"):
            await asyncio.to_thread(omniflow.sync.connect().__enter__)


def test_asynchronous_client_is_refused_beside_a_synchronous_one(server_process: ServerProcess) -> None:
    async def use() -> None:
        async with omniflow.connect(server_process.target):
            pass

    with omniflow.sync.connect(server_process.target) as client:
        with pytest.raises(OmniFlowError, match="one loop per process"):
            asyncio.run(use())
        assert client.run("echo", text="a").text("text") == "a"


def test_sync_connect_keeps_the_signature() -> None:
    with pytest.raises(TypeError, match="unknown"):
        omniflow.sync.connect(unknown=1)  # type: ignore[call-arg]
