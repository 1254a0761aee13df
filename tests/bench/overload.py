"""Ten times more calls than the replicas can run: how fast the rest is refused, and what it costs those that are let in.

    idle       one call at a time
    loaded     calls at even times, 0.95 of what the replicas can run: the baseline
    overload   one tenant offers 10 times what the replicas can run, another one a tenth of it

Each of two replicas runs 8 sleeps at once, of 0.1 to 0.3 s; `control.max_queue` is 1, so as many may wait. A call that is
let in waits for at most about as long as one runs then. The second tenant is within its share, so the flood of the first
must not keep it out.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc.aio

from omniflow.codec.error import error_from_rpc
from omniflow.dsl import Graph
from omniflow.flow import RolePlan
from omniflow.graph.v1 import graph_service_pb2, graph_service_pb2_grpc
from omniflow.values import ValueType
from omniflow_core.errors import Reason
from omniflow_roles.noop import Sleep
from tests.bench.harness import noise
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report
from tests.bench.harness.statistics import percentile
from tests.support.processes import cpu_s, rss_bytes
from tests.support.system import running_system

REPLICAS = 2
ACTIVATIONS = 8
SLEEP_S = 0.2
CAPACITY_PER_S = REPLICAS * ACTIVATIONS / SLEEP_S
LOADED, LOADED_S = 0.95, 10.0
OVERLOAD, OVERLOAD_S = 10.0, 30.0
WITHIN_SHARE = 0.1
IDLE_CALLS = 20
HOLD_REFUSED_S = 0.05
HOLD_ADMITTED = 2.0
HOLD_GROWTH_MIB = 4.0
_MIB = 1 << 20
_durations = random.Random(1)  # the same for every run


@dataclass(slots=True)
class Told:
    """What the calls of one tenant were told, and after how many seconds."""

    admitted_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)


async def run(options: Options) -> Report:
    """The bench."""
    looks = [await noise.look()]
    async with running_system(
        roles=(RolePlan(name="worker", interfaces=(Sleep.name,), replicas=REPLICAS),),
        settings={"interfaces": ("*",), "max_queue": 1.0},
        role_arguments=("--max-activations", str(ACTIVATIONS)),
    ) as system:
        async with system.connect() as client:
            await client.apply(_graph())
        await system.wait_ready(graph="graphs/sleeps")
        async with grpc.aio.insecure_channel(system.target) as channel:
            stub = graph_service_pb2_grpc.GraphServiceStub(channel)
            idle = Told()
            for _ in range(options.scaled(IDLE_CALLS)):
                await _call(stub, "idle", idle)
            loaded = await _offer(stub, "loaded", LOADED * CAPACITY_PER_S, options.scaled(int(LOADED_S)))
            pid, seconds = system.control.pid, options.scaled(int(OVERLOAD_S))
            warm = await _offer(stub, "flood", OVERLOAD * CAPACITY_PER_S, max(1, seconds // 10))
            before = (rss_bytes(pid), cpu_s(pid), time.monotonic())
            flood, modest = await asyncio.gather(
                _offer(stub, "flood", OVERLOAD * CAPACITY_PER_S, seconds),
                _offer(stub, "modest", WITHIN_SHARE * CAPACITY_PER_S, seconds),
            )
            cores = (cpu_s(pid) - before[1]) / (time.monotonic() - before[2])
            growth_mib = (rss_bytes(pid) - before[0]) / _MIB
            rss_mib = rss_bytes(pid) / _MIB
    looks.append(await noise.look())
    told = {"idle": idle, "loaded": loaded, "overload": flood, "within its share": modest}
    return _report(told, warm, growth_mib, rss_mib, cores, looks)


def _graph() -> Graph:
    graph = Graph("sleeps")
    sleep = graph.node("sleep", Sleep, role="worker", spread=True)
    graph.input("parameters", ValueType.JSON) >> sleep.inputs.field("parameters")
    sleep.text >> graph.output("text", ValueType.TEXT)
    return graph


async def _offer(stub: graph_service_pb2_grpc.GraphServiceStub, tenant: str, rate_per_s: float, seconds: float) -> Told:
    """Calls at even times, whether or not earlier ones have ended; returns when all have."""
    told, calls, begin_s = Told(), set(), time.monotonic()
    for number in range(int(rate_per_s * seconds)):
        early_s = begin_s + number / rate_per_s - time.monotonic()
        if early_s > 0.001:
            await asyncio.sleep(early_s)
        task = asyncio.ensure_future(_call(stub, tenant, told))
        calls.add(task)
        task.add_done_callback(calls.discard)
    if calls:
        await asyncio.wait(calls)
    return told


async def _call(stub: graph_service_pb2_grpc.GraphServiceStub, tenant: str, told: Told) -> None:
    request = graph_service_pb2.RunCallRequest(graph="graphs/sleeps")
    request.call.inputs["parameters"].json.struct_value["seconds"] = SLEEP_S * (0.5 + _durations.random())
    begin_s = time.perf_counter()
    try:
        await stub.RunCall(request, metadata=(("x-omniflow-tenant", tenant),))
    except grpc.aio.AioRpcError as broken:
        error = error_from_rpc(broken)
        if error.reason is Reason.TOO_MANY_CALLS and error.info.retry_after_s:
            told.refused_s.append(time.perf_counter() - begin_s)
        else:
            told.other[str(error.reason)] += 1
    else:
        told.admitted_s.append(time.perf_counter() - begin_s)


def _report(
    told: dict[str, Told], warm: Told, growth_mib: float, rss_mib: float, cores: float, looks: Sequence[noise.Noise]
) -> Report:
    baseline_s = percentile(told["loaded"].admitted_s, 0.99)
    flood, modest = told["overload"], told["within its share"]
    let_in = len(modest.admitted_s) / max(1, len(modest.admitted_s) + len(modest.refused_s))
    checks = [
        Check(what="refused within, p99", value=percentile(flood.refused_s, 0.99), at_most=HOLD_REFUSED_S, unit="s"),
        Check(
            what="admitted in the overload, p99, of the loaded p99",
            value=percentile(flood.admitted_s, 0.99) / baseline_s,
            at_most=HOLD_ADMITTED,
        ),
        Check(what="calls of a tenant within its share that are let in", value=let_in, at_least=0.99, unit=""),
        Check(
            what="the same tenant's p99, of the loaded p99",
            value=percentile(modest.admitted_s, 0.99) / baseline_s,
            at_most=HOLD_ADMITTED,
        ),
        Check(what="memory growth in the overload", value=growth_mib, at_most=HOLD_GROWTH_MIB, unit="MiB"),
        Check(
            what="calls told anything else",
            value=float(sum(each.other.total() for each in (*told.values(), warm))),
            at_most=0.0,
            unit="",
        ),
    ]
    return Report(
        name="overload",
        title=f"overload: {REPLICAS} replicas that run {ACTIVATIONS} sleeps of {SLEEP_S} s in the mean; control plane "
        f"{cores:.2f} cores, {rss_mib:.0f} MiB in the overload",
        columns=["phase", "let in", "refused", "let in ms p50", "p99", "refused ms p50", "p99"],
        rows=[[name, *_row(each)] for name, each in told.items()],
        checks=checks,
        looks=looks,
        details={name: {"admitted_s": each.admitted_s, "refused_s": each.refused_s} for name, each in told.items()},
    )


def _row(told: Told) -> list[str]:
    return [
        str(len(told.admitted_s)),
        str(len(told.refused_s)),
        *(_ms(told.admitted_s, share) for share in (0.5, 0.99)),
        *(_ms(told.refused_s, share) for share in (0.5, 0.99)),
    ]


def _ms(values: Sequence[float], share: float) -> str:
    return f"{percentile(values, share) * 1e3:.1f}" if values else "-"
