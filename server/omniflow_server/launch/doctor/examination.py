"""All checks in their order. Those that need settings or a flow are left out when there is none that can be used."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from omniflow.flow import Flow
from omniflow.flow_loading import load_flow
from omniflow_core.errors import OmniFlowError
from omniflow_server.config import Configuration, Settings
from omniflow_server.launch.doctor import configuration, installation, machine, stores
from omniflow_server.launch.doctor.findings import Finding, failed
from omniflow_server.launch.plan import BASE_ENVIRONMENT


def examine(load: Callable[[], Configuration], *, name: str, flow_reference: str = "") -> Iterator[Finding]:
    """Every finding, as it is made. `load` reads the settings; `name` is that of the flow to be started."""
    yield from _machine()
    flow = None
    if flow_reference:
        flow, finding = _flow(flow_reference)
        yield finding
    try:
        loaded = load()
    except OmniFlowError as problem:
        yield configuration.refused_settings(problem)
        return
    yield configuration.valid_settings(loaded)
    yield from _settings(loaded.settings, name, flow)


def attempt(check: Callable[[], Finding], name: str) -> Finding:
    """The finding of a check, also of one that breaks in a way that it did not think of."""
    try:
        return check()
    except Exception as problem:
        return failed(name, f"{type(problem).__name__}: {problem}", "please report this with the output of --json")


def _machine() -> Iterator[Finding]:
    checks: dict[str, Callable[[], Finding]] = {
        "python": machine.python_version,
        "system": machine.operating_system,
        "open files": machine.open_files,
        "memory files": machine.memory_files,
        "shared memory": machine.shared_memory,
        "gpu": machine.gpu,
        "packages": installation.packages,
        "interfaces": installation.interfaces,
    }
    for name, check in checks.items():
        yield attempt(check, name)


def _flow(reference: str) -> tuple[Flow | None, Finding]:
    try:
        flow = load_flow(reference)
    except OmniFlowError as problem:
        return None, configuration.no_flow(reference, problem)
    return flow, configuration.roles_of(flow)


def _settings(settings: Settings, name: str, flow: Flow | None) -> Iterator[Finding]:
    interpreters = {BASE_ENVIRONMENT: sys.executable, **settings.environments}
    yield attempt(functools.partial(configuration.runtime_folder, settings, name, flow), "runtime folder")
    yield attempt(lambda: configuration.addresses(settings, configuration.running_flows(settings)), "addresses")
    yield attempt(functools.partial(stores.metadata_store, settings, os.environ, sys.executable), "store")
    yield attempt(functools.partial(stores.clock, settings, os.environ, sys.executable), "clock")
    if flow is not None:
        yield attempt(functools.partial(installation.environments, flow, interpreters), "environments")
    others = [python for environment, python in interpreters.items() if environment != BASE_ENVIRONMENT]
    has_mooncake = find_spec("mooncake") is not None or installation.has_mooncake(others)
    yield attempt(functools.partial(machine.transfer_library, has_mooncake=has_mooncake), "rdma")
