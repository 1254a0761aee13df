"""Directories of several processes over one metadata store, with interfaces and clocks of the test's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_server.control.catalog import Catalog, CatalogEntry
from omniflow_server.control.graph_directory import GraphDirectory
from omniflow_server.data.metadata.memory import MemoryStore
from omniflow_server.data.metadata.port import GraphRow, Owner
from tests.server.control.table import Joint, Step, chain

NAME = "graphs/demo"


def spec(description: str = "", name: str = "demo", interface: str = "") -> graph_spec_pb2.GraphSpec:
    """The chain graph; its description makes the revision, `interface` is another one for its first node."""
    made = chain(name).spec()
    made.description = description
    if interface:
        made.nodes[0].interface = interface
    return made


@dataclass
class Contended:
    """A store where somebody else writes right before the next puts."""

    store: MemoryStore
    epoch: int = 0
    rivals: list[bytes | None] = field(default_factory=list)
    """Payloads that come first, one for each put; None: the payload that is there, as a version more."""
    puts: int = 0

    async def put_graph(self, epoch: int, row: GraphRow) -> None:
        self.puts += 1
        if self.rivals:
            payload = self.rivals.pop(0)
            (known,) = [each for each in (await self.store.graphs())[1] if each.name == row.name]
            rival = GraphRow(name=row.name, version=known.version + 1, payload=payload or known.payload)
            await self.store.put_graph(self.epoch, rival)
        await self.store.put_graph(epoch, row)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@dataclass
class Process:
    """A control plane, as far as graphs go."""

    catalog: Catalog
    directory: GraphDirectory
    store: Contended
    prepared: list[str]
    """Revisions, in the order in which they were prepared."""
    unfit: set[str]
    """Interfaces that cannot be set up."""
    changes: list[Sequence[str]]
    """Names in the catalog, for each change that was told."""
    clock_ms: list[int]
    life: list[int]

    def runs(self, name: str = NAME) -> str:
        """Description of the main revision."""
        return self.catalog.get(name).message.description

    def shares(self, name: str = NAME) -> dict[str, int]:
        """Percents by description, the oldest first."""
        versions = self.catalog.versions(name)
        return {r.message.description: versions.shares[r.name] for r in versions.revisions}


async def process(store: MemoryStore, owner_id: str = "a", interfaces: Iterable[str] = ()) -> Process:
    """A process that knows the interfaces of the chain graph, and others by name."""
    catalog = Catalog([Step.name, Joint.name, *interfaces])
    prepared: list[str] = []
    unfit: set[str] = set()
    changes: list[Sequence[str]] = []
    clock_ms, life = [1_000], [await open_life(store, owner_id)]

    async def prepare(entry: CatalogEntry) -> None:
        if unfit & {node.interface for node in entry.message.nodes}:
            raise RuntimeError("no such device")
        prepared.append(entry.message.revision)

    async def told() -> None:
        changes.append(catalog.names())

    contended = Contended(store, life[0])
    directory = GraphDirectory(
        catalog=catalog,
        store=contended,
        epoch=lambda: life[-1],
        prepare=prepare,
        on_changed=told,
        now_ms=lambda: clock_ms[-1],
    )
    return Process(catalog, directory, contended, prepared, unfit, changes, clock_ms, life)


async def open_life(store: MemoryStore, owner_id: str, incarnation_id: str = "1") -> int:
    owner = Owner(owner_id=owner_id, incarnation_id=incarnation_id, endpoint="unix:/x")
    return await store.open_owner(owner, ttl_s=10)
