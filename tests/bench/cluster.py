"""What it costs to be one of several control planes: calls through one role, one after another, by StreamCall.

    alone               one control plane that keeps everything in its memory
    store               one of two over a metadata store; nothing has to be claimed
    store, session      the same, in a session that it holds: the calls carry its fence
    store, request id   the same with a request id, which is claimed for every call
    passed on           a session that the other control plane owns: one hop more

All under `omniflow up`, with the store that it starts. Afterwards the memory of the control planes, with the store's client.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from typing import Any

import grpc.aio

from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.graph.v1 import graph_service_pb2_grpc
from tests.bench.harness.contest import Contestant, Results, Work, compete
from tests.bench.harness.options import Options
from tests.bench.harness.report import Check, Report, cpu_text
from tests.bench.harness.statistics import median, paired_ratios, percentile
from tests.chaos.system import Cluster, cluster
from tests.support.processes import rss_bytes

CALLS = 300
WARM_CALLS = 20
HOLD_MIB = 80.0
AIM_CLAIMED = 1.35
"""A claim is a round trip to the store beside the three of the call."""
AIM_PASSED_ON = 2.0
ALONE, STORE, SESSION, REQUEST, PASSED_ON = "alone", "store", "store, session", "store, request id", "passed on"
_numbers = itertools.count()


async def run(options: Options) -> Report:
    """The bench."""
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        alone = await enter(cluster("supervisor.metadata=memory", control_planes=1))
        shared = await enter(cluster("control.ended_call_ttl_s=10"))
        names = ("control-0", "control-1")
        pids = {name: shared.pid(name) for name in names}
        own, other = [await _stub(enter, target) for target in shared.targets]
        await _call(own, session="sessions/bench")  # whose first call is here, is here
        only = {"control": shared.pid("control-0")}
        contestants = [
            _contestant(ALONE, await _stub(enter, alone.targets[0]), options, {"control": alone.pid("control")}),
            _contestant(STORE, own, options, only),
            _contestant(SESSION, own, options, only, session="sessions/bench"),
            _contestant(REQUEST, own, options, {**only, "store": shared.pid("store")}, has_request_id=True),
            _contestant(PASSED_ON, other, options, pids, session="sessions/bench"),
        ]
        results = await compete(contestants, options)
        memory_mib = {name: rss_bytes(pid) / 2**20 for name, pid in pids.items()}
        memory_mib["alone"] = rss_bytes(_control(alone)) / 2**20
    return _report(results, [contestant.name for contestant in contestants], memory_mib)


def _control(running: Cluster) -> int:
    return running.pid("control")


async def _stub(enter: Any, target: str) -> Any:
    channel = await enter(grpc.aio.insecure_channel(target, options=(("grpc.use_local_subchannel_pool", 1),)))
    return graph_service_pb2_grpc.GraphServiceStub(channel)


def _contestant(name: str, stub: Any, options: Options, processes: dict[str, int], **call: Any) -> Contestant:
    return Contestant(name=name, run=functools.partial(_timed, stub, options.scaled(CALLS), call), processes=processes)


async def _timed(stub: Any, count: int, call: dict[str, Any]) -> Work:
    for _ in range(WARM_CALLS):
        await _call(stub, **call)
    latencies_s = []
    started_s = last_s = time.perf_counter()
    for _ in range(count):
        await _call(stub, **call)
        now_s = time.perf_counter()
        latencies_s.append(now_s - last_s)
        last_s = now_s
    return Work(count=count, latencies_s=latencies_s, figures={"wall_s": last_s - started_s})


async def _call(stub: Any, *, session: str = "", has_request_id: bool = False) -> None:
    request = pb.StreamCallRequest(graph="graphs/chaos")
    request.call.inputs["text"].text = "hello"
    request.call.session = session
    request.call.request_id = f"bench-{next(_numbers)}" if has_request_id else ""
    end = ""
    async for response in stub.StreamCall(request):
        end = response.events[-1].WhichOneof("event") or ""
    assert end == "finished", end


def _report(results: Results, names: list[str], memory_mib: dict[str, float]) -> Report:
    alone_s = results.round_latencies_s(ALONE)
    ratios = {name: median(paired_ratios(results.round_latencies_s(name), alone_s)) for name in names}
    rows = [
        [
            name,
            *(f"{percentile(results.latencies_s(name), share) * 1e3:.3f}" for share in (0.5, 0.9, 0.99)),
            f"{ratios[name]:.2f}",
            cpu_text(results.cpu_us(name)),
        ]
        for name in names
    ]
    return Report(
        name="cluster",
        title="cluster: one call at a time through one role, milliseconds",
        columns=["contestant", "p50", "p90", "p99", "of alone", "CPU us/call"],
        rows=rows,
        checks=[
            Check(what="a claimed request id", value=ratios[REQUEST], at_most=AIM_CLAIMED, is_promised=False),
            Check(what="a call that is passed on", value=ratios[PASSED_ON], at_most=AIM_PASSED_ON, is_promised=False),
            *(
                Check(what=f"RSS of {name}", value=value, at_most=HOLD_MIB, unit="MiB")
                for name, value in memory_mib.items()
            ),
        ],
        looks=results.looks,
        details={**results.as_json(), "memory_mib": memory_mib},
    )
