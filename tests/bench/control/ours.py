"""Our systems in the comparison: a control plane and a process for each role, once over gRPC and once over each lane.

Every system has all topologies and the stream of tokens, so that it is started once; its processes wait while others work.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from tests.bench import graphs
from tests.bench.control import topologies
from tests.bench.control.entrants import Entrant
from tests.bench.control.lanes import GRPC, LANES, NOT_USED, is_used
from tests.bench.control.programs import Program, log_of
from tests.bench.setting import serving
from tests.support.system import ROOT, System

FIRST_ROLE = "stage1-0"
"""The role of the first node in every topology."""
INLINE = "ours, inline, in process"
INLINE_RPC = "ours, inline, with the client's RPC"


def lane_name(lane: str) -> str:
    """Of the contestant with a process for each role."""
    return f"ours, a process per role, {lane}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Systems:
    """Those that run."""

    by_lane: Mapping[str, System]
    not_run: Mapping[str, str]
    """Contestants whose lane does not work here, and why."""


@contextlib.asynccontextmanager
async def systems() -> AsyncIterator[Systems]:
    """One for each way to the roles."""
    every = list(map(topologies.graph, topologies.TOPOLOGIES))
    inline = [topologies.inline_spec(topology) for topology in topologies.TOPOLOGIES]
    roles = (*topologies.roles(), graphs.BURST_ROLE)
    async with contextlib.AsyncExitStack() as stack:
        started, not_run = {}, {}
        for lane, kinds in LANES.items():
            here = [*every, graphs.burst(), *(inline if lane == GRPC else ())]
            system = await stack.enter_async_context(serving(here, roles, lanes=kinds))
            if is_used(lane, system):
                started[lane] = system
            else:
                not_run[lane_name(lane)] = NOT_USED
        yield Systems(by_lane=started, not_run=not_run)


async def enter(topology: str, systems: Mapping[str, System], stack: contextlib.AsyncExitStack) -> list[Entrant]:
    """What of ours takes part: the driver in process, the client's RPC alone, and the hops over each way to the roles."""
    inline = await _program(stack, topology, INLINE, "inline_program")
    await inline.prepare(topology, {})
    entrants = [Entrant(name=INLINE, program=inline)]
    for name, lane, is_inline in ((INLINE_RPC, GRPC, True), *((lane_name(lane), lane, False) for lane in systems)):
        system = systems[lane]
        program = await _program(stack, topology, name, "client_program")
        options = {"target": system.target, "control_pid": system.control.pid, "is_inline": is_inline}
        await program.prepare(topology, options)
        pids = [system.control.pid] if is_inline else [process.pid for process in system.processes]
        role = 0 if is_inline else system.role(FIRST_ROLE).pid
        entrants.append(Entrant(name=name, program=program, system_pids=frozenset(pids), role_pid=role))
    return entrants


async def _program(stack: contextlib.AsyncExitStack, topology: str, name: str, module: str) -> Program:
    command = [sys.executable, "-m", f"tests.bench.control.{module}"]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return await stack.enter_async_context(Program(command, log_of(topology, name), env={"PYTHONPATH": path}))
