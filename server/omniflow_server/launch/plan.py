"""What `omniflow up` starts: a flow and the settings in, the processes out. Pure: nothing is read, opened or started.

Flow assistant                        control   python -m omniflow_server.launch.control .../control.json
  role llm, 2 replicas        ──▶     llm-0     <python of its environment> -m omniflow_roles serve --role llm ...
  role tts                            llm-1
                                      tts-0
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from omniflow.flow import Flow, RolePlan
from omniflow.flow_loading import is_file_reference
from omniflow.process import unix_target
from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_core.graph.findings import nearest
from omniflow_server.config import Settings
from omniflow_server.control.settings import ControlSettings

CONTROL = "control"
BASE_ENVIRONMENT = "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process to keep running. `role` and `replica_id` are empty for the control plane."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the supervisor."""
    log: Path
    stop_grace_s: float
    role: str = ""
    replica_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that one supervisor runs."""

    name: str
    """Name of the running flow, as `--name` gives it."""
    flow: str
    """Reference to the flow, as the control plane loads it."""
    graph: str
    """Resource name, graphs/{graph}."""
    target: str
    """gRPC target of clients."""
    internal_target: str
    """gRPC target of role servers."""
    runtime: Path
    """Folder of sockets, logs and state."""
    control: ControlSettings
    settings_file: Path
    """Where `control` is handed over."""
    processes: tuple[ProcessSpec, ...]
    """The control plane first."""


def plan_launch(
    flow: Flow,
    reference: str,
    settings: Settings,
    *,
    name: str,
    runtime: Path,
    python: str,
) -> LaunchPlan:
    """The processes of a flow. Raises OmniFlowError INVALID_CONFIG naming each role that cannot run, or a runtime folder
    whose path is too long for sockets.

    `python` is the interpreter of the control plane and, unless the settings say otherwise, of the environment "base".
    """
    _check_roles(flow, settings.environments)
    internal = settings.control.internal_listen or unix_target(runtime / "control.sock")
    control = dataclasses.replace(
        settings.control, internal_listen=internal, flows=(*settings.control.flows, reference)
    )
    processes = [_control_process(settings, runtime, python)]
    for role in flow.roles:
        interpreter = settings.environments.get(role.environment, python)
        processes.extend(_replicas(role, interpreter, reference, internal, settings, runtime))
    return LaunchPlan(
        name=name,
        flow=reference,
        graph=f"graphs/{flow.graph.name}",
        target=control.listen,
        internal_target=internal,
        runtime=runtime,
        control=control,
        settings_file=settings_file_of(runtime),
        processes=tuple(processes),
    )


def settings_file_of(runtime: Path) -> Path:
    """Where the settings of the control plane are handed over."""
    return runtime / "control.json"


def log_of(runtime: Path, name: str) -> Path:
    """Log of a process."""
    return runtime / "logs" / f"{name}.log"


def _control_process(settings: Settings, runtime: Path, python: str) -> ProcessSpec:
    return ProcessSpec(
        name=CONTROL,
        argv=(python, "-m", "omniflow_server.launch.control", str(settings_file_of(runtime))),
        log=log_of(runtime, CONTROL),
        # It waits for the calls that run before it ends.
        stop_grace_s=settings.control.drain_timeout_s + settings.supervisor.stop_grace_s,
    )


def _replicas(
    role: RolePlan, python: str, flow: str, registry: str, settings: Settings, runtime: Path
) -> list[ProcessSpec]:
    own_interfaces = ("--flow", flow) if is_file_reference(flow) else ()
    return [
        ProcessSpec(
            name=replica_id,
            argv=(
                *(python, "-m", "omniflow_roles", "serve"),
                *("--role", role.name, "--replica-id", replica_id),
                *("--interfaces", ",".join(role.interfaces)),
                *own_interfaces,
                *("--registry", registry, "--listen", unix_target(runtime / f"{replica_id}.sock")),
                *("--lanes", ",".join(kind.value for kind in settings.control.lanes)),
            ),
            env=dict(role.env),
            log=log_of(runtime, replica_id),
            stop_grace_s=settings.supervisor.stop_grace_s,
            role=role.name,
            replica_id=replica_id,
        )
        for replica_id in (f"{role.name}-{ordinal}" for ordinal in range(role.replicas))
    ]


def role_violations(flow: Flow) -> list[Violation]:
    """What keeps a flow from running on any machine; environments are a machine's own."""
    return [*_broken_roles(flow), *_unserved_nodes(flow)]


def _check_roles(flow: Flow, environments: Mapping[str, str]) -> None:
    violations = [*_broken_roles(flow), *_missing_environments(flow, environments), *_unserved_nodes(flow)]
    if violations:
        first = f"{violations[0].field} {violations[0].description}"
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise OmniFlowError(
            Reason.INVALID_CONFIG, f"the flow {flow.name!r} cannot run: {first}{more}", violations=violations
        )


def _broken_roles(flow: Flow) -> list[Violation]:
    broken, seen = [], {CONTROL}
    for role in flow.roles:
        if role.name in seen:
            broken.append(
                Violation(field=f"role {role.name}:", description="the name is taken; give each role its own")
            )
        if role.replicas < 1:
            broken.append(Violation(field=f"role {role.name}:", description="needs at least one replica"))
        seen.add(role.name)
    return broken


def _missing_environments(flow: Flow, environments: Mapping[str, str]) -> list[Violation]:
    """One violation per environment, not per role: one setting mends all of its roles."""
    missing = sorted({role.environment for role in flow.roles} - {BASE_ENVIRONMENT, *environments})
    return [
        Violation(
            field=f"environment {name!r}",
            description=(
                f"of the roles {', '.join(role.name for role in flow.roles if role.environment == name)} has no "
                f"interpreter; set OMNIFLOW_ENVIRONMENTS_{name.upper()}=/path/to/python, or {name} under [environments] "
                f"in omniflow.toml (in the repository, `python3 deploy/environment.py {name}` makes it and prints the path)"
            ),
        )
        for name in missing
    ]


def _unserved_nodes(flow: Flow) -> list[Violation]:
    served = {role.name: role.interfaces for role in flow.roles}
    return [
        Violation(
            field=f"node {node.name}:",
            description=(
                f"no role of the flow is named {node.role!r}. {nearest(node.role, served)}"
                if node.role not in served
                else f"the role {node.role!r} does not serve the interface {node.interface!r}. "
                f"{nearest(node.interface, served[node.role])}"
            ),
        )
        for node in flow.graph.spec().nodes
        if not node.is_inline and node.interface not in served.get(node.role, ())
    ]
