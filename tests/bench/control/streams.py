"""Tokens of one role on their way to the client, over gRPC and over each lane, beside a plain stream of the same messages.

    raw     server ────────────────────────▶ client     grpc.aio, one event a message
    ours    role ───▶ control plane ───────▶ client     the generated stub, counting events

On 1 and on 16 calls at once, with the default yield window of 64.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping

import grpc.aio

from omniflow.graph.v1 import graph_service_pb2_grpc
from tests.bench.events import EVENTS, HOLD, floor_stream, run_streams, stub_stream
from tests.bench.harness.contest import Contestant, Results, compete
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Section, cpu_text
from tests.bench.harness.statistics import median
from tests.bench.setting import floor
from tests.support.system import System

STREAMS = (1, 16)
RAW = "raw grpc.aio stream"


async def run(systems: Mapping[str, System], options: Options) -> Results:
    """The contest."""
    async with contextlib.AsyncExitStack() as stack:
        plain = await stack.enter_async_context(floor("grpc_stream"))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(plain.target))
        kinds = {RAW: (functools.partial(floor_stream, channel), {"server": plain.process.pid})}
        for lane, system in systems.items():
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(system.target))
            stub = graph_service_pb2_grpc.GraphServiceStub(channel)
            processes = {"control": system.control.pid, "role": system.role("burst-0").pid}
            kinds[_ours(lane)] = (functools.partial(stub_stream, stub), processes)
        contestants = [
            Contestant(
                name=_name(kind, streams),
                run=functools.partial(run_streams, one, streams, options.scaled(EVENTS)),
                processes=processes,
            )
            for streams in STREAMS
            for kind, (one, processes) in kinds.items()
        ]
        return await compete(contestants, options)


def report(results: Results, systems: Mapping[str, System]) -> tuple[Section, list[Check]]:
    """The table, and the promise for each lane."""
    rows, checks = [], []
    for streams in STREAMS:
        base = _name(RAW, streams)
        for kind in (RAW, *map(_ours, systems)):
            name = _name(kind, streams)
            ratio = results.rate_ratio(name, base)
            rows.append(
                [name, f"{median(results.rates(name)) / 1e3:.1f}", f"{ratio:.2f}", cpu_text(results.cpu_us(name))]
            )
            if kind != RAW:
                checks.append(Check(what=f"events/s, {name}, of {RAW}", value=ratio, at_least=HOLD))
    columns = ["tokens of one role", "1000 events/s", "of raw", "CPU us/event"]
    return Section(title="token streams", columns=columns, rows=rows), checks


def _ours(lane: str) -> str:
    return f"ours, {lane}"


def _name(kind: str, streams: int) -> str:
    return f"{kind}, {streams} call{'s' if streams > 1 else ''}"
