"""The graphs that can be called, by revision, and the interfaces that they may name."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from omniflow.codec.workflow import graph_spec_from_proto
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_core.graph.findings import Finding, InvalidGraphError
from omniflow_core.graph.plan import GraphPlan, find_faults, plan_graph
from omniflow_server.control.graph_versions import GraphVersions, Revision

MAX_GRAPHS = 256
"""Installed graphs: their definitions and plans are kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A revision of a graph, and its plan. Whoever holds it can run it, also when the catalog has dropped it."""

    message: graph_spec_pb2.GraphSpec
    plan: GraphPlan
    create_time_ms: int = 0

    @property
    def revision(self) -> Revision:
        return Revision(message=self.message, create_time_ms=self.create_time_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graph:
    versions: GraphVersions
    entries: Mapping[str, CatalogEntry]
    """By revision: all that have a share, and of the others those that had one while this process ran."""


class Catalog:
    """Graphs by resource name. Calls keep the entry that they started with."""

    def __init__(self, interfaces: Iterable[str]) -> None:
        self._interfaces = frozenset(interfaces)
        self._graphs: dict[str, _Graph] = {}

    def names(self) -> list[str]:
        return sorted(self._graphs)

    def get(self, name: str) -> CatalogEntry:
        """The revision with the largest share, the newest of several. Raises UNKNOWN_GRAPH, naming the nearest one."""
        graph = self._graph(name)
        return graph.entries[graph.versions.main]

    def pick(self, name: str, affinity: str) -> CatalogEntry:
        """The revision for a new call: one of those with a share, the same for an affinity while shares stay as they are.
        Raises UNKNOWN_GRAPH."""
        graph = self._graph(name)
        return graph.entries[graph.versions.choose(affinity)]

    def versions(self, name: str) -> GraphVersions:
        """Every kept revision and the shares. Raises UNKNOWN_GRAPH."""
        return self._graph(name).versions

    def _graph(self, name: str) -> _Graph:
        graph = self._graphs.get(name)
        if graph is None:
            raise self.unknown(name)
        return graph

    def unknown(self, name: str) -> OmniFlowError:
        """The error for a graph that there is not."""
        close = difflib.get_close_matches(name, self._graphs, n=1)
        hint = f"did you mean {close[0]}?" if close else f"installed: {', '.join(self.names()) or 'none'}."
        return OmniFlowError(
            Reason.UNKNOWN_GRAPH,
            f"There is no graph {name!r}; {hint}",
            violations=(Violation(field="graph", description="no such graph"),),
        )

    def check(self, message: graph_spec_pb2.GraphSpec) -> list[Finding]:
        """Every finding of the planner, and what this installation does not have: interfaces, global parameters."""
        findings = list(find_faults(graph_spec_from_proto(message)))
        for i, node in enumerate(message.nodes):
            if node.interface not in self._interfaces:
                close = difflib.get_close_matches(node.interface, self._interfaces, n=1)
                findings.append(
                    Finding(
                        reason="UNKNOWN_INTERFACE",
                        field=f"graph.nodes[{i}].interface",
                        message=f"No interface {node.interface!r} is registered.",
                        fix=f"Did you mean {close[0]!r}?"
                        if close
                        else "Register it, or enable it in the configuration.",
                        node=node.name,
                    )
                )
        for i, parameter in enumerate(message.global_parameters):
            findings.append(
                Finding(
                    reason="UNSUPPORTED",
                    field=f"graph.global_parameters[{i}]",
                    message=f"No memory manager of this installation holds the global parameter {parameter.name!r}.",
                    fix="Remove the parameter; this version plans such graphs, but does not run them.",
                )
            )
        return findings

    def compile(self, message: graph_spec_pb2.GraphSpec, *, create_time_ms: int = 0) -> CatalogEntry:
        """The graph with its revision, not installed; of an installed revision the entry that is there. Raises
        InvalidGraphError with every finding."""
        stored = graph_spec_pb2.GraphSpec()
        stored.CopyFrom(message)
        stored.revision = ""
        stored.revision = hashlib.sha256(stored.SerializeToString(deterministic=True)).hexdigest()[:16]
        return self.entry_of(Revision(message=stored, create_time_ms=create_time_ms))

    def entry_of(self, revision: Revision) -> CatalogEntry:
        """The entry of a revision, planned unless the catalog has it. Raises InvalidGraphError with every finding."""
        message = revision.message
        known = self._graphs.get(message.name)
        if known is not None and revision.name in known.entries:
            return known.entries[revision.name]
        findings = self.check(message)
        if findings:
            raise InvalidGraphError(message.name, tuple(findings))
        plan = plan_graph(graph_spec_from_proto(message))
        return CatalogEntry(message=message, plan=plan, create_time_ms=revision.create_time_ms)

    def install(self, entry: CatalogEntry) -> None:
        """Gives all new calls of the graph to the entry. Raises QUOTA_EXCEEDED for a graph too many."""
        graph = self._graphs.get(entry.message.name)
        versions = graph.versions.adding(entry.revision) if graph else GraphVersions.first(entry.revision)
        self.take(versions, [entry])

    def take(self, versions: GraphVersions, entries: Iterable[CatalogEntry]) -> None:
        """Makes revisions callable by their shares; `entries` are those with a share that the catalog does not have yet.
        Raises QUOTA_EXCEEDED for a graph too many."""
        self.check_room(versions.graph)
        known = self._graphs.get(versions.graph)
        compiled = {**(known.entries if known else {}), **{entry.message.revision: entry for entry in entries}}
        kept = {name: compiled[name] for name in versions.names if name in compiled}
        assert all(revision.name in kept for revision in versions.called), "a revision with a share has an entry"
        self._graphs[versions.graph] = _Graph(versions=versions, entries=kept)

    def check_room(self, name: str, others: Collection[str] = ()) -> None:
        """Raises QUOTA_EXCEEDED when the graph would be one too many, besides the installed ones and `others`."""
        if name not in self._graphs and len({*self._graphs, *others} - {name}) >= MAX_GRAPHS:
            raise OmniFlowError(
                Reason.QUOTA_EXCEEDED,
                f"{MAX_GRAPHS} graphs are installed, and there is no room for another.",
                violations=(Violation(field="graph.name", description=f"the limit is {MAX_GRAPHS} graphs"),),
            )
