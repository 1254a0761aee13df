"""The single writer of a stream."""

from __future__ import annotations

import asyncio

import pytest

from omniflow.role.v1 import role_execution_service_pb2 as messages
from omniflow_core.errors import OmniFlowError
from omniflow_roles.harness import pump as pump_module
from omniflow_roles.harness import results
from omniflow_roles.harness.pump import WriterPump


class Pipe:
    """Takes messages; holds each write until it is let go."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.open = asyncio.Event()
        self.open.set()

    async def write(self, message: bytes) -> None:
        self.messages.append(message)
        await self.open.wait()


async def test_idle_pump_writes_a_single_frame_at_once() -> None:
    pump, pipe = WriterPump(), Pipe()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pump.run(pipe.write))
        await asyncio.sleep(0)
        pump.send(b"a")
        await asyncio.sleep(0)
        assert pipe.messages == [b"a"]
        pump.close()


async def test_frames_that_queue_up_are_joined_in_order() -> None:
    pump, pipe = WriterPump(), Pipe()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pump.run(pipe.write))
        pipe.open.clear()
        for letter in (b"a", b"b"):
            pump.send(letter)
        await asyncio.sleep(0)
        for letter in (b"c", b"d", b"e"):
            pump.send(letter)
        pipe.open.set()
        pump.close()
    assert pipe.messages == [b"ab", b"cde"]
    assert pump.message_count == 2


async def test_append_alone_wakes_nobody() -> None:
    pump, pipe = WriterPump(), Pipe()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pump.run(pipe.write))
        await asyncio.sleep(0)
        pump.append(b"a")
        for _ in range(3):
            await asyncio.sleep(0)
        assert not pipe.messages
        pump.send(b"b")
        await asyncio.sleep(0)
        assert pipe.messages == [b"ab"]
        pump.close()


async def test_messages_stay_below_the_limit_unless_one_frame_is_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "MESSAGE_BYTES", 10)
    pump, pipe = WriterPump(), Pipe()
    for frame in (b"1234", b"5678", b"9abc", b"x" * 30, b"d"):
        pump.append(frame)
    pump.close()
    await pump.run(pipe.write)
    assert pipe.messages == [b"12345678", b"9abc", b"x" * 30, b"d"]


async def test_peer_that_never_reads_ends_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "MESSAGE_BYTES", 10)
    monkeypatch.setattr(pump_module, "QUEUE_LIMIT_BYTES", 100)
    pump, pipe = WriterPump(), Pipe()
    for _ in range(20):
        pump.append(b"1234567")
    with pytest.raises(OmniFlowError, match="does not read"):
        await pump.run(pipe.write)


async def test_close_writes_what_is_queued_first() -> None:
    pump, pipe = WriterPump(), Pipe()
    pump.append(b"last words")
    pump.close()
    await pump.run(pipe.write)
    assert pipe.messages == [b"last words"]


def test_joined_frames_are_one_frame_of_many_results() -> None:
    joined = messages.ExecuteResponse.FromString(results.heartbeat() + results.accepted(7) + results.accepted(8))
    assert [result.handle for result in joined.results] == [0, 7, 8]
