"""Many calls, many cancels, large values: what must hold of the control plane under them."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import duration_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from omniflow.dsl import Graph
from omniflow.interface import Context, Inputs
from omniflow.values import ValueType
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.compose import ControlPlane
from omniflow_server.control import calls as calls_module
from tests.roles.running import eventually
from tests.server.control.planes import channel_to, plane, settled
from tests.server.control.table import kinds
from tests.server.rpc.client import (
    Event,
    GraphClient,
    chunks_of,
    is_terminal,
    message,
    payload_in,
    stream_input,
    tensor_announced,
    text,
    texts,
)
from tests.server.rpc.interfaces import INTERFACES, graphs
from tests.support.interfaces import Gate, Words

MIB = 1024 * 1024
SIZE = 64 * MIB


# --- cancels leave nothing ---------------------------------------------------------------------------------------------


async def _cancelled_call(made: ControlPlane, client: GraphClient, chance: random.Random, number: int) -> None:
    """A call that is cut at a random point: before it is admitted, in its queue, between yields, after the last one."""
    session = f"sessions/{chance.randint(0, 3)}" if chance.random() < 0.5 else ""
    graph = chance.choice(["shout", "gate", "listen", "count"])
    inputs = {} if graph == "listen" else {"text": f"{chance.randint(1, 200)}"}
    reader = client.stream(
        graph,
        inputs=inputs,
        open_inputs="text" if graph == "listen" else "",
        session=session,
        supersede=chance.random() < 0.2,
        request_id=f"r{number}",
        detach_grace=duration_pb2.Duration(),
    )
    for _ in range(chance.randint(0, 6)):
        event = await _next(reader, chance)
        if event is None or is_terminal(event):
            break
    if chance.random() < 0.5:
        await client.cancel(request_id=f"r{number}")
    reader.call.cancel()
    await client.cancel(request_id=f"r{number}")


async def _next(reader: Any, chance: random.Random) -> Event | None:
    """The next event, or None when none comes for a moment or the call has failed."""
    reading = asyncio.ensure_future(reader.next())
    done, _ = await asyncio.wait((reading,), timeout=0.005)
    if not done:
        reading.cancel()
    try:
        return await reading  # type: ignore[no-any-return]
    except (OmniFlowError, asyncio.CancelledError):
        return None


async def _cancel_many(made: ControlPlane, client: GraphClient, count: int, seed: int) -> None:
    chance = random.Random(seed)
    for start in range(0, count, 20):
        await asyncio.gather(*(_cancelled_call(made, client, chance, seed * count + start + i) for i in range(20)))
    for gate in Gate.gates.values():
        gate.set()
    await settled(made)
    _check_nothing_is_left(made)


def _check_nothing_is_left(made: ControlPlane) -> None:
    made.calls.check_integrity()
    made.store.check_integrity()
    assert made.store.used_bytes == 0
    assert len(made.calls._admission) == 0
    assert not made.calls._admission._queues
    records = made.calls._records.values()
    assert all(record.call.scheduler.active_count == 0 for record in records)
    assert not any(record.call.running or record.call.timeouts for record in records)
    assert not any(record.detach_timer or record.deadline_timer for record in records)
    assert len(made.calls._by_request) <= len(made.calls._ended)
    Gate.reset()


def _rss_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_calls_cancelled_at_random_leave_nothing(
    made: ControlPlane, client: GraphClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "KEPT_CALLS", 16)
    await _cancel_many(made, client, 200, seed=1)
    await eventually(lambda: all(not record.call.log.reader_count for record in made.calls._records.values()))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_cancelled_calls_do_not_grow_the_process(
    made: ControlPlane, client: GraphClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 cancels after 2,000 that warm up: below 1 KB each."""
    monkeypatch.setattr(calls_module, "KEPT_CALLS", 16)
    await _cancel_many(made, client, 2_000, seed=1)
    before = _rss_bytes()
    await _cancel_many(made, client, 2_000, seed=2)
    assert (_rss_bytes() - before) / 2_000 < 1024


# --- requests are not mixed up -----------------------------------------------------------------------------------------


