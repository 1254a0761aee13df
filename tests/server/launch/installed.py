"""The `omniflow` command as its own process, in a runtime folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TINY = str(Path(__file__).with_name("tiny_flow.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Runs the command."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment of the command."""
        kept = "OMNIFLOW_ENVIRONMENTS_"  # where the interpreters of roles are; everything else is the test's own
        clean = {n: v for n, v in os.environ.items() if not n.startswith("OMNIFLOW_") or n.startswith(kept)}
        return clean | {
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            "OMNIFLOW_RUNTIME_DIR": str(self.folder / "run"),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts the command; its output can be read."""
        return subprocess.Popen(
            [sys.executable, "-m", "omniflow_server", *arguments],
            env=self.env,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """Runs the command to its end and checks its status; what it printed, errors last."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=120)
        assert process.returncode == status, f"omniflow {' '.join(arguments)}: {process.returncode}\n{out}{err}"
        return out + err

    def status(self) -> dict[str, Any]:
        """What `omniflow status --json` says of what runs."""
        return dict(json.loads(self("status", "--json")))

    def pids(self) -> dict[str, int]:
        """Pid of each process."""
        return {process["name"]: process["pid"] for process in self.status()["processes"]}
