"""Where the CPU time of a control plane and of one role goes: `python -m tests.bench.profiling`, or `make profile`.

    build/profile/fan5.txt       requests through fan5, a process for each role, one after another and 32 at a time
    build/profile/tokens.txt     a stream of tokens of one role, and 16 of them

For the control plane and one role: functions by own and by cumulative time, sampled while a load runs; before it, of the
same load without the sampler, CPU time, context switches and system calls an operation.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import uvloop

from omniflow.graph.v1 import graph_service_pb2_grpc
from tests.bench import graphs
from tests.bench.control import topologies
from tests.bench.control.client_program import Client
from tests.bench.control.lanes import DEFAULT_LANE, LANES
from tests.bench.events import run_streams, stub_stream
from tests.bench.profiling.costs import Costs
from tests.bench.profiling.samples import Samples
from tests.bench.setting import serving
from tests.support.processes import wait_until
from tests.support.system import ROOT, System

OUT = ROOT / "build" / "profile"
REQUESTS = 4_000
EVENTS = 64_000
ROLES = {"fan5": "stage1-0", "tokens": "burst-0"}
"""The role that is looked at, by profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Some work that is done twice: for the counts, and for the samples."""

    title: str
    operations: int
    do: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """A process that runs under the sampler."""

    name: str
    pid: int
    out: Path
    """Where its samples come."""

    def has_samples(self) -> bool:
        return self.out.exists()

    def take_samples(self) -> Samples:
        """What has come."""
        content = json.loads(self.out.read_text())
        self.out.unlink()
        return Samples.of(content, str(ROOT))


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the files and says where they are."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profiling", description=__doc__)
    parser.add_argument(
        "--lane", choices=LANES, default=DEFAULT_LANE, help="how roles are reached (default %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: shows that it runs")
    options = parser.parse_args(arguments)
    share = 10 if options.quick else 1
    OUT.mkdir(parents=True, exist_ok=True)
    for name in ROLES:
        lines = uvloop.run(profile(name, options.lane, requests=REQUESTS // share, events=EVENTS // share))
        path = OUT / f"{name}.txt"
        path.write_text("\n".join(lines) + "\n")
        print(path, flush=True)


async def profile(name: str, lane: str, *, requests: int, events: int) -> list[str]:
    """The lines of one file."""
    role = ROLES[name]
    lines = [f"{name}, roles over {lane}; Runner.run is the event loop itself, with the native code of uvloop and gRPC"]
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        outs = {process: Path(folder) / f"{process}.json" for process in ("control", role)}
        sampled = {process: ("-m", "tests.bench.profiling.sampler", str(out)) for process, out in outs.items()}
        async with _system(name, lane, sampled) as system, _loads(name, system, requests, events) as loads:
            looked_at = [
                LookedAt(
                    name=process, pid=system.control.pid if process == "control" else system.role(process).pid, out=out
                )
                for process, out in outs.items()
            ]
            for load in loads:
                lines += await _look(load, looked_at)
    return lines


async def _look(load: Load, processes: Sequence[LookedAt]) -> list[str]:
    await load.do()  # warm
    before = [Costs.of(process.pid) for process in processes]
    await load.do()
    counts = [
        Costs.of(process.pid).line(since, load.operations) for process, since in zip(processes, before, strict=True)
    ]
    for process in processes:
        os.kill(process.pid, signal.SIGUSR1)
    await load.do()
    for process in processes:
        os.kill(process.pid, signal.SIGUSR2)
    lines = []
    for process, count in zip(processes, counts, strict=True):
        await wait_until(process.has_samples, what=f"the samples of {process.name}")
        heading = f"{process.name}: {load.title}"
        lines += ["", heading, "=" * len(heading), f"an operation without the sampler: {count}"]
        lines += process.take_samples().lines(load.operations)
    return lines


@contextlib.asynccontextmanager
async def _system(name: str, lane: str, sampled: Mapping[str, Sequence[str]]) -> AsyncIterator[System]:
    lanes = LANES[lane]
    if name == "tokens":
        async with serving([graphs.burst()], [graphs.BURST_ROLE], lanes=lanes, profile=sampled) as system:
            yield system
    else:
        graph = topologies.graph(name)
        async with serving([graph], topologies.roles(), lanes=lanes, profile=sampled) as system:
            yield system


@contextlib.asynccontextmanager
async def _loads(name: str, system: System, requests: int, events: int) -> AsyncIterator[list[Load]]:
    if name == "tokens":
        async with grpc.aio.insecure_channel(system.target) as channel:
            stream = functools.partial(stub_stream, graph_service_pb2_grpc.GraphServiceStub(channel))
            yield [
                Load(
                    title=f"events of {calls} calls",
                    operations=events,
                    do=functools.partial(run_streams, stream, calls, events),
                )
                for calls in (1, 16)
            ]
        return
    client = Client()
    await client.prepare(name, {"target": system.target, "control_pid": system.control.pid, "is_inline": False})
    yield [
        Load(
            title=f"requests, {at_once} at a time",
            operations=requests,
            do=functools.partial(client.run, requests, at_once),
        )
        for at_once in (1, 32)
    ]
    await client.stop()


if __name__ == "__main__":
    main()
