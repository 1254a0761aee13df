"""Events a second: role -> control plane -> client, against a plain grpc.aio server stream of the same messages.

    floor              server ────────────────────────▶ client     one event a message
    platform, stub     role ───▶ control plane ───────▶ client     the generated stub, counting events
    platform, client   role ───▶ control plane ───────▶ client     omniflow.Client, giving Output values

Each on 1 and on 32 streams at once, over TCP on the loopback address, with the default yield window of 64.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

import omniflow
from omniflow.graph.v1 import graph_service_pb2, graph_service_pb2_grpc
from tests.bench import graphs
from tests.bench.floors import grpc_stream
from tests.bench.harness.contest import Contestant, Results, Work, compete
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report, cpu_text
from tests.bench.harness.statistics import median
from tests.bench.setting import floor, serving

STREAMS = (1, 32)
EVENTS = 32_000
"""Of one round, over all its streams."""
HOLD = 0.8

Stream = Callable[[int], Awaitable[int]]
"""Runs one stream of so many events; returns how many came."""


async def run(options: Options) -> Report:
    """The bench."""
    async with (
        floor("grpc_stream") as plain,
        serving([graphs.burst()], [graphs.BURST_ROLE]) as system,
        grpc.aio.insecure_channel(plain.target) as floor_channel,
        grpc.aio.insecure_channel(system.target) as channel,
        system.connect() as client,
    ):
        ours = {"control": system.control.pid, "role": system.role("burst-0").pid}
        stub = graph_service_pb2_grpc.GraphServiceStub(channel)
        kinds: dict[str, tuple[Stream, dict[str, int]]] = {
            "floor": (functools.partial(floor_stream, floor_channel), {"server": plain.process.pid}),
            "platform, stub": (functools.partial(stub_stream, stub), ours),
            "platform, client": (functools.partial(_client_stream, client), ours),
        }
        contestants = [
            Contestant(
                name=_name(kind, streams),
                run=functools.partial(run_streams, one, streams, options.scaled(EVENTS)),
                processes=processes,
            )
            for streams in STREAMS
            for kind, (one, processes) in kinds.items()
        ]
        results = await compete(contestants, options)
    return _report(results)


def _name(kind: str, streams: int) -> str:
    return f"{kind} x{streams}"


async def run_streams(one: Stream, streams: int, events: int) -> Work:
    """So many events over so many streams at once."""
    each = events // streams
    counts = await asyncio.gather(*(one(each) for _ in range(streams)))
    assert counts == [each] * streams, f"{counts} events came instead of {each}"
    return Work(count=each * streams)


async def floor_stream(channel: grpc.aio.Channel, events: int) -> int:
    """From the floor; returns how many events came."""
    method: Any = channel.unary_stream(
        grpc_stream.METHOD, response_deserializer=graph_service_pb2.StreamCallResponse.FromString
    )
    count = 0
    async for response in method(str(events).encode()):
        for event in response.events:
            count += event.HasField("value")
    return count


async def stub_stream(stub: graph_service_pb2_grpc.GraphServiceStub, events: int) -> int:
    """From graph `burst`, by the generated stub; returns how many events came."""
    request = graph_service_pb2.StreamCallRequest(graph="graphs/burst")
    request.call.inputs["parameters"].json.struct_value["count"] = events
    count = 0
    async for response in stub.StreamCall(request):
        for event in response.events:
            count += event.HasField("value")
    return count


async def _client_stream(client: omniflow.Client, events: int) -> int:
    count = 0
    async for event in client.stream("burst", parameters=omniflow.Json({"count": events})):
        count += isinstance(event, omniflow.Output)
    return count


def _report(results: Results) -> Report:
    rows, checks = [], []
    for streams in STREAMS:
        base = _name("floor", streams)
        for kind in ("floor", "platform, stub", "platform, client"):
            name = _name(kind, streams)
            rows.append(
                [
                    name,
                    f"{median(results.rates(name)) / 1e3:.1f}",
                    f"{results.rate_ratio(name, base):.2f}",
                    cpu_text(results.cpu_us(name)),
                ]
            )
            if kind != "floor":
                what = f"events/s, {name} against the floor"
                checks.append(Check(what=what, value=results.rate_ratio(name, base), at_least=HOLD))
    return Report(
        name="events",
        title="events: role -> control plane -> client, yield window 64",
        columns=["contestant", "1000 events/s", "of floor", "CPU us/event"],
        rows=rows,
        checks=checks,
        looks=results.looks,
        details=results.as_json(),
    )
