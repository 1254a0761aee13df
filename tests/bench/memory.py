"""Memory of a process that only routes: at rest, and after each of three loads.

    calls      thousands of short calls over one role: what is kept of ended calls, so that they can be read again
    answers    over a thousand calls of 300 token events: the same, with the logs of their events
    stalled    a client that starts a call without end and does not read: its log fills to its bound, its role waits

Resident set (VmRSS) counts shared libraries in full, the proportional set (PSS) this process's part of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

import omniflow
from omniflow.graph.v1 import graph_service_pb2, graph_service_pb2_grpc
from tests.bench import graphs
from tests.bench.harness import noise
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report
from tests.bench.setting import serving
from tests.support.processes import cpu_s, peak_rss_bytes, pss_bytes, rss_bytes
from tests.support.system import System

HOLD_MIB = 80.0
CALLS = 4_000
ANSWERS = 1_200
ANSWER_EVENTS = 300
SIDE_BY_SIDE = 16
_MIB = 1 << 20


async def run(options: Options) -> Report:
    """The bench."""
    looks = [await noise.look()]
    rows: list[list[str]] = []
    details: dict[str, object] = {}

    async with serving([graphs.burst(), graphs.chain(1)], [graphs.BURST_ROLE, *graphs.echo_roles(1)]) as system:
        await asyncio.sleep(1.0)  # the start's garbage is gone, and nothing has been called

        def note(phase: str) -> float:
            pid = system.control.pid
            figures = {"rss": rss_bytes(pid), "pss": pss_bytes(pid), "peak": peak_rss_bytes(pid)}
            rows.append([phase, *(f"{value / _MIB:.1f}" for value in figures.values())])
            details[phase] = figures
            return figures["rss"] / _MIB

        idle = note("control plane, idle")
        async with system.connect() as client:
            calls, answers = options.scaled(CALLS), options.scaled(ANSWERS)
            await _side_by_side(calls, lambda: client.run("chain1", text="hello"))
            after_calls = note(f"after {calls} calls")
            parameters = omniflow.Json({"count": ANSWER_EVENTS})
            await _side_by_side(answers, lambda: client.run("burst", parameters=parameters))
            after_answers = note(f"after {answers} calls of {ANSWER_EVENTS} events")
        await _stall(system)
        note("with a reader that does not read")
        _note_roles(system, rows, details)
    looks.append(await noise.look())
    return Report(
        name="memory",
        title="memory of processes without a model, MiB",
        columns=["process", "RSS", "PSS", "peak RSS"],
        rows=rows,
        checks=[
            Check(what="RSS of a control-only process, idle", value=idle, at_most=HOLD_MIB, unit="MiB"),
            Check(
                what="RSS of a control-only process, after load",
                value=max(after_calls, after_answers),
                at_most=HOLD_MIB,
                unit="MiB",
            ),
        ],
        looks=looks,
        details=details,
    )


def _note_roles(system: System, rows: list[list[str]], details: dict[str, object]) -> None:
    for name, process in system.roles.items():
        figures = (rss_bytes(process.pid), pss_bytes(process.pid), peak_rss_bytes(process.pid))
        rows.append([f"role {name}, after the load", *(f"{value / _MIB:.1f}" for value in figures)])
        details[name] = dict(zip(("rss", "pss", "peak"), figures, strict=True))


async def _side_by_side(count: int, call: Callable[[], Awaitable[object]]) -> None:
    async def some() -> None:
        for _ in range(count // SIDE_BY_SIDE):
            await call()

    await asyncio.gather(*(some() for _ in range(SIDE_BY_SIDE)))


async def _stall(system: System) -> None:
    """Starts an endless call, reads one message, and waits until nothing moves any more."""
    async with grpc.aio.insecure_channel(system.target) as channel:
        request = graph_service_pb2.StreamCallRequest(graph="graphs/burst")
        request.call.inputs["parameters"].json.struct_value["count"] = 1_000_000_000
        stream: Any = graph_service_pb2_grpc.GraphServiceStub(channel).StreamCall(request)
        await stream.read()
        role, before_s = system.role("burst-0").pid, 0.0
        while cpu_s(role) - before_s > 0.01:  # the role's heartbeats take less
            before_s = cpu_s(role)
            await asyncio.sleep(0.5)
        stream.cancel()