async def test_64_concurrent_tagged_calls_each_get_their_own(made: ControlPlane, client: GraphClient) -> None:
    async def tagged(i: int) -> None:
        words = " ".join(f"tag{i}x{j}" for j in range(10))
        if i % 3 == 0:
            response = await client.run("shout", inputs={"text": words}, call_key=f"k{i}")
            assert response.outputs["raw"].values[0].text == words.upper().replace(" ", "")
            return
        reader = client.of(f"tenant{i % 5}").stream("shout", inputs={"text": words}, call_key=f"k{i}")
        events, error = await reader.rest()
        assert error is None
        assert texts(events, "raw") == words.upper().split()
        assert texts(events) == [f"{word}!" for word in words.upper().split()]
        assert {event.call_key for event in events} == {f"k{i}"}
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))

    await asyncio.gather(*(tagged(i) for i in range(64)))
    await settled(made)


async def test_64_calls_of_one_conversation_each_get_their_own(client: GraphClient) -> None:
    async with client.converse() as stream:
        for i in range(64):
            await stream.start(f"k{i}", "shout", inputs={"text": f"a{i} b{i}"})
        found = await stream.by_key(*(f"k{i}" for i in range(64)))
        for i in range(64):
            assert texts(found[f"k{i}"]) == [f"A{i}!", f"B{i}!"]


# --- order under load --------------------------------------------------------------------------------------------------


class Split(Words):
    """Numbers; even and odd ones by branches of their own."""

    name = "test.split"
    outputs = {"even": Words.outputs["text"], "odd": Words.outputs["text"]}

    async def run(self, inputs: Inputs, context: Context) -> Any:
        for i in range(int(str(inputs["text"]))):
            yield {"odd" if i % 2 else "even": str(i)}


class Delayed(Words):
    """The same after some turns of the loop: the even branch is much slower than the odd one."""

    name = "test.delayed"

    async def run(self, inputs: Inputs, context: Context) -> Any:
        number = int(str(inputs["text"]))
        for _ in range(random.Random(number).randint(0, 3 if number % 2 else 20)):
            await asyncio.sleep(0)
        return {"text": str(number)}


def two_branches() -> Graph:
    graph = Graph("branches")
    split = graph.node("split", Split, inline=True)
    even, odd = graph.node("even", Delayed, inline=True), graph.node("odd", Delayed, inline=True)
    out = graph.output("text", ValueType.TEXT)
    graph.input("text", ValueType.TEXT) >> split.inputs.field("text")
    split.even >> even.inputs.field("text")
    split.odd >> odd.inputs.field("text")
    even.text >> out
    odd.text >> out
    return graph


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
async def test_two_branches_of_different_speed_keep_the_order(count: int) -> None:
    """0 to 999, each once; also with one item, and with none."""
    async with plane(Split, Delayed, graphs=(two_branches(),)) as made, channel_to(made.target) as channel:
        events, error = await GraphClient(channel).stream("branches", inputs={"text": str(count)}).rest()
        assert error is None
        assert texts(events) == [str(i) for i in range(count)]
        assert kinds(events)[-1] == "finished"


async def test_input_behind_the_last_one_is_refused_and_not_lost(client: GraphClient) -> None:
    async with client.converse() as stream:
        await stream.start("k", "listen", open_inputs="text")
        await stream.send(
            message("k", input=stream_input("text", text("a"))),
            message("k", input=stream_input("text", text("b"), is_last=True)),
            message("k", input=stream_input("text", text("late"))),
        )
        events = (await stream.by_key("k"))["k"]
        assert kinds(events)[-1] == "failed"
        assert "input 'text' is closed" in events[-1].failed.status.message


async def _push_until_refused(client: GraphClient, call_id: str) -> tuple[list[str], Reason]:
    """What was taken, and why the next was not."""
    taken: list[str] = []
    while True:
        addition = stream_input("text", text(str(len(taken))))
        try:
            await client.push(call_id, len(taken) + 1, input=addition)
        except OmniFlowError as error:
            return taken, error.reason
        taken.append(f"{len(taken)}!")


@pytest.mark.parametrize("count", range(8))
async def test_input_against_a_cancel_is_answered_and_what_was_given_is_in_order(
    client: GraphClient, count: int
) -> None:
    reader = client.stream("listen", open_inputs="text")
    call_id = (await reader.expect("accepted")).accepted.call_id
    await reader.expect("started")
    pushing = asyncio.ensure_future(_push_until_refused(client, call_id))
    given = [(await reader.expect("value")).value.text for _ in range(count)]
    await client.cancel(call_id)
    events, error = await reader.rest()
    taken, reason = await pushing
    assert reason is Reason.CALL_ENDED
    assert error is not None
    given += texts(events)
    assert given == taken[: len(given)]


