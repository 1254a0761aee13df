"""A cluster of real processes under `omniflow up`, and what happens to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from omniflow_server.data.metadata.server import connection_of

ROOT = Path(__file__).resolve().parent.parent.parent
FLOW = "tests/chaos/flow.py"
READY_S = 60.0


class Cluster:
    """What `omniflow up` has started, by the names of its processes."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.folder = folder
        self.process = process

    def state(self) -> dict[str, Any]:
        """The supervisor's state; empty before it has written one."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.folder / "default" / "state.json").read_text())
            return found
        return {}

    @property
    def targets(self) -> list[str]:
        return list(self.state()["targets"])

    def names(self) -> list[str]:
        return [process["name"] for process in self.state()["processes"]]

    def pid(self, name: str) -> int:
        return int(next(process["pid"] for process in self.state()["processes"] if process["name"] == name))

    def send(self, name: str, number: signal.Signals) -> None:
        os.kill(self.pid(name), number)

    async def wait_ready(self, within_s: float = READY_S) -> None:
        """Returns when every process is up again and the graph is served."""
        deadline_s = time.monotonic() + within_s
        while self.state().get("phase") != "ready":
            if time.monotonic() > deadline_s or self.process.returncode is not None:
                raise TimeoutError(f"not ready: {self.state()}\n{self.logs()}")
            await asyncio.sleep(0.02)

    async def wait_replaced(self, name: str, pid: int, within_s: float = READY_S) -> None:
        """Returns when another process runs in the place of one that was killed, and everything is ready."""
        deadline_s = time.monotonic() + within_s
        while self.pid(name) in (0, pid):
            assert time.monotonic() < deadline_s, f"{name} is not replaced: {self.state()}"
            await asyncio.sleep(0.02)
        await self.wait_ready()

    def logs(self, lines: int = 15) -> str:
        """The ends of all logs."""
        found = [self.folder / "up.log", *sorted((self.folder / "default" / "logs").glob("*.log"))]
        return "\n".join(f"== {path.name}\n" + "\n".join(path.read_text().splitlines()[-lines:]) for path in found)

    async def store_keys(self) -> Counter[str]:
        """Keys in the metadata store by kind, such as "session"."""
        store = connection_of(f"unix://{self.folder}/default/store.sock")
        try:
            await store.connect()
            await store.send_command("KEYS", "*")
            return Counter(key.decode().partition("}:")[2].partition(":")[0] for key in await store.read_response())
        finally:
            await store.disconnect()

    async def command(self, *words: str) -> str:
        """Runs `omniflow` beside it, and returns what it says. Raises when it fails."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "omniflow_server", *words),
            cwd=ROOT,
            env=self.env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"omniflow {' '.join(words)} ended with {process.returncode}: {out.decode()}")
        return out.decode()

    @property
    def env(self) -> dict[str, str]:
        """The environment of its commands."""
        return environment(self.folder)


@contextlib.asynccontextmanager
async def cluster(*settings: str, control_planes: int = 2, flow: str = FLOW) -> AsyncIterator[Cluster]:
    """Two control planes, three replicas and a store, ready; nothing is left at the end."""
    with tempfile.TemporaryDirectory(prefix="of-") as name:
        folder = Path(name)
        command = _command(
            "up", flow, "--listen", "127.0.0.1:0", f"supervisor.control_planes={control_planes}", *settings
        )
        with (folder / "up.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=ROOT,
                env=environment(folder),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
            )
        running = Cluster(folder, process)
        try:
            await running.wait_ready()
            yield running
        finally:
            await _stop(process)


def environment(folder: Path) -> dict[str, str]:
    """Of the commands: the code that the tests see, a runtime folder of their own, and no store but their own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("REDIS_", "OMNIFLOW_CONTROL_"))}
    return {**clean, "OMNIFLOW_RUNTIME_DIR": str(folder), "PYTHONPATH": ":".join((str(ROOT), *filter(None, sys.path)))}


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(60):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise


def _command(verb: str, flow: str, *options: str) -> Sequence[str]:
    found = [sys.executable, "-m", "omniflow_server", verb, flow]
    for option in options:
        found += ["--set", option] if "=" in option else [option]
    return found
