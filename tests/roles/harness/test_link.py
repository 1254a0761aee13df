"""The stream itself: hellos, heartbeats, and peers that break its rules."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from omniflow.codec.error import error_from_rpc
from omniflow.internal_rpc import internal_channel
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import Json
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.harness.link import ExecuteLink
from omniflow_roles.harness.retention import RetainedCalls
from omniflow_roles.harness.role_server import RoleServer
from omniflow_roles.noop import Block, Echo, Sleep
from tests.roles.driver import dial, start_command
from tests.roles.running import driving, eventually, running


async def answer_to(endpoint: str, *frames: bytes) -> OmniFlowError:
    """The error with which a stream of raw frames ends."""
    async with internal_channel(endpoint) as channel:
        call: Any = channel.stream_stream("/omniflow.role.v1.RoleExecutionService/Execute")()
        try:
            for frame in frames:
                await call.write(frame)
            async with asyncio.timeout(5):
                while await call.read() is not grpc.aio.EOF:
                    pass
        except grpc.aio.AioRpcError as error:
            return error_from_rpc(error)
        finally:
            call.cancel()
    raise AssertionError("the stream ended well")


def frame(*commands: messages.ExecuteCommand) -> bytes:
    return messages.ExecuteRequest(commands=commands).SerializeToString()


def hello(incarnation: str) -> messages.ExecuteCommand:
    return messages.ExecuteCommand(hello=messages.ControlHello(replica_incarnation_id=incarnation))


async def test_hellos_are_exchanged(tmp_path: Path) -> None:
    async with running(tmp_path, Echo(), max_activations=7) as server:
        async with dial(server.identity.endpoint, server.identity.incarnation_id) as driver:
            del driver
        async with internal_channel(server.identity.endpoint) as channel:
            call: Any = channel.stream_stream("/omniflow.role.v1.RoleExecutionService/Execute")()
            await call.write(frame(hello(server.identity.incarnation_id)))
            answer = messages.ExecuteResponse.FromString(await call.read()).results[0]
            assert answer.handle == 0
            assert answer.hello.value_endpoint == server.identity.endpoint
            replica = answer.hello.replica
            assert replica == server.identity.message(server.host.state)
            assert replica.state == replica_pb2.REPLICA_STATE_READY
            assert (replica.max_activations, list(replica.interfaces)) == (7, ["noop.echo"])
            call.cancel()


@pytest.mark.parametrize("wanted", ["", "an earlier life"])
async def test_hello_for_another_life_is_stale(tmp_path: Path, wanted: str) -> None:
    async with running(tmp_path, Echo()) as server:
        error = await answer_to(server.identity.endpoint, frame(hello(wanted)))
        assert error.reason is Reason.STALE_EPOCH
        assert error.is_stated


async def test_broken_rules_end_the_stream_and_not_the_server(tmp_path: Path) -> None:
    async with driving(tmp_path, Echo(), Sleep()) as (server, driver):
        endpoint, life = server.identity.endpoint, server.identity.incarnation_id
        start = start_command(1, "noop.sleep", {})
        zero = start_command(0, "noop.sleep", {})
        for frames in (
            (frame(start),),
            (frame(),),
            (b"\xff\xff\xff",),
            (frame(hello(life)), b"\xff\xff\xff"),
            (frame(hello(life), hello(life)),),
            (frame(hello(life), zero),),
        ):
            error = await answer_to(endpoint, *frames)
            assert error.reason is Reason.PROTOCOL_VIOLATION, frames
        await driver.start(1, "noop.echo", {"text": "still here"})
        await driver.finish(1)


async def test_handle_in_use_is_a_violation(tmp_path: Path) -> None:
    async with driving(tmp_path, Sleep()) as (server, driver):
        for _repeat in range(2):
            await driver.parameters(1, "noop.sleep", {"seconds": 60})
        assert await driver.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert not server.host.load().waiting


async def test_silent_stream_has_a_heartbeat_also_while_a_handler_blocks(tmp_path: Path) -> None:
    async with driving(tmp_path, Block(), heartbeat_s=0.1) as (_, driver):
        await driver.parameters(1, "noop.block", {"seconds": 1.0})
        began = time.monotonic()
        for _beat in range(4):
            await driver.expect(0, "heartbeat")
        assert 0.25 < time.monotonic() - began < 0.9


async def test_busy_stream_has_no_heartbeat(tmp_path: Path) -> None:
    async with driving(tmp_path, Echo(), heartbeat_s=0.2) as (_, driver):
        began, handle = time.monotonic(), 0
        while time.monotonic() - began < 0.6:
            handle += 1
            await driver.start(handle, "noop.echo", {"text": "x"})
            await driver.finish(handle)
        assert driver.pending(0) == 0


async def test_commands_of_one_frame_are_taken_in_their_order(tmp_path: Path) -> None:
    async with driving(tmp_path, Sleep()) as (_, driver):
        start = start_command(1, "noop.sleep", {})
        cancel = messages.ExecuteCommand(handle=1, cancel=messages.CancelActivation())
        await driver.send(start, cancel)
        results = await driver.finish(1)
        assert [r.WhichOneof("result") for r in results] == ["accepted", "failed"]


async def test_unknown_command_is_ignored(tmp_path: Path) -> None:
    """A newer control plane may send what this replica does not know yet."""
    async with driving(tmp_path, Echo()) as (_, driver):
        await driver.send(
            messages.ExecuteCommand(handle=5), messages.ExecuteCommand(heartbeat=messages.StreamHeartbeat())
        )
        await driver.start(1, "noop.echo", {"text": "x"})
        await driver.finish(1)


class HeldPipe:
    """A transport whose writes finish only when the test lets them, as with a peer that is slow to read."""

    def __init__(self, *frames: bytes) -> None:
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        for one in frames:
            self.frames.put_nowait(one)
        self.open = asyncio.Event()
        self.written: list[bytes] = []
        self.is_writing = False

    async def write(self, message: bytes) -> None:
        self.is_writing = True
        try:
            await self.open.wait()
        finally:
            self.is_writing = False
        self.written.append(message)


def link_of(server: RoleServer) -> ExecuteLink:
    return ExecuteLink(
        server.host, server.identity, server.store, RetainedCalls(server.store, retain_s=0), heartbeat_s=60
    )


@pytest.mark.parametrize("last", [b"\xff\xff\xff", None], ids=["violation", "half-close"])
async def test_stream_never_ends_while_a_write_is_under_way(tmp_path: Path, last: bytes | None) -> None:
    """gRPC takes no status while a write is outstanding: the peer would wait for ever."""
    async with running(tmp_path, Sleep()) as server:
        pipe = HeldPipe(
            frame(
                hello(server.identity.incarnation_id),
                start_command(1, "noop.sleep", {"parameters": Json({"seconds": 60})}),
            )
        )
        serving = asyncio.create_task(link_of(server).serve(pipe.frames.get, pipe.write))
        await eventually(lambda: pipe.is_writing)
        assert server.host.load().running == 1
        pipe.frames.put_nowait(last)
        await eventually(lambda: not server.host.load().running)  # cancelled at once, whatever the peer reads
        assert not serving.done()
        assert pipe.is_writing
        pipe.open.set()
        if last is None:
            await serving
            results = messages.ExecuteResponse.FromString(b"".join(pipe.written)).results
            assert results[-1].WhichOneof("result") == "failed"  # a peer that only half-closed hears the end
        else:
            with pytest.raises(OmniFlowError) as caught:
                await serving
            assert caught.value.reason is Reason.PROTOCOL_VIOLATION


async def test_stream_whose_peer_is_gone_ends_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, Sleep()) as server:
        pipe = HeldPipe(frame(hello(server.identity.incarnation_id)))
        serving = asyncio.create_task(link_of(server).serve(pipe.frames.get, pipe.write))
        await eventually(lambda: pipe.is_writing)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
