"""Scripted stand-ins for the processes of a flow, and for the control plane that is asked about them.

A scripted process writes its pid to `<folder>/<name>.pid` when it is up; `FileReadiness` reads those files.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from omniflow_core.errors import OmniFlowError
from omniflow_server.control.settings import ControlSettings
from omniflow_server.launch import identity
from omniflow_server.launch.control_plans import ControlPlan
from omniflow_server.launch.plan import LaunchPlan, ProcessSpec
from omniflow_server.launch.readiness import Observation, Replica
from omniflow_server.launch.settings import SupervisorSettings
from omniflow_server.launch.status import CONTROL, STORE, FlowStatus, Phase, ProcessKind
from omniflow_server.launch.supervisor import Supervisor

SETTINGS = SupervisorSettings(
    restart_delay_s=0.01, restart_delay_max_s=0.02, poll_interval_s=0.01, ready_timeout_s=30.0, max_failed_starts=3
)

PREAMBLE = """
import os, pathlib, signal, sys, time
sys.path[:0] = {path!r}
from omniflow.process import die_with_parent
die_with_parent()
name, folder = {name!r}, pathlib.Path({folder!r})
def up():
    part = folder / (name + ".part")
    part.write_text(str(os.getpid()))
    part.rename(folder / (name + ".pid"))
def note(word):
    with (folder / "notes").open("a") as file:
        file.write(name + " " + word + "\\n")
def leave(number, frame):
    note("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
"""
SERVE = "up(); print('serving', flush=True); time.sleep(600)"
"""Comes up and serves until it is told to stop."""
STORE_SERVE = """
import socketserver
class Pong(socketserver.StreamRequestHandler):
    def handle(self):
        if self.rfile.readline() == b"PING\\r\\n":
            self.wfile.write(b"+PONG\\r\\n")
(folder / "store.sock").unlink(missing_ok=True)
server = socketserver.ThreadingUnixStreamServer(str(folder / "store.sock"), Pong)
note("up")
up()
server.serve_forever()
"""
"""A metadata store as far as the supervisor knows it."""


def script(folder: Path, name: str, body: str = SERVE, *, stop_grace_s: float = 10.0) -> ProcessSpec:
    """A process that runs a few lines of Python. Store and control planes are known by their names; "llm-0" is a replica of
    the role "llm", and so is "llm" alone."""
    preamble = PREAMBLE.format(path=sys.path, name=name, folder=str(folder))
    role = name.rpartition("-")[0] or name
    is_role = role not in (CONTROL, STORE)
    return ProcessSpec(
        name=name,
        argv=(sys.executable, "-c", preamble + textwrap.dedent(body)),
        log=folder / "logs" / f"{name}.log",
        stop_grace_s=stop_grace_s,
        role=role if is_role else "",
        replica_id=name if is_role else "",
        socket=folder / "store.sock" if name == STORE else None,
        folder=folder / "store" if name == STORE else None,
    )


def plan(folder: Path, *processes: ProcessSpec) -> LaunchPlan:
    """A plan of scripted processes."""
    return LaunchPlan(
        name=folder.name,
        flow="scripted",
        graph="graphs/scripted",
        runtime=folder,
        controls=tuple(
            ControlPlan(name=process.name, settings=ControlSettings(), settings_file=folder / f"{process.name}.json")
            for process in processes
            if process.kind is ProcessKind.CONTROL
        ),
        processes=processes,
    )


@dataclass
class FileReadiness:
    """Sees a replica READY when its pid file says so, and a control plane answer when the process of its file lives."""

    folder: Path
    controls: tuple[str, ...] = (CONTROL,)
    is_serving: bool = True

    async def look(self) -> Observation:
        """One look at the pid files."""
        pids = {path.stem: int(path.read_text()) for path in self.folder.glob("*.pid")}
        answering = tuple(identity.start_ticks(pids.get(name, 0)) > 0 for name in self.controls)
        return Observation(
            answering=answering,
            is_serving=self.is_serving and all(answering),
            replicas=tuple(
                Replica(role=name.rpartition("-")[0] or name, replica_id=name, process_id=pid, state="READY")
                for name, pid in pids.items()
                if name not in (STORE, *self.controls)
            ),
        )


@dataclass
class Running:
    """A supervisor at work, and every status that it published."""

    supervisor: Supervisor
    folder: Path
    seen: list[FlowStatus] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    failure: OmniFlowError | None = None

    def published(self, status: FlowStatus) -> None:
        """Takes a status from the supervisor."""
        self.seen.append(status)
        self.news.set()

    def pids(self) -> Mapping[str, int]:
        """Pid of each process, 0 when it is down."""
        return {process.name: process.pid for process in self.supervisor.status().processes}

    async def until(self, is_true: Callable[[FlowStatus], bool]) -> FlowStatus:
        """Waits for a status."""
        while not is_true(self.supervisor.status()):
            self.news.clear()
            await self.news.wait()
        return self.supervisor.status()

    async def ready(self) -> FlowStatus:
        """Waits until everything is ready."""
        return await self.until(lambda status: status.phase is Phase.READY)

    def notes(self) -> list[str]:
        """What the processes wrote down, in order."""
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []


@contextlib.asynccontextmanager
async def supervised(
    launch: LaunchPlan, settings: SupervisorSettings = SETTINGS, readiness: FileReadiness | None = None
) -> AsyncIterator[Running]:
    """Runs a supervisor inside the block and stops it at the end; its failure is kept, not raised."""
    controls = tuple(control.name for control in launch.controls)
    supervisor = Supervisor(
        launch,
        settings,
        readiness or FileReadiness(launch.runtime, controls),
        lambda status: running.published(status),
    )
    running = Running(supervisor=supervisor, folder=launch.runtime)

    async def run() -> None:
        try:
            await supervisor.run()
        except OmniFlowError as failure:
            running.failure = failure

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        try:
            yield running
        finally:
            supervisor.stop()
