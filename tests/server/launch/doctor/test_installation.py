"""Checks of what is installed, each also where something is missing."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from omniflow.dsl import Graph
from omniflow.flow import Flow, RolePlan
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.launch.doctor import installation
from omniflow_server.launch.doctor.findings import Verdict

FLOORS = ["grpcio>=1.75.1", "protobuf>=6.31.1", "uvloop>=0.21", 'ray[default]>=2.50; extra == "ray"']


def versions(**found: str) -> dict[str, str]:
    return {"grpcio": "1.75.1", "protobuf": "7.0.0", **found}


def flow(**environments: str) -> Flow:
    """A flow whose roles run in environments."""
    roles = tuple(RolePlan(name=role, interfaces=(), environment=name) for role, name in environments.items())
    return Flow(name="some", graph=Graph("some"), roles=roles)


def interpreter(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def test_packages_of_this_environment_are_new_enough() -> None:
    finding = installation.packages()
    assert finding.verdict is Verdict.OK
    assert finding.found == f"grpcio {metadata.version('grpcio')}, protobuf {metadata.version('protobuf')}"


@pytest.mark.parametrize(("name", "version"), [("grpcio", "1.75.0"), ("protobuf", "6.31.0"), ("grpcio", "1.9.12")])
def test_packages_below_their_floors_fail(name: str, version: str) -> None:
    finding = installation.packages(lambda distribution: FLOORS, versions(**{name: version}).__getitem__)
    assert finding.verdict is Verdict.FAILED
    assert f"{name} {version}" in finding.found
    assert finding.remedy == f"pip install '{name}>={'1.75.1' if name == 'grpcio' else '6.31.1'}'"


def test_packages_that_are_not_installed_fail() -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    finding = installation.packages(lambda distribution: FLOORS, version)
    assert (finding.verdict, finding.found) == (Verdict.FAILED, "grpcio is not installed")


def test_interfaces_that_load_are_well() -> None:
    finding = installation.interfaces(["b", "a"], lambda name: None)
    assert (finding.verdict, finding.found) == (Verdict.OK, "2 are registered, and each can be loaded")


def test_interfaces_fail_when_none_is_registered() -> None:
    assert installation.interfaces([]).verdict is Verdict.FAILED


def test_interface_that_lacks_a_package_here_is_a_warning() -> None:
    def load(name: str) -> object:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{name}: torch cannot be imported") from ImportError("torch")

    finding = installation.interfaces(["asr"], load)
    assert (finding.verdict, finding.found) == (Verdict.WARNING, "asr: torch cannot be imported")


@pytest.mark.parametrize(
    ("problem", "found"),
    [
        (OmniFlowError(Reason.INVALID_CONFIG, "asr gives no Interface"), "asr gives no Interface"),
        (SyntaxError("line 3"), "asr: SyntaxError: line 3"),
    ],
)
def test_interface_that_is_none_fails(problem: Exception, found: str) -> None:
    def load(name: str) -> object:
        raise problem

    finding = installation.interfaces(["asr"], load)
    assert (finding.verdict, finding.found) == (Verdict.FAILED, found)


@pytest.mark.integration
def test_environments_with_the_roles_are_well() -> None:
    finding = installation.environments(flow(echo="base", llm="base"), {"base": sys.executable})
    assert (finding.verdict, finding.found) == (Verdict.OK, f"base: {sys.executable}")


@pytest.mark.integration
def test_environments_that_cannot_run_roles_fail_by_name(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "echo 'ModuleNotFoundError: omniflow_roles' >&2; exit 1")
    finding = installation.environments(
        flow(a="base", b="torch", c="absent"), {"base": python, "torch": "/nowhere/python"}
    )
    assert finding.verdict is Verdict.FAILED
    assert finding.found == (
        f"absent has no interpreter; base: {python} cannot import omniflow_roles: ModuleNotFoundError: omniflow_roles; "
        "torch: there is no program /nowhere/python"
    )
    assert "OMNIFLOW_ENVIRONMENTS_TORCH=/path/to/python" in finding.remedy


@pytest.mark.integration
def test_environment_that_hangs_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_PROBE_TIMEOUT_S", 0.2)
    finding = installation.environments(flow(a="base"), {"base": interpreter(tmp_path, "exec sleep 60")})
    assert finding.verdict is Verdict.FAILED
    assert "timed out" in finding.found


@pytest.mark.integration
def test_mooncake_is_found_in_any_environment(tmp_path: Path) -> None:
    with_mooncake = interpreter(tmp_path, "exit 3")
    assert not installation.has_mooncake(["/nowhere/python"])
    assert installation.has_mooncake(["/nowhere/python", with_mooncake])
    assert installation.environments(flow(a="base"), {"base": with_mooncake}).verdict is Verdict.OK
