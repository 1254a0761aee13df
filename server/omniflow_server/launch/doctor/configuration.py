"""Checks of what the operator has set: settings, the runtime folder, addresses, the flow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from omniflow.flow import Flow
from omniflow.process import RUNTIME_DIR, unix_target
from omniflow_core.errors import OmniFlowError
from omniflow_server.config import DEFAULT_SOURCE, Configuration, Settings
from omniflow_server.control.discovery import configured
from omniflow_server.launch.control_plans import plan_control_planes
from omniflow_server.launch.doctor.findings import Finding, failed, ok
from omniflow_server.launch.plan import role_violations
from omniflow_server.launch.ports import resolve_listen
from omniflow_server.launch.requests import socket_of
from omniflow_server.launch.state import StateFile, runtime_of
from omniflow_server.launch.status import FlowStatus


def valid_settings(configuration: Configuration) -> Finding:
    """Settings that could be read, and where they come from. Those that only mean something together are looked at too."""
    try:
        configured(configuration.settings.control)
    except OmniFlowError as problem:
        return refused_settings(problem)
    sources = [value.source for value in configuration.values if value.source != DEFAULT_SOURCE]
    places = sorted({source.rpartition(":")[0] or source for source in sources})
    return ok("settings", f"{len(sources)} from {', '.join(places)}; the rest are defaults" if sources else "defaults")


def refused_settings(problem: OmniFlowError) -> Finding:
    """Settings that could not be read."""
    mistakes = [f"{violation.field}: {violation.description}" for violation in problem.violations]
    return failed(
        "settings",
        "; ".join(mistakes) or problem.message,
        "mend them, see `omniflow config show`; checks that need settings are left out until then",
    )


def runtime_folder(settings: Settings, name: str, flow: Flow | None = None) -> Finding:
    """The folder of sockets and state: its user's alone, and its path short enough for the longest socket in it."""
    try:
        folder = runtime_of(settings.supervisor, name)
        sockets = list(_sockets(settings, folder, flow))
        for socket in sockets:
            unix_target(socket)
    except OmniFlowError as problem:
        return failed("runtime folder", problem.message, f"set {RUNTIME_DIR} to a short path with mode 0700")
    except OSError as problem:
        return failed("runtime folder", str(problem), f"set {RUNTIME_DIR} to a folder that can be made and written to")
    longest = max(len(str(socket)) for socket in sockets)
    return ok("runtime folder", f"{folder}, 0700; its longest socket has {longest} of 107 bytes")


def addresses(settings: Settings, running: Sequence[FlowStatus]) -> Finding:
    """What control planes would listen on: free, or held by a flow of ours."""
    held = {target: flow.name for flow in running for target in (*flow.targets, *flow.internal_targets)}
    found = []
    try:
        for target in _listens(settings):
            if target in held:
                found.append(f"{target} (of the running flow {held[target]!r})")
            else:
                resolve_listen(target)
                found.append(target)
    except OmniFlowError as problem:
        return failed("addresses", problem.message, "set control.listen or control.internal_listen to another address")
    return ok("addresses", ", ".join(found))


def running_flows(settings: Settings) -> list[FlowStatus]:
    """The flows that run on this machine under the same runtime folder; none when nobody could run in that."""
    try:
        folders = sorted(runtime_of(settings.supervisor, "").iterdir())
    except (OmniFlowError, OSError):
        return []
    states = (StateFile(folder).running() for folder in folders if folder.is_dir())
    return [state for state in states if state is not None]


def roles_of(flow: Flow) -> Finding:
    """Whether every node of a flow has a role that serves it."""
    if mistakes := [f"{violation.field} {violation.description}" for violation in role_violations(flow)]:
        return failed("flow", "; ".join(mistakes), "mend the flow, see `omniflow graph check`")
    return ok("flow", f"{flow.name}: {len(flow.roles)} roles, {sum(role.replicas for role in flow.roles)} replicas")


def no_flow(reference: str, problem: OmniFlowError) -> Finding:
    """A flow that could not be loaded."""
    return failed(
        "flow", problem.message, f"name an installed flow or a file; {reference!r} is none that can be loaded"
    )


def _sockets(settings: Settings, folder: Path, flow: Flow | None) -> Iterator[Path]:
    yield socket_of(folder)
    yield folder / "store.sock"
    yield folder / f"control-{settings.supervisor.control_planes}.sock"
    for role in flow.roles if flow else ():
        yield folder / f"{role.name}-{max(role.replicas - 1, 0)}.sock"


def _listens(settings: Settings) -> Iterator[str]:
    """Of every control plane; sockets in the runtime folder are its own affair."""
    for plan in plan_control_planes(settings.control, settings.supervisor.control_planes, Path("/")):
        yield plan.settings.listen
        if settings.control.internal_listen:
            yield plan.settings.internal_listen
