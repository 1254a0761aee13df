"""The graphs that can be called, and the interfaces that they may name."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from omniflow.codec.workflow import graph_spec_from_proto
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_core.graph.findings import Finding, InvalidGraphError
from omniflow_core.graph.plan import GraphPlan, find_faults, plan_graph

MAX_GRAPHS = 256
"""Installed graphs: their definitions and plans are kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A graph as it was applied, and its plan."""

    message: graph_spec_pb2.GraphSpec
    plan: GraphPlan


class Catalog:
    """Graphs by resource name. Calls keep the plan they started with."""

    def __init__(self, interfaces: Iterable[str]) -> None:
        self._interfaces = frozenset(interfaces)
        self._entries: dict[str, CatalogEntry] = {}

    def names(self) -> list[str]:
        return sorted(self._entries)

    def get(self, name: str) -> CatalogEntry:
        """Raises UNKNOWN_GRAPH, naming the nearest one."""
        entry = self._entries.get(name)
        if entry is None:
            close = difflib.get_close_matches(name, self._entries, n=1)
            hint = f"did you mean {close[0]}?" if close else f"installed: {', '.join(self.names()) or 'none'}."
            raise OmniFlowError(
                Reason.UNKNOWN_GRAPH,
                f"There is no graph {name!r}; {hint}",
                violations=(Violation(field="graph", description="no such graph"),),
            )
        return entry

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

    def compile(self, message: graph_spec_pb2.GraphSpec) -> CatalogEntry:
        """The graph with its revision, not installed. Raises InvalidGraphError with every finding."""
        findings = self.check(message)
        if findings:
            raise InvalidGraphError(message.name, tuple(findings))
        stored = graph_spec_pb2.GraphSpec()
        stored.CopyFrom(message)
        stored.revision = ""
        stored.revision = hashlib.sha256(stored.SerializeToString(deterministic=True)).hexdigest()[:16]
        return CatalogEntry(message=stored, plan=plan_graph(graph_spec_from_proto(stored)))

    def install(self, entry: CatalogEntry) -> None:
        """Makes the graph callable, in place of an earlier revision. Raises QUOTA_EXCEEDED for one too many."""
        if entry.message.name not in self._entries and len(self._entries) >= MAX_GRAPHS:
            raise OmniFlowError(
                Reason.QUOTA_EXCEEDED,
                f"{MAX_GRAPHS} graphs are installed, and there is no room for another.",
                violations=(Violation(field="graph.name", description=f"the limit is {MAX_GRAPHS} graphs"),),
            )
        self._entries[entry.message.name] = entry
