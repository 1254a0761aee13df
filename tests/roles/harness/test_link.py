"""The link itself: hellos, heartbeats, and peers that break its rules. Over every transport."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from omniflow.codec.error import error_from_rpc
from omniflow.role.v1 import replica_pb2
from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.errors import Reason
from omniflow_roles.noop import Block, Echo, Sleep
from tests.roles import driver as driver_module
from tests.roles.driver import dial, open_pipe, start_command
from tests.roles.running import driving, eventually, running

pytestmark = pytest.mark.usefixtures("transport")


async def refused(endpoint: str, reason: Reason, *frames: bytes) -> None:
    """Sends raw frames, and expects that the role ends it; by gRPC it also says why, on a lane there is no place for it."""
    async with open_pipe(endpoint) as pipe, asyncio.timeout(5):
        try:
            for frame in frames:
                await pipe.write(frame)
            while await pipe.read() is not None:
                pass
            said = None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            said = error_from_rpc(await error_of(pipe))
        if driver_module.transport == "grpc":
            assert said is not None
            assert (said.reason, said.is_stated) == (reason, True), frames
        else:
            assert said is None


async def error_of(pipe: Any) -> grpc.aio.AioRpcError:
    """The status of a call that has ended badly."""
    try:
        await pipe.call.read()
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the stream ended well")


def frame(*commands: messages.ExecuteCommand) -> bytes:
    return messages.ExecuteRequest(commands=commands).SerializeToString()


def hello(incarnation: str) -> messages.ExecuteCommand:
    return messages.ExecuteCommand(hello=messages.ControlHello(replica_incarnation_id=incarnation))


async def test_hellos_are_exchanged(tmp_path: Path) -> None:
    async with running(tmp_path, Echo(), max_activations=7) as server:
        async with dial(server.identity.endpoint, server.identity.incarnation_id) as driver:
            del driver
        async with open_pipe(server.identity.endpoint) as pipe:
            await pipe.write(frame(hello(server.identity.incarnation_id)))
            message = await pipe.read()
            assert message is not None
            answer = messages.ExecuteResponse.FromString(message).results[0]
            assert answer.handle == 0
            assert answer.hello.value_endpoint == server.identity.endpoint
            replica = answer.hello.replica
            assert replica == server.identity.message(server.host.state)
            assert replica.state == replica_pb2.REPLICA_STATE_READY
            assert (replica.max_activations, list(replica.interfaces)) == (7, ["noop.echo"])


@pytest.mark.parametrize("wanted", ["", "an earlier life"])
async def test_hello_for_another_life_is_stale(tmp_path: Path, wanted: str) -> None:
    async with running(tmp_path, Echo()) as server:
        await refused(server.identity.endpoint, Reason.STALE_EPOCH, frame(hello(wanted)))


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
            await refused(endpoint, Reason.PROTOCOL_VIOLATION, *frames)
        await driver.start(1, "noop.echo", {"text": "still here"})
        await driver.finish(1)


async def test_handle_in_use_is_a_violation(tmp_path: Path) -> None:
    async with driving(tmp_path, Sleep()) as (server, driver):
        for _repeat in range(2):
            await driver.parameters(1, "noop.sleep", {"seconds": 60})
        await eventually(lambda: driver.has_ended)
        if driver_module.transport == "grpc":
            assert await driver.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert not server.host.load().waiting


async def test_silent_stream_has_a_heartbeat_also_while_a_handler_blocks(tmp_path: Path) -> None:
    async with driving(tmp_path, Block(), heartbeat_s=0.1) as (_, driver):
        await driver.parameters(1, "noop.block", {"seconds": 1.0})
        began = time.monotonic()
        for _beat in range(4):
            await driver.expect(0, "heartbeat")
        assert 0.25 < time.monotonic() - began < 0.9


async def test_load_is_told_while_it_changes_also_what_others_have_started(tmp_path: Path) -> None:
    async with (
        driving(tmp_path, Sleep(), heartbeat_s=0.1) as (server, driver),
        dial(server.identity.endpoint, server.identity.incarnation_id, control="control-life-2") as other,
    ):
        await other.parameters(1, "noop.sleep", {"seconds": 60})
        await eventually(lambda: [load.running for load in driver.loads] == [1])
        await other.cancel(1)
        await eventually(lambda: [load.running for load in driver.loads] == [1, 0])


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
        assert [r.WhichOneof("result") for r in results] == ["failed"]


async def test_unknown_command_is_ignored(tmp_path: Path) -> None:
    """A newer control plane may send what this replica does not know yet."""
    async with driving(tmp_path, Echo()) as (_, driver):
        await driver.send(
            messages.ExecuteCommand(handle=5), messages.ExecuteCommand(heartbeat=messages.StreamHeartbeat())
        )
        await driver.start(1, "noop.echo", {"text": "x"})
        await driver.finish(1)