# --- large values ------------------------------------------------------------------------------------------------------


def _large(seed: int) -> bytes:
    return random.Random(seed).randbytes(MIB) * (SIZE // MIB)


async def _there_and_back(client: GraphClient, data: bytes) -> bytes:
    """The tensor in pieces through a conversation and back."""
    async with client.converse() as stream:
        await stream.start("k", "same", inputs={"tensor": tensor_announced(len(data))})

        async def upload() -> None:
            for chunk in chunks_of(data):
                await stream.send(message("k", chunk=chunk))

        uploading = asyncio.ensure_future(upload())
        events = (await stream.by_key("k"))["k"]
        await uploading
        assert kinds(events)[-1] == "finished"
        return payload_in(events)


async def test_64_mib_tensor_goes_in_and_out_with_default_limits(made: ControlPlane, client: GraphClient) -> None:
    data = _large(1)
    assert hashlib.sha256(await _there_and_back(client, data)).digest() == hashlib.sha256(data).digest()
    await settled(made)
    await eventually(lambda: made.store.used_bytes == 0)


async def test_large_tensor_goes_in_by_push_input(client: GraphClient) -> None:
    data = _large(2)[: 8 * MIB]
    reader = client.stream("same", inputs={"tensor": tensor_announced(len(data))})
    call_id = (await reader.expect("accepted")).accepted.call_id
    for ordinal, chunk in enumerate(chunks_of(data), 1):
        await client.push(call_id, ordinal, chunk=chunk)
    events, error = await reader.rest()
    assert error is None
    assert payload_in(events) == data


async def test_large_tensor_that_is_cut_is_resumed_exactly(client: GraphClient) -> None:
    data = _large(3)[: 4 * MIB]
    async with client.converse() as stream:
        await stream.start("k", "same", inputs={"tensor": tensor_announced(len(data))})
        token = (await stream.expect("accepted")).accepted.resume_token
        for chunk in chunks_of(data):
            await stream.send(message("k", chunk=chunk))
        seen = [await stream.next() for _ in range(6)]
    last = seen[-1].sequence if seen[-1] is not None else 0
    events, error = await client.resume(token, last).rest()
    assert error is None
    assert payload_in([e for e in seen if e is not None] + events) == data


@pytest.fixture
async def apart() -> AsyncIterator[tuple[GraphClient, Any]]:
    """A client and a health stub on connections of their own, so that neither waits behind the other's bytes."""
    async with plane(*INTERFACES, graphs=graphs()) as made:
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with (
            grpc.aio.insecure_channel(made.target, options=options) as one,
            grpc.aio.insecure_channel(made.target, options=options) as other,
        ):
            yield GraphClient(one), health_pb2_grpc.HealthStub(other)


async def test_health_answers_while_large_tensors_flow(apart: tuple[GraphClient, Any]) -> None:
    """Client and server share one loop here, so this holds both to account. p99 < 200 ms on a quiet machine."""
    client, health = apart
    data = _large(4)
    flowing = asyncio.ensure_future(_there_and_back(client, data))
    waits_s = []
    while not flowing.done():
        began_s = time.perf_counter()
        await health.Check(health_pb2.HealthCheckRequest())
        waits_s.append(time.perf_counter() - began_s)
    assert len(await flowing) == SIZE
    waits_s.sort()
    assert len(waits_s) >= 20
    assert waits_s[int(len(waits_s) * 0.99)] < 0.5


# --- silence -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_pings_in_a_minute_of_silence_are_not_held_against_the_client(made: ControlPlane) -> None:
    """A client behind NAT pings every 10 s; a long prefill says nothing. No GOAWAY, and the call goes on."""
    options = (
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
    )
    async with grpc.aio.insecure_channel(made.target, options=options) as channel:
        client = GraphClient(channel)
        hour = duration_pb2.Duration(seconds=3_600)
        reader = client.stream("gate", inputs={"text": "g"}, heartbeat_interval=hour)
        for kind in ("accepted", "started", "value"):
            await reader.expect(kind)
        reading = asyncio.ensure_future(reader.next())
        done, _ = await asyncio.wait((reading,), timeout=62)
        assert not done, "the stream ended in silence"
        Gate.gates["g"].set()
        event = await reading
        assert event is not None
        assert event.value.text == "g"
        assert (await reader.rest())[1] is None
