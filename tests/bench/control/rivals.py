"""The peers: which configurations of them take part, and how their programs are started.

Each runs in an environment of its own (`deploy/environment.py`), which is built when the bench is asked for peers. One that
cannot be installed, does not start or gives a wrong reply is left out, with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench.control.entrants import Entrant
from tests.bench.control.programs import LOGS, Program, ProgramError, log_of
from tests.bench.control.topologies import TOPOLOGIES
from tests.support.system import ROOT

BUILDER = ROOT / "deploy" / "environment.py"
FOLDER = ROOT / "tests" / "bench" / "peers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One configuration of a peer."""

    name: str
    environment: str
    program: str
    """Its file in `tests/bench/peers`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    topologies: Sequence[str] = TOPOLOGIES
    why_not_others: str = ""


LANGGRAPH = Peer(name="LangGraph", environment="peer-langgraph", program="langgraph_peer.py")
SGLANG_OMNI_EACH = Peer(
    name="SGLang-Omni, a process per stage",
    environment="peer-sglang-omni",
    program="sglang_omni_peer.py",
    options={"processes": "each"},
)
SGLANG_OMNI_ONE = Peer(
    name="SGLang-Omni, one process",
    environment="peer-sglang-omni",
    program="sglang_omni_peer.py",
    options={"processes": "one"},
)
SGLANG_OMNI_PROJECT = Peer(
    name="SGLang-Omni, one process + project_payload",
    environment="peer-sglang-omni",
    program="sglang_omni_peer.py",
    options={"processes": "one", "project": True},
    topologies=("diamond4", "fan5"),
    why_not_others="nothing fans out, so it is the same as one process",
)
PEERS = (
    LANGGRAPH,
    SGLANG_OMNI_EACH,
    SGLANG_OMNI_ONE,
    SGLANG_OMNI_PROJECT,
    Peer(
        name="M*, a worker per node",
        environment="peer-mstar",
        program="mstar_peer.py",
        options={"processes": "each"},
    ),
    Peer(name="M*, one worker", environment="peer-mstar", program="mstar_peer.py", options={"processes": "one"}),
    Peer(
        name="vLLM-Omni, orchestrator alone",
        environment="peer-vllm-omni",
        program="vllm_omni_peer.py",
        options={"is_event_driven": True},
        topologies=("chain3",),
        why_not_others="its orchestrator hands requests along chains only",
    ),
)


class Rivals:
    """The peers of one run of the bench."""

    def __init__(self) -> None:
        self.not_run: dict[str, dict[str, str]] = {topology: {} for topology in TOPOLOGIES}
        """By topology and name: why. Without what was not asked for."""
        self._interpreters: dict[str, str] = {}
        self._failures: dict[str, str] = {}

    async def build(self) -> None:
        """Makes the environments, or notes why one cannot be made."""
        for environment in dict.fromkeys(peer.environment for peer in PEERS):
            await self._build(environment)

    async def _build(self, environment: str) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        path = LOGS / f"{environment}.build.log"
        with path.open("wb") as log:
            building = await asyncio.create_subprocess_exec(
                sys.executable, str(BUILDER), environment, stdout=asyncio.subprocess.PIPE, stderr=log
            )
            output, _ = await building.communicate()
        if building.returncode == 0:
            self._interpreters[environment] = output.decode().strip()
        else:
            lines = path.read_text(errors="replace").strip().splitlines() or [""]
            self._failures[environment] = f"cannot be installed: {lines[-1][:200]}, see {path}"

    async def enter(self, topology: str, stack: contextlib.AsyncExitStack) -> list[Entrant]:
        """Starts those that can run the topology, one after another."""
        entrants = []
        for peer in PEERS:
            reason = self._failures.get(peer.environment)
            if topology not in peer.topologies:
                reason = peer.why_not_others
            if reason is None:
                print(f"{topology}: starting {peer.name}", file=sys.stderr, flush=True)
                try:
                    entrants.append(await self._start(peer, topology, stack))
                except ProgramError as error:
                    reason = f"does not start: {error}"
            if reason is not None:
                self.not_run[topology][peer.name] = reason
        return entrants

    async def _start(self, peer: Peer, topology: str, stack: contextlib.AsyncExitStack) -> Entrant:
        command = [self._interpreters[peer.environment], str(FOLDER / peer.program)]
        async with contextlib.AsyncExitStack() as own:
            program = await own.enter_async_context(
                Program(command, log_of(topology, peer.name), env={"PYTHONPATH": ""})
            )
            await program.prepare(topology, peer.options)
            program.sleep()
            stack.push_async_exit(own.pop_all())
        return Entrant(name=peer.name, program=program, is_peer=True)
