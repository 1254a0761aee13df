"""Links that outlive their transports. Over every transport, and from each to each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from omniflow.links.port import LaneKind
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import Json
from omniflow_roles.harness.role_server import RoleServer
from omniflow_roles.noop import Count, Echo, Sleep
from tests.roles import driver as driver_module
from tests.roles.driver import Result, kinds, open_pipe, parts_of, start_command, values
from tests.roles.running import eventually, running
from tests.support.pipes import KINDS, Pipe

LINK = "a link"
SLEEP = {"parameters": Json({"seconds": 60})}


class Peer:
    """A control plane whose transports come and go. Keeps what it takes in, and how many messages that was."""

    def __init__(self, server: RoleServer) -> None:
        self.server = server
        self.received = 0
        self.sent = 0
        self.results: list[Result] = []
        self.told = 0
        """What the role has received, by its last word."""
        self.pipe: Pipe

    @contextlib.asynccontextmanager
    async def dialled(self, kind: str, *, resuming: bool = False, **hello: Any) -> AsyncIterator[messages.ReplicaHello]:
        """A transport of that kind, on which hellos were exchanged; it is dropped at the end."""
        driver_module.transport = kind
        async with open_pipe(self.server.identity.endpoint) as self.pipe:
            options: dict[str, Any] = {
                "replica_incarnation_id": self.server.identity.incarnation_id,
                "incarnation_id": "control-life-1",
                "link_id": LINK,
                "is_resuming": resuming,
                "received_messages": self.received,
            }
            command = messages.ExecuteCommand(hello=messages.ControlHello(**(options | hello)))
            await self.pipe.write(messages.ExecuteRequest(commands=[command]).SerializeToString())
            yield (await self._read()).results[0].hello

    async def send(self, *commands: messages.ExecuteCommand) -> None:
        self.sent += 1
        await self.pipe.write(messages.ExecuteRequest(commands=commands).SerializeToString())

    async def send_receipt(self) -> None:
        """Tells what was taken in."""
        self.sent += 1
        await self.pipe.write(messages.ExecuteRequest(received_messages=self.received).SerializeToString())

    async def take(self, count: int = 1) -> None:
        """Takes messages in."""
        for _ in range(count):
            frame = await self._read()
            self.received += 1
            self.told = max(self.told, frame.received_messages)
            self.results += [part for result in frame.results if result.handle for part in parts_of(result)]

    async def finish(self, handle: int) -> list[Result]:
        """Takes everything up to the last result of a handle."""
        while not any(r.handle == handle and r.WhichOneof("result") in ("completed", "failed") for r in self.results):
            await self.take()
        return [result for result in self.results if result.handle == handle]

    async def _read(self) -> messages.ExecuteResponse:
        async with asyncio.timeout(10):
            message = await self.pipe.read()
        assert message is not None, "the role ended it"
        return messages.ExecuteResponse.FromString(message)


@pytest.fixture
async def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Peer]:
    monkeypatch.setattr(driver_module, "transport", "grpc")
    async with running(tmp_path, Count(), Sleep(), Echo(), lanes=tuple(LaneKind), heartbeat_s=0.05) as server:
        yield Peer(server)


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
async def test_stream_goes_on_over_another_transport_without_loss_or_doubling(
    peer: Peer, first: str, second: str
) -> None:
    count = {"parameters": Json({"count": 1000})}
    async with peer.dialled(first) as hello:
        assert (hello.is_resumed, hello.received_messages) == (False, 0)
        await peer.send(start_command(1, "noop.count", count, yield_window=2000))
        await peer.take()
    async with peer.dialled(second, resuming=True) as hello:
        assert hello.is_resumed
        assert hello.received_messages == 1
        await peer.send(start_command(2, "noop.echo", {"text": "on the next"}))
        results = await peer.finish(1)
        assert values(results, "text") == [str(index) for index in range(1000)]
        assert kinds(results).count("accepted") <= 1
        assert values(await peer.finish(2), "text") == ["on the next"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_ends_while_there_is_no_transport_is_told_by_the_next(peer: Peer, kind: str) -> None:
    async with peer.dialled(kind):
        await peer.send(start_command(1, "noop.sleep", {"parameters": Json({"seconds": 0.2})}))
        await eventually(lambda: peer.server.host.load().running == 1)
    await eventually(lambda: peer.server.host.load().running == 0)
    async with peer.dialled(kind, resuming=True) as hello:
        assert hello.is_resumed
        assert kinds(await peer.finish(1))[-1] == "completed"


@pytest.mark.parametrize("kind", KINDS)
async def test_orderly_end_stops_the_work_at_once(peer: Peer, kind: str) -> None:
    async with peer.dialled(kind):
        await peer.send(start_command(1, "noop.sleep", SLEEP))
        await eventually(lambda: peer.server.host.load().running == 1)
        await peer.pipe.write(b"")
        assert kinds(await peer.finish(1))[-1] == "failed"
        await eventually(lambda: not peer.server._links._links)
    async with peer.dialled(kind, resuming=True) as hello:
        assert not hello.is_resumed


@pytest.mark.parametrize("kind", KINDS)
async def test_link_that_nobody_resumes_ends_and_its_work_with_it(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path, Sleep(), lanes=tuple(LaneKind), heartbeat_s=0.05, resume_grace_s=0.2) as server:
        peer = Peer(server)
        try:
            async with peer.dialled(kind):
                await peer.send(start_command(1, "noop.sleep", SLEEP))
                await eventually(lambda: server.host.load().running == 1)
            await eventually(lambda: not server.host.load().running)
            assert not server._links._links
            async with peer.dialled(kind, resuming=True) as hello:
                assert not hello.is_resumed
        finally:
            driver_module.transport = "grpc"


@pytest.mark.parametrize("hello", [{"link_id": "another"}, {"link_id": ""}])
async def test_hello_of_another_link_takes_nothing_away(peer: Peer, hello: dict[str, str]) -> None:
    async with peer.dialled("grpc"):
        await peer.send(start_command(1, "noop.sleep", SLEEP))
        await eventually(lambda: peer.server.host.load().running == 1)
        async with Peer(peer.server).dialled("grpc", resuming=True, **hello) as answer:
            assert not answer.is_resumed
        assert peer.server.host.load().running == 1


async def test_transport_that_is_replaced_ends_and_its_late_words_change_nothing(peer: Peer) -> None:
    async with peer.dialled("unix-frames"):
        await peer.send(start_command(1, "noop.sleep", SLEEP))
        await eventually(lambda: peer.server.host.load().running == 1)
        replaced = peer.pipe
        async with peer.dialled("grpc", resuming=True) as hello:
            assert hello.is_resumed
            with contextlib.suppress(ConnectionError):
                await replaced.write(
                    messages.ExecuteRequest(commands=[start_command(7, "noop.sleep", SLEEP)]).SerializeToString()
                )
                while await replaced.read() is not None:
                    pass
            await peer.send(messages.ExecuteCommand(handle=1, cancel=messages.CancelActivation()))
            assert kinds(await peer.finish(1))[-1] == "failed"
            assert peer.server.host.load().running == 0


async def test_late_hello_from_before_what_was_received_is_refused_and_changes_nothing(peer: Peer) -> None:
    async with peer.dialled("grpc"):
        await peer.send(start_command(1, "noop.sleep", SLEEP))
        await peer.take(3)
        await peer.send_receipt()
        await eventually(lambda: next(iter(peer.server._links._links)).pump._received == 3)
        now, late = peer.pipe, Peer(peer.server)
        with pytest.raises(AssertionError, match="the role ended it"):
            async with late.dialled("unix-frames", resuming=True):
                raise RuntimeError("it was answered")
        peer.pipe = now
        await peer.send(messages.ExecuteCommand(handle=1, cancel=messages.CancelActivation()))
        assert kinds(await peer.finish(1))[-1] == "failed"


async def test_role_tells_what_it_has_received(peer: Peer) -> None:
    async with peer.dialled("unix-frames"):
        for _ in range(70):
            await peer.send(messages.ExecuteCommand(heartbeat=messages.StreamHeartbeat()))
        while peer.told < 64:
            await peer.take()
        while peer.told < 70:  # with a heartbeat
            await peer.take()


async def test_drain_does_not_wait_for_a_control_plane_that_is_gone(peer: Peer) -> None:
    async with peer.dialled("unix-frames"):
        pass
    await eventually(lambda: list(peer.server._links._links.values()) == [None])
    async with asyncio.timeout(1):
        await peer.server._links.close()
