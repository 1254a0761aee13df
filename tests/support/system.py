"""A whole system of real processes: a control plane and its roles, in a runtime directory of their own.

async with running_system(FLOW) as system:
    async with system.connect() as client: ...
    system.role("llm-0").kill()
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omniflow
from omniflow.flow import RolePlan
from omniflow.flow_loading import load_flow
from omniflow.process import RUNTIME_DIR
from omniflow_core.errors import OmniFlowError
from omniflow_server.config import plain
from omniflow_server.control.settings import ControlSettings
from tests.support.processes import READY_TIMEOUT_S, Process, cpu_s, free_port, rss_bytes, wait_until

ROOT = Path(__file__).resolve().parents[2]
"""Where `tests` is imported from."""


class System:
    """A control plane and role processes in a runtime directory of their own. Made by `running_system`."""

    def __init__(self, folder: Path, settings: ControlSettings, graph: str, control: Process) -> None:
        self.folder = folder
        self.settings = settings
        self.graph = graph
        """Resource name of the flow's graph; empty without a flow."""
        self.control = control
        self.roles: dict[str, Process] = {}
        """Role processes by replica identifier, such as "llm-0"."""

    @property
    def target(self) -> str:
        """Where clients connect."""
        return self.settings.listen

    @property
    def internal_target(self) -> str:
        """Where roles register."""
        return self.settings.internal_listen

    @property
    def processes(self) -> list[Process]:
        return [self.control, *self.roles.values()]

    def role(self, replica_id: str) -> Process:
        return self.roles[replica_id]

    def connect(self, **options: Any) -> omniflow.Client:
        """A client; options are those of `omniflow.connect`."""
        return omniflow.connect(self.target, **options)

    async def wait_ready(self, timeout_s: float = READY_TIMEOUT_S, *, graph: str = "") -> None:
        """Returns when a graph, the flow's unless it is named, can be called.

        Raises RuntimeError when a process has ended, TimeoutError otherwise, both with what the processes logged.
        """
        async with self.connect() as client:

            async def is_ready() -> bool:
                for process in self.processes:
                    process.check_running()
                try:
                    return await client.health(graph or self.graph, timeout_s=1.0) is omniflow.Health.SERVING
                except OmniFlowError:
                    return False

            try:
                await wait_until(is_ready, timeout_s, what="readiness", interval_s=0.02)
            except TimeoutError as error:
                for process in self.processes:
                    error.add_note(f"--- {process.name}\n{process.log_tail()}")
                raise

    def memory(self) -> dict[str, int]:
        """Resident bytes by process."""
        return {process.name: rss_bytes(process.pid) for process in self.processes}

    def cpu(self) -> dict[str, float]:
        """CPU seconds by process."""
        return {process.name: cpu_s(process.pid) for process in self.processes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """Interpreters by the name of a flow's environment; this process's own for the others."""

    by_environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def of(self, environment: str) -> str:
        return (
            self.by_environment.get(environment)
            or os.environ.get(f"OMNIFLOW_ENVIRONMENTS_{environment.upper()}")
            or sys.executable
        )


@contextlib.asynccontextmanager
async def running_system(
    flow: str = "",
    *,
    settings: Mapping[str, Any] | None = None,
    roles: Sequence[RolePlan] | None = None,
    interfaces: Mapping[str, str] | None = None,
    python: Python | None = None,
    profile: Mapping[str, Sequence[str]] | None = None,
    role_arguments: Sequence[str] = (),
    wait: bool = True,
    ready_timeout_s: float = READY_TIMEOUT_S,
) -> AsyncIterator[System]:
    """Starts a control plane with a flow, and the flow's roles; ends them all.

    flow: the name or file of a flow, or the text of a Python file that defines `flow` (anything with a line break).
    settings: of the control plane, over the defaults; it listens on a free port of the loopback address.
    roles: to start instead of the flow's; () starts none.
    interfaces: further registered interfaces, name to `module:Class`, for the processes only.
    profile: by process name, words to put between the interpreter and its arguments (`["-m", "cProfile", ...]`).
    role_arguments: further ones of every role process (`["--lanes", "zmq-ipc"]`).
    wait: return only when the graph can be called.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="omniflow-")))
        reference = _reference(flow, folder)
        plan = load_flow(reference) if reference else None
        launcher = _Launcher(
            folder=folder,
            python=python or Python(),
            env={RUNTIME_DIR: str(folder), **_registration(interfaces or {}, folder)},
            profile=profile or {},
            role_arguments=role_arguments,
        )
        control_settings = dataclasses.replace(
            ControlSettings(
                listen=f"127.0.0.1:{free_port()}",
                internal_listen=f"unix:{folder}/control.sock",
                flows=(reference,) if reference else (),
            ),
            **(settings or {}),
        )
        graph = plan.graph.spec().name if plan else ""
        system = System(folder, control_settings, graph, launcher.control(control_settings))
        for role in roles if roles is not None else plan.roles if plan else ():
            system.roles.update(launcher.replicas(role, system.internal_target))
        for process in system.processes:
            stack.enter_context(process)
        if wait:
            await system.wait_ready(ready_timeout_s)
        yield system


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launcher:
    """Makes the processes of a system."""

    folder: Path
    python: Python
    env: Mapping[str, str]
    profile: Mapping[str, Sequence[str]]
    role_arguments: Sequence[str]

    def control(self, settings: ControlSettings) -> Process:
        path = self.folder / "control.json"
        path.write_text(json.dumps(plain(settings)))
        return self._process("control", "base", ("-m", "omniflow_server.launch.control", str(path)), {})

    def replicas(self, role: RolePlan, registry: str) -> dict[str, Process]:
        return {
            name: self._process(
                name, role.environment, (*_role_arguments(role, name, registry), *self.role_arguments), role.env
            )
            for name in (f"{role.name}-{index}" for index in range(role.replicas))
        }

    def _process(self, name: str, environment: str, arguments: Sequence[str], env: Mapping[str, str]) -> Process:
        command = (self.python.of(environment), *self.profile.get(name, ()), *arguments)
        return Process(name, command, folder=self.folder, env={**self.env, **env})


def _role_arguments(role: RolePlan, replica_id: str, registry: str) -> tuple[str, ...]:
    return (
        *("-m", "omniflow_roles", "serve", "--role", role.name, "--replica-id", replica_id),
        *("--interfaces", ",".join(role.interfaces), "--registry", registry, "--drain-grace", "1"),
    )


def _reference(flow: str, folder: Path) -> str:
    if "\n" not in flow:
        return flow
    path = folder / "flow.py"
    path.write_text(flow)
    return str(path)


def _registration(interfaces: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Makes the interfaces known by entry points of a distribution that is found on PYTHONPATH."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    if interfaces:
        info = folder / "site" / "omniflow_tests-0.dist-info"
        info.mkdir(parents=True)
        info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: omniflow-tests\nVersion: 0\n")
        lines = "".join(f"{name} = {target}\n" for name, target in interfaces.items())
        info.joinpath("entry_points.txt").write_text(f"[omniflow.interfaces]\n{lines}")
        path = os.pathsep.join((str(folder / "site"), path))
    return {"PYTHONPATH": path}
