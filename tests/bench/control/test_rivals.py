"""Peers: their environments, their programs, and what is said of those that do not run."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench.control import programs, rivals
from tests.bench.control.rivals import FOLDER, PEERS, Peer, Rivals
from tests.bench.control.topologies import TOPOLOGIES
from tests.support.system import ROOT

NO_BUILD = "import sys; sys.exit('there is no wheel for this machine')"
BUILD = "import sys; print(sys.executable)"


def environments() -> Mapping[str, Any]:
    """Of deploy/environment.py, which is a program and no module of a package."""
    spec = importlib.util.spec_from_file_location("deploy_environment", ROOT / "deploy" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, spec.name, module)  # dataclasses look themselves up
        spec.loader.exec_module(module)
    found: Mapping[str, Any] = module.ENVIRONMENTS
    return found


@pytest.mark.parametrize("environment", sorted({peer.environment for peer in PEERS}))
def test_peer_has_an_environment_in_which_every_package_is_pinned(environment: str) -> None:
    lines = (ROOT / "deploy" / environments()[environment].lock).read_text().splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert packages
    assert all(package.count("==") == 1 for package in packages)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_program_of_a_peer_imports_nothing_of_ours(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert not {name for name in imported if name.partition(".")[0].startswith(("omniflow", "tests"))}


def test_every_peer_has_a_program_and_says_why_it_leaves_topologies_out() -> None:
    for peer in PEERS:
        assert (FOLDER / peer.program).is_file()
        assert bool(peer.why_not_others) == (set(peer.topologies) != set(TOPOLOGIES))


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs print in this test."""
    monkeypatch.setattr(programs, "LOGS", tmp_path)
    monkeypatch.setattr(rivals, "LOGS", tmp_path)
    return tmp_path


def use(monkeypatch: pytest.MonkeyPatch, folder: Path, *, builder: str, program: str = "") -> None:
    """One peer, in an environment that `builder` makes."""
    folder.joinpath("builder.py").write_text(builder)
    folder.joinpath("peer.py").write_text(program)
    monkeypatch.setattr(rivals, "BUILDER", folder / "builder.py")
    monkeypatch.setattr(rivals, "FOLDER", folder)
    monkeypatch.setattr(rivals, "PEERS", (Peer(name="Peer", environment="peer-x", program="peer.py"),))


@pytest.mark.integration
async def test_peer_that_cannot_be_installed_is_left_out_with_the_reason(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, logs, builder=NO_BUILD)
    peers = Rivals()
    await peers.build()
    async with contextlib.AsyncExitStack() as stack:
        assert await peers.enter("fan5", stack) == []
    assert peers.not_run["fan5"]["Peer"].startswith("cannot be installed: there is no wheel for this machine")


@pytest.mark.integration
async def test_peer_that_does_not_start_is_left_out_with_the_reason(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, logs, builder=BUILD, program="raise SystemExit('no such device')")
    peers = Rivals()
    await peers.build()
    async with contextlib.AsyncExitStack() as stack:
        assert await peers.enter("fan5", stack) == []
    assert peers.not_run["fan5"]["Peer"].startswith("does not start: it ended at prepare")
    assert (logs / "fan5-Peer.log").read_text() == "no such device\n"


async def test_peer_without_the_topology_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(
        name="Peer", environment="peer-x", program="peer.py", topologies=("chain3",), why_not_others="chains only"
    )
    monkeypatch.setattr(rivals, "PEERS", (peer,))
    peers = Rivals()
    async with contextlib.AsyncExitStack() as stack:
        assert await peers.enter("fan5", stack) == []
    assert peers.not_run["fan5"] == {"Peer": "chains only"}
