"""Checks of the metadata store: which one would be used, whether it works, and whether its clock agrees with ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from omniflow_core.errors import OmniFlowError
from omniflow_server.config import Settings
from omniflow_server.data.metadata import connecting
from omniflow_server.launch.doctor.findings import Finding, failed, ok, warning
from omniflow_server.launch.store import HOW_TO_INSTALL, StoreChoice, StoreKind, choose_store, is_answering

_EXTERNAL_TIMEOUT_S = 1.5
_EMBEDDED_TIMEOUT_S = 3.0
_LOOK_INTERVAL_S = 0.02
CLOCK_TOLERANCE_S = 1.0
"""Leases run by the store's clock alone; but logs and deadlines of two machines should tell one story."""


def metadata_store(settings: Settings, environ: Mapping[str, str], python: str) -> Finding:
    """The store that `omniflow up` would use. One of its own is started in a temporary folder, asked, and stopped."""
    with tempfile.TemporaryDirectory(prefix="of-") as folder:
        try:
            choice = choose_store(settings, Path(folder), environ, python)
            return asyncio.run(_tried(choice, settings))
        except OmniFlowError as problem:
            return failed("store", problem.message, "set control.metadata_url or REDIS_URL to a store that works")


def clock(settings: Settings, environ: Mapping[str, str], python: str) -> Finding:
    """This machine's clock against that of an external store."""
    try:
        choice = choose_store(settings, Path("/tmp"), environ, python)  # noqa: S108 - only named, nothing is made there
        if choice.kind is not StoreKind.EXTERNAL:
            return ok("clock", "the store is on this machine")
        return compared_clocks(asyncio.run(_ahead_s(choice.url)))
    except Exception as problem:  # the check of the store says what is wrong with it
        return warning("clock", f"not compared: {type(problem).__name__}", "mend the store first")


def compared_clocks(ahead_s: float) -> Finding:
    """The verdict on a store's clock that is so far ahead of ours."""
    found = f"{abs(ahead_s):.2f} s {'behind' if ahead_s > 0 else 'ahead of'} the store"
    if abs(ahead_s) < CLOCK_TOLERANCE_S:
        return ok("clock", found)
    return failed("clock", found, "set both machines by one time server, such as with chrony or systemd-timesyncd")


async def _tried(choice: StoreChoice, settings: Settings) -> Finding:
    if choice.kind is StoreKind.EXTERNAL:
        return await _tried_external(choice, settings)
    if choice.kind is StoreKind.EMBEDDED:
        return await _tried_embedded(choice)
    if choice.note:
        return warning("store", "none: applied graphs are forgotten when the control plane stops", HOW_TO_INSTALL)
    return ok("store", "in memory, as supervisor.metadata says")


async def _tried_external(choice: StoreChoice, settings: Settings) -> Finding:
    store = await connecting.open_store(
        choice.url,
        namespace=settings.control.metadata_namespace,
        allow_volatile=settings.control.allow_volatile_store,
        timeout_s=_EXTERNAL_TIMEOUT_S,
    )
    await store.close()
    return ok("store", f"{connecting.address_of(choice.url)} can be used")


async def _tried_embedded(choice: StoreChoice) -> Finding:
    assert choice.socket is not None
    async with _started(choice) as server:
        if not await _answers(server, choice.socket):
            return failed("store", await _last_words(server, choice), HOW_TO_INSTALL)
        answer = await _evaluated(choice.socket)
    if answer != b":1\r\n":
        said = answer.decode(errors="replace").strip()
        return failed("store", f"its server runs no scripts: {said}", HOW_TO_INSTALL)
    return ok("store", f"its own {choice.server}, started and asked")


async def _answers(server: Process, socket: Path) -> bool:
    deadline_s = time.monotonic() + _EMBEDDED_TIMEOUT_S
    while server.returncode is None and time.monotonic() < deadline_s:
        if await is_answering(socket):
            return True
        await asyncio.sleep(_LOOK_INTERVAL_S)
    return False


async def _evaluated(socket: Path) -> bytes:
    """A script's answer; the store is nothing to us without scripts."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        writer.write(b'EVAL "return 1" 0\r\n')
        return await asyncio.wait_for(reader.readline(), _EXTERNAL_TIMEOUT_S)
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def _started(choice: StoreChoice) -> AsyncIterator[Process]:
    if choice.folder is not None:
        choice.folder.mkdir(mode=0o700)
    server = await asyncio.create_subprocess_exec(
        *choice.argv,
        env={**os.environ, "OMNIFLOW_PARENT_PID": str(os.getpid())},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield server
    finally:
        if server.returncode is None:
            server.kill()  # it has nothing to keep
        await server.communicate()


async def _last_words(server: Process, choice: StoreChoice) -> str:
    if server.returncode is None:
        return f"{choice.server} does not answer in {_EMBEDDED_TIMEOUT_S:g} s"
    assert server.stdout is not None
    lines = (await server.stdout.read()).decode(errors="replace").strip().splitlines()
    return f"{choice.server} ended with status {server.returncode}: {lines[-1] if lines else ''}"


async def _ahead_s(url: str) -> float:
    """How far the store's clock is ahead of ours."""
    from omniflow_server.data.metadata.server import connection_of

    connection = connection_of(url)
    async with asyncio.timeout(_EXTERNAL_TIMEOUT_S):
        try:
            await connection.connect()
            asked_s = time.time()
            await connection.send_command("TIME")
            seconds, microseconds = await connection.read_response()
            return float(seconds) + int(microseconds) / 1e6 - (asked_s + time.time()) / 2
        finally:
            await connection.disconnect(nowait=True)
