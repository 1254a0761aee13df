"""Checks of what is installed: packages of this environment, interfaces, and the environments that a flow's roles name."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata

from omniflow import discovery
from omniflow.flow import Flow
from omniflow_core.errors import OmniFlowError
from omniflow_server.config import variable_of
from omniflow_server.launch.doctor.findings import Finding, failed, ok, warning

DISTRIBUTION = "omniflow-serving"
_WITH_FLOORS = ("grpcio", "protobuf")
"""Generated code refuses older ones with an error that names neither the package nor the remedy."""
_PROBE = "import importlib.util, omniflow_roles, sys; sys.exit(3 if importlib.util.find_spec('mooncake') else 0)"
_HAS_MOONCAKE = 3
_PROBE_TIMEOUT_S = 4.0


def packages(
    requires: Callable[[str], list[str] | None] = metadata.requires, version: Callable[[str], str] = metadata.version
) -> Finding:
    """Versions of grpcio and protobuf against the floors that this installation declares."""
    try:
        floors = dict(_floors(requires(DISTRIBUTION) or ()))
        found = {name: version(name) for name in _WITH_FLOORS}
    except metadata.PackageNotFoundError as problem:
        return failed("packages", f"{problem.name} is not installed", f"pip install {DISTRIBUTION}")
    old = [name for name in found if _numbers(found[name]) < _numbers(floors.get(name, "0"))]
    text = ", ".join(f"{name} {found[name]}" for name in found)
    if not old:
        return ok("packages", text)
    wanted = " ".join(f"'{name}>={floors[name]}'" for name in old)
    return failed("packages", f"{text}: too old", f"pip install {wanted}")


def interfaces(names: Iterable[str] | None = None, load: Callable[[str], object] = discovery.load) -> Finding:
    """Registered interfaces: there are some, and each can be loaded. One that only lacks a package here may well be at home
    in the environment of its role."""
    names = sorted(discovery.registered() if names is None else names)
    broken: dict[str, str] = {}
    away: dict[str, str] = {}
    for name in names:
        try:
            load(name)
        except OmniFlowError as problem:
            (away if isinstance(problem.__cause__, ImportError) else broken)[name] = problem.message
        except Exception as problem:  # whatever a module of somebody else raises
            broken[name] = f"{name}: {type(problem).__name__}: {problem}"
    if broken or not names:
        found = "; ".join(broken.values()) or "none is registered"
        return failed("interfaces", found, f"install {DISTRIBUTION} or the package that registers them again")
    if away:
        remedy = "fine when their roles run in another environment; else install what is missing"
        return warning("interfaces", "; ".join(away.values()), remedy)
    return ok("interfaces", f"{len(names)} are registered, and each can be loaded")


def environments(flow: Flow, interpreters: Mapping[str, str]) -> Finding:
    """The interpreters of a flow's roles: each is there and has the roles. `interpreters` by name of the environment."""
    broken = {}
    for name in needed_environments(flow):
        if problem := _problem_of(name, interpreters.get(name, "")):
            broken[name] = problem
    if broken:
        variables = ", ".join(f"{variable_of(f'environments.{name}')}=/path/to/python" for name in broken)
        return failed(
            "environments", "; ".join(broken.values()), f"set {variables} to interpreters with omniflow_roles"
        )
    return ok("environments", ", ".join(f"{name}: {interpreters[name]}" for name in needed_environments(flow)))


def needed_environments(flow: Flow) -> list[str]:
    """Names of the environments that its roles run in."""
    return sorted({role.environment for role in flow.roles})


def has_mooncake(interpreters: Sequence[str]) -> bool:
    """Whether any environment can import mooncake."""
    return any(_probe(interpreter)[0] == _HAS_MOONCAKE for interpreter in interpreters if shutil.which(interpreter))


def _problem_of(name: str, interpreter: str) -> str:
    if not interpreter:
        return f"{name} has no interpreter"
    if shutil.which(interpreter) is None:
        return f"{name}: there is no program {interpreter}"
    status, last_words = _probe(interpreter)
    return "" if status in (0, _HAS_MOONCAKE) else f"{name}: {interpreter} cannot import omniflow_roles: {last_words}"


def _probe(interpreter: str) -> tuple[int, str]:
    """Exit status of the probe, and the last line that it wrote."""
    try:
        done = subprocess.run(
            [interpreter, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return -1, str(problem)
    return done.returncode, next(reversed(done.stderr.strip().splitlines()), f"status {done.returncode}")


def _floors(requirements: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in requirements:
        if match := re.match(r"([\w.-]+)\s*>=\s*([\d.]+)", line):
            yield match[1], match[2]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
