"""The folder of one running flow: who holds its name, and its state file.

<runtime>/default/   lock            held by the supervisor while it lives
                     state.json      FlowStatus, replaced as a whole at each change
                     control*.json   settings of each control plane, 0600
                     supervisor.sock requests to the supervisor; *.sock of the others
                     store/          data of the metadata store, kept between runs
                     logs/
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from omniflow import process
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.launch import identity
from omniflow_server.launch.settings import SupervisorSettings
from omniflow_server.launch.status import FlowStatus


def runtime_of(settings: SupervisorSettings, name: str) -> Path:
    """The folder of a name, made if need be. Raises OmniFlowError INVALID_CONFIG for one that others can enter."""
    if settings.runtime_dir:
        # As a variable, so that what this process starts looks in the same place.
        os.environ[process.RUNTIME_DIR] = settings.runtime_dir
    return process.runtime_dir(name)


class StateFile:
    """The state of one name, on disk."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.path = runtime / "state.json"

    def write(self, status: FlowStatus) -> None:
        """Replaces the state as a whole: a reader sees the old one or the new one."""
        write_private(self.path, status.to_json())

    def read(self) -> FlowStatus | None:
        """The last state that was written; None when there is none or it is of another version."""
        try:
            return FlowStatus.from_json(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def remove(self) -> None:
        """Forgets the state."""
        self.path.unlink(missing_ok=True)

    def running(self) -> FlowStatus | None:
        """The state, if the supervisor that wrote it still runs."""
        status = self.read()
        return status if status and identity.is_running(status.pid, status.start_ticks) else None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Holds the name. Raises OmniFlowError CONFLICT that says who holds it."""
        with (self.runtime / "lock").open("w") as file:
            try:
                # A lock and not only the state file: two `up` at the same moment must not both win, and a lock dies
                # with its process, however that ends.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OmniFlowError(Reason.CONFLICT, self._holder()) from None
            yield

    def _holder(self) -> str:
        name, status = self.runtime.name, self.read()
        who = f"{status.flow} as process {status.pid} on {status.target}" if status else "another process"
        return (
            f"the name {name!r} is taken by {who}; stop it with `omniflow down --name {name}`, or choose another --name"
        )


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read (0600), as a whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
