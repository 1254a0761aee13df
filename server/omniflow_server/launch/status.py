"""What is running under a name: the value that the supervisor keeps in its state file and `omniflow status` shows."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from dataclasses import dataclass
from typing import Any

CONTROL = "control"
"""Name of the control-plane process when there is one; several are control-0, control-1, ..."""
STORE = "store"
"""Name of the metadata store's process."""


_LISTS = ("targets", "internal_targets", "notes")


class ProcessKind(enum.StrEnum):
    """What a process is for."""

    STORE = "store"
    CONTROL = "control"
    REPLICA = "replica"


def kind_of(name: str, role: str) -> ProcessKind:
    """Kind of a process. Roles cannot be named like the other two."""
    if role:
        return ProcessKind.REPLICA
    return ProcessKind.STORE if name == STORE else ProcessKind.CONTROL


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
    # Back to the start: it was asked to end so that it starts anew.
    ProcessState.STOPPING: frozenset({ProcessState.STARTING, ProcessState.STOPPED}),
    ProcessState.STOPPED: frozenset(),
    ProcessState.FAILED: frozenset(),
}


class Phase(enum.StrEnum):
    """State of the whole."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    """It was ready; something is being replaced."""
    RESTARTING = "restarting"
    """A rolling restart is on its way; `FlowStatus.rolling` says how far."""
    STOPPING = "stopping"
    FAILED = "failed"
    """It ended with an error; the state file is kept so that `status` can say which."""


_IPV4 = re.compile(r"\d+(\.\d+){3}")


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

    @property
    def kind(self) -> ProcessKind:
        return kind_of(self.name, self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingStatus:
    """A rolling restart: the one that is on its way, else the last one."""

    number: int
    """Counts those of a supervisor, from 1."""
    total: int
    """Processes to restart."""
    done: int = 0
    process: str = ""
    """The one that is being restarted, or that did not come back."""
    error: str = ""
    """Why it was given up; empty while it was not."""

    @property
    def is_over(self) -> bool:
        return bool(self.error) or self.done == self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """Everything that runs under one name."""

    name: str
    flow: str
    graph: str
    target: str
    """Of the first control plane, for clients."""
    internal_target: str
    phase: Phase
    pid: int
    start_ticks: int
    """Of the supervisor; with `pid` it names one process for ever, since pids are used again."""
    started_unix_s: float
    processes: tuple[ProcessStatus, ...]
    error: str = ""
    targets: tuple[str, ...] = ()
    """Of every control plane, in the order of the processes."""
    internal_targets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What the operator should know of how it runs."""
    rolling: RollingStatus | None = None

    @property
    def client_target(self) -> str:
        """One gRPC target for all control planes, where that can be said: a client then goes on with the next."""
        hosts = [target.rpartition(":")[0] for target in self.targets]
        if len(hosts) > 1 and all(_IPV4.fullmatch(host) for host in hosts):
            return f"ipv4:{','.join(self.targets)}"
        return self.target

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
            rolling = RollingStatus(**values["rolling"]) if values.get("rolling") else None
            values |= {name: tuple(values[name]) for name in _LISTS if name in values}
            values |= {"phase": Phase(values["phase"]), "processes": processes, "rolling": rolling}
            return cls(**values)
        except (TypeError, KeyError) as problem:
            raise ValueError(f"no status of a flow: {problem}") from None
