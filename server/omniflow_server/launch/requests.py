"""Telling a running supervisor what to do: one line of JSON over a unix socket in its runtime folder, one line back.

    {"restart": "llm"}   ──▶   {"number": 3}      and from then on the state file tells how far it is
                               {"reason": "CONFLICT", "message": "..."}

A socket and not a signal with a file beside it: SIGHUP already means a terminal that was closed, the default of any other
signal ends a supervisor that does not know it, and neither can say no. The folder is its user's alone (0700).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from omniflow.process import listen_umask
from omniflow_core.errors import OmniFlowError, Reason

_REQUEST_TIMEOUT_S = 5.0


def socket_of(runtime: Path) -> Path:
    """Where the supervisor of a runtime folder takes requests."""
    return runtime / "supervisor.sock"


@contextlib.asynccontextmanager
async def served(runtime: Path, restart: Callable[[str], int]) -> AsyncIterator[None]:
    """Takes requests inside the block. `restart` begins a rolling restart of what the text names and returns its number,
    or raises OmniFlowError."""
    path = socket_of(runtime)
    path.unlink(missing_ok=True)  # of a supervisor that was killed; whoever is here holds the name

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                writer.write(f"{json.dumps(_answer(await reader.readline(), restart))}\n".encode())
                await writer.drain()
        writer.close()

    listening = socket.socket(socket.AF_UNIX)
    with listen_umask():
        listening.bind(str(path))
    server = await asyncio.start_unix_server(answer, sock=listening)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


def ask_restart(runtime: Path, only: str) -> int:
    """Asks for a rolling restart and returns its number. Raises OmniFlowError with the supervisor's refusal, or
    CONNECTION_LOST when none answers."""
    answer = _ask(socket_of(runtime), {"restart": only})
    if "number" in answer:
        return int(answer["number"])
    raise OmniFlowError(Reason(answer["reason"]), str(answer["message"]))


def _answer(line: bytes, restart: Callable[[str], int]) -> dict[str, Any]:
    try:
        request = json.loads(line)
        if not isinstance(request, dict) or not isinstance(request.get("restart"), str):
            raise OmniFlowError(Reason.UNIMPLEMENTED, "this supervisor only knows how to restart; start it anew")
        return {"number": restart(request["restart"])}
    except OmniFlowError as problem:
        return {"reason": problem.reason.value, "message": problem.message}


def _ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2 * _REQUEST_TIMEOUT_S)
            connection.connect(str(path))
            connection.sendall(f"{json.dumps(request)}\n".encode())
            with connection.makefile("rb") as file:
                answer = json.loads(file.readline())
    except (OSError, ValueError) as problem:
        raise OmniFlowError(
            Reason.CONNECTION_LOST,
            f"the supervisor does not answer on {path} ({problem}); if it is of an older version, use `omniflow down` and "
            "`omniflow up`",
            is_stated=False,
        ) from None
    return dict(answer)
