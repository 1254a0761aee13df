"""What `omniflow up` starts: a flow and the settings in, the processes out. Pure: nothing is read, opened or started.

Flow assistant                        store     python -m omniflow_server.data.metadata.embedded ...
  role llm, 2 replicas        ──▶     control   python -m omniflow_server.launch.control .../control.json
  role tts                            llm-0     <python of its environment> -m omniflow_roles serve --role llm ...
                                      llm-1
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
from omniflow_server.launch.control_plans import ControlPlan, plan_control_planes
from omniflow_server.launch.requests import socket_of
from omniflow_server.launch.status import CONTROL, STORE, ProcessKind, kind_of
from omniflow_server.launch.store import IN_MEMORY, StoreChoice

BASE_ENVIRONMENT = "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process to keep running. `role` and `replica_id` are empty for the store and control planes."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the supervisor."""
    log: Path
    stop_grace_s: float
    role: str = ""
    replica_id: str = ""
    socket: Path | None = None
    """Of the store: where it answers when it is ready."""
    folder: Path | None = None
    """Made before it starts, for its user only; kept between runs."""

    @property
    def kind(self) -> ProcessKind:
        return kind_of(self.name, self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that one supervisor runs."""

    name: str
    """Name of the running flow, as `--name` gives it."""
    flow: str
    """Reference to the flow, as the control plane loads it."""
    graph: str
    """Resource name, graphs/{graph}."""
    runtime: Path
    """Folder of sockets, logs and state."""
    controls: tuple[ControlPlan, ...]
    """At least one."""
    processes: tuple[ProcessSpec, ...]
    """The store first, if there is one, then the control planes."""
    notes: tuple[str, ...] = ()
    """What the operator should know of how it runs."""

    @property
    def target(self) -> str:
        """gRPC target of clients: that of the first control plane."""
        return self.targets[0]

    @property
    def targets(self) -> tuple[str, ...]:
        """gRPC targets of clients."""
        return tuple(control.settings.listen for control in self.controls)

    @property
    def internal_target(self) -> str:
        """gRPC target of the first control plane for role servers."""
        return self.internal_targets[0]

    @property
    def internal_targets(self) -> tuple[str, ...]:
        """gRPC targets of role servers."""
        return tuple(control.settings.internal_listen for control in self.controls)


def plan_launch(
    flow: Flow,
    reference: str,
    settings: Settings,
    *,
    name: str,
    runtime: Path,
    python: str,
    store: StoreChoice = IN_MEMORY,
) -> LaunchPlan:
    """The processes of a flow. Raises OmniFlowError INVALID_CONFIG naming each role that cannot run, or a runtime folder
    whose path is too long for sockets.

    `python` is the interpreter of the control planes and, unless the settings say otherwise, of the environment "base".
    """
    _check_roles(flow, settings.environments)
    unix_target(socket_of(runtime))
    controls = plan_control_planes(
        _control_settings(settings.control, reference, name, store), settings.supervisor.control_planes, runtime
    )
    registry = ",".join(control.settings.internal_listen for control in controls)
    processes = [] if store.socket is None else [_store_process(store, settings, runtime)]
    processes += [_control_process(control, settings, store, runtime, python) for control in controls]
    for role in flow.roles:
        interpreter = settings.environments.get(role.environment, python)
        processes.extend(_replicas(role, interpreter, reference, registry, settings, runtime))
    return LaunchPlan(
        name=name,
        flow=reference,
        graph=f"graphs/{flow.graph.name}",
        runtime=runtime,
        controls=controls,
        processes=tuple(processes),
        notes=(store.note,) if store.note else (),
    )


def log_of(runtime: Path, name: str) -> Path:
    """Log of a process."""
    return runtime / "logs" / f"{name}.log"


def _control_settings(control: ControlSettings, reference: str, name: str, store: StoreChoice) -> ControlSettings:
    # Flows of one machine often find the same store in REDIS_URL; under one namespace the control planes of the second
    # would end the lives of the first one's.
    is_own = control.metadata_namespace != ControlSettings().metadata_namespace
    return dataclasses.replace(
        control,
        flows=(*control.flows, reference),
        metadata_url=store.url,
        metadata_namespace=control.metadata_namespace if is_own else name,
    )


def _store_process(store: StoreChoice, settings: Settings, runtime: Path) -> ProcessSpec:
    return ProcessSpec(
        name=STORE,
        argv=store.argv,
        log=log_of(runtime, STORE),
        stop_grace_s=settings.supervisor.stop_grace_s,
        socket=store.socket,
        folder=store.folder,
    )


def _control_process(
    control: ControlPlan, settings: Settings, store: StoreChoice, runtime: Path, python: str
) -> ProcessSpec:
    return ProcessSpec(
        name=control.name,
        argv=(python, "-m", "omniflow_server.launch.control", str(control.settings_file)),
        env=store.env,
        log=log_of(runtime, control.name),
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
                *("--max-activations", str(role.max_activations)),
                *("--drain-grace", f"{settings.control.drain_timeout_s:g}"),
            ),
            env=dict(role.env),
            log=log_of(runtime, replica_id),
            # As the control planes: what runs on it may end.
            stop_grace_s=settings.control.drain_timeout_s + settings.supervisor.stop_grace_s,
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
    broken, seen = [], {CONTROL, STORE}
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
