"""What is running under a name: the value that the supervisor keeps in its state file and `omniflow status` shows."""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass
from typing import Any


class ProcessState(enum.StrEnum):
    """State of one process."""

    STARTING = "starting"
    """It runs and is not ready yet."""
    READY = "ready"
    RESTARTING = "restarting"
    """It died; the next start is due after a pause."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    """It was given up."""


NEXT_STATES: dict[ProcessState, frozenset[ProcessState]] = {
    ProcessState.STARTING: frozenset(
        {ProcessState.READY, ProcessState.RESTARTING, ProcessState.STOPPING, ProcessState.STOPPED, ProcessState.FAILED}
    ),
    ProcessState.READY: frozenset({ProcessState.RESTARTING, ProcessState.STOPPING, ProcessState.STOPPED}),
    ProcessState.RESTARTING: frozenset({ProcessState.STARTING, ProcessState.STOPPED, ProcessState.FAILED}),
    ProcessState.STOPPING: frozenset({ProcessState.STOPPED}),
    ProcessState.STOPPED: frozenset(),
    ProcessState.FAILED: frozenset(),
}


class Phase(enum.StrEnum):
    """State of the whole."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    """It was ready; something is being replaced."""
    STOPPING = "stopping"
    FAILED = "failed"
    """It ended with an error; the state file is kept so that `status` can say which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One process. `pid` and `start_ticks` are 0 while it does not run."""

    name: str
    role: str
    replica_id: str
    state: ProcessState
    pid: int = 0
    start_ticks: int = 0
    restarts: int = 0
    started_unix_s: float = 0.0
    """Start of this life."""
    death: str = ""
    """How the last life ended."""
    log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """Everything that runs under one name."""

    name: str
    flow: str
    graph: str
    target: str
    internal_target: str
    phase: Phase
    pid: int
    start_ticks: int
    """Of the supervisor; with `pid` it names one process for ever, since pids are used again."""
    started_unix_s: float
    processes: tuple[ProcessStatus, ...]
    error: str = ""

    def to_json(self) -> str:
        """As text; `from_json` reads it."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> FlowStatus:
        """The status from `to_json`'s text. Raises ValueError for anything else."""
        try:
            values: dict[str, Any] = json.loads(text)
            processes = tuple(
                ProcessStatus(**{**item, "state": ProcessState(item["state"])}) for item in values["processes"]
            )
            return cls(**{**values, "phase": Phase(values["phase"]), "processes": processes})
        except (TypeError, KeyError) as problem:
            raise ValueError(f"no status of a flow: {problem}") from None
