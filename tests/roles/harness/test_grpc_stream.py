"""The Execute stream of gRPC, whose writes the peer holds up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow.values import Json
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.harness.lanes.grpc_stream import GrpcStream
from omniflow_roles.harness.role_server import RoleServer
from omniflow_roles.noop import Sleep
from tests.roles.driver import start_command
from tests.roles.running import eventually, running


class HeldContext:
    """An RPC whose writes finish only when the test lets them, as with a peer that is slow to read."""

    def __init__(self, *frames: bytes) -> None:
        self.frames: asyncio.Queue[Any] = asyncio.Queue()
        for one in frames:
            self.frames.put_nowait(one)
        self.open = asyncio.Event()
        self.written: list[bytes] = []
        self.is_writing = False

    async def read(self) -> Any:
        return await self.frames.get()

    async def write(self, message: bytes) -> None:
        self.is_writing = True
        try:
            await self.open.wait()
        finally:
            self.is_writing = False
        self.written.append(message)


def greeting(server: RoleServer, *commands: messages.ExecuteCommand) -> bytes:
    hello = messages.ControlHello(replica_incarnation_id=server.identity.incarnation_id)
    return messages.ExecuteRequest(commands=(messages.ExecuteCommand(hello=hello), *commands)).SerializeToString()


def carry(server: RoleServer, context: Any) -> asyncio.Task[None]:
    return asyncio.create_task(GrpcStream(context, server._links.side).carry())


@pytest.mark.parametrize("last", [b"\xff\xff\xff", grpc.aio.EOF], ids=["violation", "half-close"])
async def test_stream_never_ends_while_a_write_is_under_way(tmp_path: Path, last: Any) -> None:
    """gRPC takes no status while a write is outstanding: the peer would wait for ever."""
    async with running(tmp_path, Sleep()) as server:
        start = start_command(1, "noop.sleep", {"parameters": Json({"seconds": 60})})
        context = HeldContext(greeting(server, start))
        carrying = carry(server, context)
        await eventually(lambda: context.is_writing)
        await eventually(lambda: server.host.load().running == 1)
        context.frames.put_nowait(last)
        await eventually(lambda: not server.host.load().running)  # cancelled at once, whatever the peer reads
        assert not carrying.done()
        assert context.is_writing
        context.open.set()
        if last is grpc.aio.EOF:
            await carrying
            results = messages.ExecuteResponse.FromString(b"".join(context.written)).results
            assert results[-1].WhichOneof("result") == "failed"  # a peer that only half-closed hears the end
        else:
            with pytest.raises(OmniFlowError) as caught:
                await carrying
            assert caught.value.reason is Reason.PROTOCOL_VIOLATION


async def test_stream_whose_peer_is_gone_ends_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, Sleep()) as server:
        context = HeldContext(greeting(server))
        carrying = carry(server, context)
        await eventually(lambda: context.is_writing)
        carrying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await carrying
