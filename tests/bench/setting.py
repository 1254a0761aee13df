"""What benches run against: a system of real processes with their graphs, and floors in processes of their own."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omniflow.dsl import Graph
from omniflow.flow import RolePlan
from omniflow.links.port import LaneKind
from omniflow.workflow.v1 import graph_spec_pb2
from tests.support.processes import Process, free_port
from tests.support.system import ROOT, System, running_system


@contextlib.asynccontextmanager
async def serving(
    graphs: Sequence[Graph | graph_spec_pb2.GraphSpec],
    roles: Sequence[RolePlan],
    *,
    interfaces: Mapping[str, str] | None = None,
    lanes: Sequence[LaneKind] | None = None,
    pipelines: bool = False,
    profile: Mapping[str, Sequence[str]] | None = None,
    ready_timeout_s: float = 60.0,
) -> AsyncIterator[System]:
    """A system in which every graph can be called.

    interfaces: further ones, name to `module:Class`.
    lanes: how the control plane reaches its roles, over gRPC when it is empty; by default as it would.
    pipelines: yields of chains go from role to role.
    profile: as `running_system` takes it.
    """
    async with running_system(
        roles=roles,
        interfaces=interfaces,
        settings={
            "interfaces": ("*",),
            "pipelines": pipelines,
            **({} if lanes is None else {"lanes": tuple(lanes)}),
        },
        role_arguments=() if lanes is None else ("--lanes", ",".join(lane.value for lane in lanes)),
        profile=profile,
    ) as system:
        async with system.connect() as client:
            names = [(await client.apply(graph)).name for graph in graphs]
        for name in names:
            await system.wait_ready(ready_timeout_s, graph=name)
        yield system


@dataclass(frozen=True, slots=True)
class Floor:
    """A floor's server process and where it listens."""

    process: Process
    target: str


@contextlib.asynccontextmanager
async def floor(module: str, *arguments: str, is_unix: bool = False) -> AsyncIterator[Floor]:
    """A server of `floors`, ready: on a free port of the loopback address, or on a unix socket."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        target = f"unix:{folder}/floor.sock" if is_unix else f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", f"tests.bench.floors.{module}", target, *arguments]
        with Process(module, command, folder=Path(folder), cwd=ROOT) as process:
            await process.wait_for_log("ready")
            yield Floor(process, target)
