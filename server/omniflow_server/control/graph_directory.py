"""The graphs of a cluster: changes go through the metadata store, and each process takes into its catalog what it can run.

    apply ──▶ compile, prepare ──▶ read the row, change it, write the version after it ──▶ catalog
                                    └ CONFLICT: somebody else was first; read again
    refresh ─▶ read all rows ──▶ those that changed: compile, prepare ──▶ catalog

A row can run here when every revision that it gives a share can: its interfaces are known and could be set up. Until then
this process goes on with what it has of the graph, and says so in its log. Revisions without a share are kept as they are,
so an update may take an interface away that only old ones name.

Operator's flows come with the process. The first process installs them; a flow that is among the kept revisions changes
nothing, so that a process that restarts with an old file in the middle of a rolling update does not undo it, and a canary
outlives restarts. A revision that is not kept is a new deployment, and takes all calls.

Does not know when the store has changed: whoever ticks calls `refresh` then.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.control.catalog import Catalog, CatalogEntry
from omniflow_server.control.graph_rows import UnreadableRowError, decode, encode
from omniflow_server.control.graph_versions import GraphVersions, Revision
from omniflow_server.data.metadata.port import GraphRow, MetadataStore

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 8
"""Writes of one change that lose against others before its caller is told."""

_CANNOT_RUN = frozenset(
    {Reason.INVALID_GRAPH, Reason.UNKNOWN_INTERFACE, Reason.INVALID_CONFIG, Reason.UNIMPLEMENTED, Reason.QUOTA_EXCEEDED}
)
"""Why this process cannot run a row that others can."""

Change = Callable[[GraphVersions | None], GraphVersions]
"""From what a graph is, None when there is none, to what it shall be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphState:
    """A graph as the cluster has it."""

    versions: GraphVersions
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row that was read or written. Its identity says whether the catalog has it."""

    name: str
    version: int
    digest: bytes
    versions: GraphVersions | None
    """None: this version cannot read it, as `fault` says."""
    fault: str = ""

    @property
    def readable(self) -> GraphVersions:
        """Raises UNIMPLEMENTED."""
        if self.versions is None:
            raise OmniFlowError(Reason.UNIMPLEMENTED, f"{self.name} cannot be read by this process: {self.fault}.")
        return self.versions


class GraphDirectory:
    """Graphs in the store and in the catalog.

    prepare: sets up what an entry needs before it is called, its inline interfaces; it may be asked again for the same one.
    on_changed: called when the catalog has changed.
    epoch: the epoch of this process's present life. now_ms: milliseconds since 1970.

    Every method raises STORE_UNAVAILABLE and STALE_OWNER as the store does.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        store: MetadataStore,
        epoch: Callable[[], int],
        prepare: Callable[[CatalogEntry], Awaitable[None]],
        on_changed: Callable[[], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._epoch = epoch
        self._prepare = prepare
        self._on_changed = on_changed
        self._now_ms = now_ms
        self._lock = asyncio.Lock()
        """Held for each use of the store, so that what was read last is also the newest."""
        self._rows: dict[str, _Row] = {}
        """What the store has."""
        self._taken: dict[str, _Row] = {}
        """What the catalog has of it."""

    # --- changes ------------------------------------------------------------------------------------------------------

    async def apply(self, message: graph_spec_pb2.GraphSpec, canary_percent: int | None = None) -> CatalogEntry:
        """Installs a definition: for a share of the new calls, or all of them. Nothing is installed when this process could
        not run it. Raises InvalidGraphError, QUOTA_EXCEEDED, and what setting up its interfaces raises."""
        entry = await self._ready_entry(message)
        state = await self._change(entry.message.name, lambda known: _added(known, entry, canary_percent), entry=entry)
        return _dated(entry, state.versions.find(entry.message.revision))

    async def install_flow(self, message: graph_spec_pb2.GraphSpec) -> None:
        """Installs an operator's flow, unless its revision is kept already: then its share stays as it is. While this
        process cannot run what the cluster has of the graph, it runs the flow by itself. Raises as `apply`."""
        entry = await self._ready_entry(message)
        name, revision = entry.message.name, entry.message.revision
        try:
            await self._change(
                name,
                lambda known: known if known and revision in known.names else _added(known, entry, None),
                entry=entry,
            )
        except OmniFlowError as problem:
            if problem.reason not in _CANNOT_RUN:
                raise
            log.warning("%s runs here as its flow says, not as in the cluster: %s", name, problem.message)
            self._catalog.install(entry)
            await self._on_changed()

    async def set_traffic(self, name: str, shares: Sequence[tuple[str, int]], etag: str = "") -> GraphState:
        """Shares new calls among kept revisions. Raises UNKNOWN_GRAPH, INVALID_FIELD with every fault, InvalidGraphError for
        a revision that this process cannot run, CONFLICT when an etag is given and the graph has changed since."""

        def change(known: GraphVersions | None) -> GraphVersions:
            if known is None:
                raise self._catalog.unknown(name)
            return known.with_shares(shares)

        return await self._change(name, change, etag=etag)

    async def _change(
        self, name: str, change: Change, *, etag: str = "", entry: CatalogEntry | None = None
    ) -> GraphState:
        """Writes what `change` makes of the graph, against concurrent changes. `entry` is of a revision that it may add."""
        for _ in range(MAX_ATTEMPTS):
            row = await self._current(name)
            if etag and etag != str(row.version if row else 0):
                raise _conflict(name)
            known = row.readable if row else None
            wanted = change(known)
            entries = await self._ready(wanted, entry)
            if row is None or wanted is not known or not row.version:
                try:
                    row = await self._write(wanted, (row.version if row else 0) + 1)
                except OmniFlowError as problem:
                    if problem.reason is not Reason.CONFLICT:
                        raise
                    continue
            self._take(row, entries)
            await self._on_changed()
            return GraphState(versions=wanted, etag=str(row.version))
        raise _conflict(name)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def revisions(self, name: str) -> GraphState:
        """What the cluster has of a graph now. Raises UNKNOWN_GRAPH, UNIMPLEMENTED for a row that cannot be read here."""
        row = await self._current(name)
        if row is None:
            raise self._catalog.unknown(name)
        return GraphState(versions=row.readable, etag=str(row.version))

    async def refresh(self) -> None:
        """Takes in what has changed in the store. What cannot run here is logged, left out and tried again the next time.
        Graphs that a wiped store has lost are written back."""
        await self._read()
        if await self._restore():
            await self._read()
        changed = [row for name, row in sorted(self._rows.items()) if self._taken.get(name) is not row]
        for row in changed:
            await self._try_to_take(row)
        if changed:
            await self._on_changed()

    async def _try_to_take(self, row: _Row) -> None:
        try:
            self._take(row, await self._ready(row.readable))
        except OmniFlowError as problem:
            log.warning("%s in version %d is left out: %s", row.name, row.version, problem.message)
        except Exception:
            log.exception("%s in version %d is left out: its interfaces could not be set up", row.name, row.version)

    def _take(self, row: _Row, entries: Sequence[CatalogEntry]) -> None:
        """Into the catalog, unless a newer row was read while this one was prepared."""
        if self._rows.get(row.name) is row:
            self._catalog.take(row.readable, entries)
            self._taken[row.name] = row

    # --- entries ------------------------------------------------------------------------------------------------------

    async def _ready_entry(self, message: graph_spec_pb2.GraphSpec) -> CatalogEntry:
        entry = self._catalog.compile(message, create_time_ms=self._now_ms())
        await self._prepare(entry)
        return entry

    async def _ready(self, versions: GraphVersions, made: CatalogEntry | None = None) -> list[CatalogEntry]:
        """Every revision with a share, ready to be called, and `made`, which is not planned again."""
        known = {made.message.revision: made} if made else {}
        needed = [r for r in versions.revisions if r.name in known or r.name in versions.places]
        entries = [_dated(known[r.name], r) if r.name in known else self._catalog.entry_of(r) for r in needed]
        for entry in entries:
            await self._prepare(entry)
        return entries

    # --- the store ----------------------------------------------------------------------------------------------------

    async def _current(self, name: str) -> _Row | None:
        """The row that the store has now; of a graph that only this process has, version 0."""
        await self._read()
        if row := self._rows.get(name):
            return row
        if name not in self._catalog.names():
            return None
        return _Row(name=name, version=0, digest=b"", versions=self._catalog.versions(name))

    async def _read(self) -> None:
        async with self._lock:
            _, rows = await self._store.graphs()
            self._rows = {row.name: self._known(row) for row in rows}

    def _known(self, row: GraphRow) -> _Row:
        """The row as it was read before, when it is the same. Versions alone do not say: a wiped store counts from 1."""
        known = self._rows.get(row.name)
        if known and (known.version, known.digest) == (row.version, _digest(row.payload)):
            return known
        return _read_row(row)

    async def _write(self, versions: GraphVersions, version: int) -> _Row:
        row = GraphRow(name=versions.graph, version=version, payload=encode(versions))
        async with self._lock:
            self._catalog.check_room(row.name, self._rows)
            await self._store.put_graph(self._epoch(), row)
            written = _Row(name=row.name, version=version, digest=_digest(row.payload), versions=versions)
            self._rows[row.name] = written
        return written

    async def _restore(self) -> bool:
        """Writes back what the catalog has and the store has lost; rows never go otherwise. True when there was any."""
        lost = [row for name, row in self._taken.items() if name not in self._rows]
        for row in lost:
            log.warning("the metadata store has lost %s; it is written back", row.name)
            try:
                await self._write(row.readable, 1)
            except OmniFlowError as problem:
                if problem.reason is not Reason.CONFLICT:  # another process was first
                    raise
        return bool(lost)


def _added(known: GraphVersions | None, entry: CatalogEntry, canary_percent: int | None) -> GraphVersions:
    return known.adding(entry.revision, canary_percent) if known else GraphVersions.first(entry.revision)


def _dated(entry: CatalogEntry, revision: Revision) -> CatalogEntry:
    """The entry with the time at which the cluster got the revision first."""
    is_same = entry.create_time_ms == revision.create_time_ms
    return entry if is_same else dataclasses.replace(entry, create_time_ms=revision.create_time_ms)


def _read_row(row: GraphRow) -> _Row:
    digest = _digest(row.payload)
    try:
        versions = decode(row.name, row.payload)
    except UnreadableRowError as problem:
        return _Row(name=row.name, version=row.version, digest=digest, versions=None, fault=str(problem))
    return _Row(name=row.name, version=row.version, digest=digest, versions=versions)


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()


def _conflict(name: str) -> OmniFlowError:
    return OmniFlowError(
        Reason.CONFLICT,
        f"{name} has been changed meanwhile; read its revisions again, and decide by what they are now.",
    )
