"""CPU of the control plane while many calls yield at a steady pace through three roles: over gRPC and over the default
lane, and over either with `control.pipelines`, where yields go from role to role.

    a (yields at its pace) -> b -> c -> client        each in a process of its own

Every yield of `a` starts an activation of `b`, whose yield starts one of `c`, whose yield goes to the caller: for each there
are two activations and three messages from roles, of which one is left with pipelines. Cores are the CPU time of a yield
times the yields a second that the calls ask for: what the processes use while they follow, and what they would need while
they cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Mapping

import grpc.aio

from omniflow.dsl import Graph
from omniflow.flow import RolePlan
from omniflow.graph.v1 import graph_service_pb2, graph_service_pb2_grpc
from omniflow.values import ValueType
from omniflow_roles.noop import Echo, Pace
from tests.bench.control.lanes import DEFAULT_LANE, GRPC, LANES, NOT_USED, is_used
from tests.bench.harness.contest import Contestant, Results, Work, compete
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report, cpu_text
from tests.bench.harness.statistics import median
from tests.bench.setting import serving
from tests.support.system import System

CALLS = 32
RATE_PER_S = 100.0
"""Of each call."""
YIELDS = 500
"""Of each call in a round."""
HOLD_CORES = 0.5
HOLD_PACE = 0.95
"""Of the asked rate must come; the rest is the way of the first and the last yields."""
COMPARED: Mapping[str, tuple[str, bool]] = {
    GRPC: (GRPC, False),
    DEFAULT_LANE: (DEFAULT_LANE, False),
    f"{GRPC}, pipelines": (GRPC, True),
    f"{DEFAULT_LANE}, pipelines": (DEFAULT_LANE, True),
}
"""Lane, and whether yields go from role to role."""
ROLES = (
    RolePlan(name="a", interfaces=(Pace.name,)),
    RolePlan(name="b", interfaces=(Echo.name,)),
    RolePlan(name="c", interfaces=(Echo.name,)),
)


async def run(options: Options) -> Report:
    """The bench."""
    async with contextlib.AsyncExitStack() as stack:
        contestants: list[Contestant] = []
        not_run: dict[str, str] = {}
        for name, (lane, pipelines) in COMPARED.items():
            system = await stack.enter_async_context(serving([_graph()], ROLES, lanes=LANES[lane], pipelines=pipelines))
            if not is_used(lane, system):
                not_run[name] = NOT_USED
                continue
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(system.target))
            stub = graph_service_pb2_grpc.GraphServiceStub(channel)
            contestants.append(
                Contestant(
                    name=name,
                    run=functools.partial(_calls, stub, options.scaled(YIELDS)),
                    processes=_processes(system),
                )
            )
        results = await compete(contestants, options)
    return _report(results, not_run)


def _graph() -> Graph:
    """parameters -> a -> b -> c -> text"""
    graph = Graph("paced")
    a, b, c = graph.node("a", Pace, role="a"), graph.node("b", Echo, role="b"), graph.node("c", Echo, role="c")
    graph.input("parameters", ValueType.JSON) >> a.inputs.field("parameters")
    a.output("text") >> b.inputs.field("text")
    b.text >> c.inputs.field("text")
    c.text >> graph.output("text", ValueType.TEXT)
    return graph


def _processes(system: System) -> Mapping[str, int]:
    return {"control": system.control.pid, **{role.name: system.role(f"{role.name}-0").pid for role in ROLES}}


async def _calls(stub: graph_service_pb2_grpc.GraphServiceStub, count: int) -> Work:
    """All calls at once. Latencies are how much later than by its pace each event came, counted from its call's start."""
    late_s: list[float] = []
    began_s = time.perf_counter()
    await asyncio.gather(*(_call(stub, count, late_s) for _ in range(CALLS)))
    return Work(count=CALLS * count, latencies_s=late_s, figures={"wall_s": time.perf_counter() - began_s})


async def _call(stub: graph_service_pb2_grpc.GraphServiceStub, count: int, late_s: list[float]) -> None:
    request = graph_service_pb2.StreamCallRequest(graph="graphs/paced")
    parameters = request.call.inputs["parameters"].json.struct_value
    parameters["count"] = count
    parameters["rate_per_s"] = RATE_PER_S
    began_s = time.perf_counter()
    texts: list[str] = []
    async for response in stub.StreamCall(request):
        now_s = time.perf_counter()
        for event in response.events:
            if event.HasField("value"):
                late_s.append(now_s - began_s - len(texts) / RATE_PER_S)
                texts.append(event.value.text)
    assert sorted(map(int, texts)) == list(range(count)), "yields are missing, or came twice"


def _report(results: Results, not_run: Mapping[str, str]) -> Report:
    rows, checks = [], []
    for name in results.rounds:
        cores = {process: cpu_us * 1e-6 * CALLS * RATE_PER_S for process, cpu_us in results.cpu_us(name).items()}
        pace = median(results.rates(name)) / (CALLS * RATE_PER_S)
        rows.append(
            [
                name,
                f"{median(results.rates(name)):.0f}",
                f"{pace:.2f}",
                *(f"{median(results.round_latencies_s(name, share)) * 1e3:.1f}" for share in (0.5, 0.99)),
                *(f"{cores[process]:.2f}" for process in ("control", "a", "b", "c", "client")),
                cpu_text(results.cpu_us(name)),
            ]
        )
        checks.append(
            Check(what=f"cores of the control plane, {name}", value=cores["control"], at_most=HOLD_CORES, unit="cores")
        )
        checks.append(Check(what=f"yields/s of those asked for, {name}", value=pace, at_least=HOLD_PACE))
    return Report(
        name="yields",
        title=f"yields: {CALLS} calls with {RATE_PER_S:g} yields/s each through three roles",
        columns=[
            "roles over",
            "yields/s",
            "of asked",
            "late ms p50",
            "p99",
            "cores: control",
            *("a", "b", "c", "client"),
            "CPU us/yield",
        ],
        rows=rows,
        checks=checks,
        looks=results.looks,
        details=results.as_json(),
        not_run=not_run,
    )
