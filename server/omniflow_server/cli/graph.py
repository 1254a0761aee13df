"""`omniflow graph check` and `omniflow graph explain`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf import json_format
from rich.console import Console
from rich.markup import escape

import omniflow
from omniflow.client import Diagnostic
from omniflow.discovery import registered
from omniflow.flow import Flow
from omniflow.flow_loading import load_graph, load_object
from omniflow.graph_errors import Location
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow.workflow.v1.workflow_service_pb2 import ExplainGraphResponse
from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_core.graph.drawing import MAX_NODES
from omniflow_core.graph.findings import Finding, InvalidGraphError
from omniflow_server.cli import terminal
from omniflow_server.control.catalog import Catalog
from omniflow_server.launch.plan import role_violations
from omniflow_server.rpc.workflow_service import explanation

app = typer.Typer(help="Graphs: check and explain them.", no_args_is_help=True)

GraphReference = Annotated[
    str,
    typer.Argument(metavar="GRAPH", help="An installed flow, path/to/flow.py[:ATTRIBUTE], or a GraphSpec as .json."),
]
Server = Annotated[
    str | None, typer.Option("--target", "-t", metavar="HOST:PORT", help="Let a running control plane decide.")
]


@app.command()
def check(graph: GraphReference, target: Server = None) -> None:
    """
    Say what is wrong with a graph, and with the roles of a flow, and what would fix it. Status 1 when something is.

    What a Python file defines is named by the line that wrote it, as FILE:LINE; else by its path in the definition.

    [bold]Examples[/]

      omniflow graph check assistant
      omniflow graph check path/to/flow.py
      omniflow graph check path/to/flow.py:graph --target 127.0.0.1:7700
      omniflow graph check graph.json
    """
    spec = read_spec(graph)
    findings = asyncio.run(_findings_of_server(spec, target)) if target else _catalog(graph).check(spec)
    broken_roles = _broken_roles(graph)
    out = terminal.console()
    if not findings and not broken_roles:
        out.print(f"[bold green]{escape(spec.name)}[/] can run: {len(spec.nodes)} nodes, {len(spec.edges)} edges")
        return
    _print_findings(out, graph, findings)
    for violation in broken_roles:
        part = violation.field.rstrip(":")
        where = load_graph(graph).location_of(part.removeprefix("node ")) if part.startswith("node ") else None
        out.print(
            (f"[bold]{escape(str(where))}:[/] " if where else "")
            + f"[bold red]{Reason.INVALID_CONFIG}[/] {escape(part)}",
            soft_wrap=True,
        )
        out.print(f"  {violation.description}", markup=False, soft_wrap=True)
    raise typer.Exit(terminal.FAILED)


@app.command()
def explain(
    graph: GraphReference,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE.svg", help="Write a drawing too; any browser shows it.")
    ] = None,
    target: Server = None,
) -> None:
    """
    Print how a graph runs: what starts each node, what meets in a join, and where yields go.

    A group that several routes lead to waits for all work below one yield of its anchor. What joins and anchors are, and how
    to write loops, chunks and count joins, is in docs/graphs.md.

    [bold]Examples[/]

      omniflow graph explain assistant
      omniflow graph explain path/to/flow.py --svg flow.svg
      omniflow graph explain graphs/assistant --target 127.0.0.1:7700
    """
    out = terminal.console()
    try:
        explained = asyncio.run(_explain_by_server(graph, target)) if target else _explain_here(graph)
    except InvalidGraphError as problem:
        _print_findings(out, graph, problem.findings)
        raise typer.Exit(terminal.FAILED) from None
    out.print(explained.text, markup=False, soft_wrap=True)
    if svg is not None:
        _write_drawing(explained.svg, svg)
        out.print(f"wrote {svg}", style="dim", markup=False, soft_wrap=True)


def _print_findings(out: Console, reference: str, findings: Sequence[Finding | Diagnostic]) -> None:
    """What is wrong and what would fix it, by the line of the user's file where it is known."""
    for finding in findings:
        part = f"[bold red]{escape(finding.reason)}[/] {escape(finding.field)}"
        said = f"{escape(finding.message)} {escape(finding.fix)}"
        location = _location(reference, finding)
        lines = (f"[bold]{escape(str(location))}:[/] {said}", f"  {part}") if location else (part, f"  {said}")
        for line in lines:
            out.print(line, soft_wrap=True)


def read_spec(reference: str) -> graph_spec_pb2.GraphSpec:
    """The graph that a reference names. Raises OmniFlowError INVALID_CONFIG."""
    if not reference.endswith(".json"):
        return load_graph(reference).spec()
    try:
        return json_format.Parse(Path(reference).read_text(encoding="utf-8"), graph_spec_pb2.GraphSpec())
    except (OSError, UnicodeDecodeError, json_format.ParseError) as problem:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{reference} is no GraphSpec: {problem}") from None


def _location(reference: str, finding: Finding | Diagnostic) -> Location | None:
    """The line of a Python file that wrote what a finding is about."""
    if reference.endswith(".json"):
        return None
    graph = load_graph(reference)
    return graph.location_of(finding.field) or graph.location_of(finding.node)


def _broken_roles(reference: str) -> list[Violation]:
    """Why `omniflow up` would refuse the flow that a reference names, environments aside; a graph alone has no roles."""
    found = None if reference.endswith(".json") else load_object(reference)
    return role_violations(found) if isinstance(found, Flow) else []


def _catalog(reference: str) -> Catalog:
    """What a control plane with all installed interfaces, and those of the flow itself, would say."""
    own = () if reference.endswith(".json") else load_graph(reference).interfaces
    return Catalog({*registered(), *own})


async def _findings_of_server(spec: graph_spec_pb2.GraphSpec, target: str) -> Sequence[Finding | Diagnostic]:
    async with omniflow.connect(target) as client:
        return await client.validate(spec)


def _explain_here(reference: str) -> ExplainGraphResponse:
    return explanation(_catalog(reference).compile(read_spec(reference)).plan)


async def _explain_by_server(reference: str, target: str) -> ExplainGraphResponse:
    async with omniflow.connect(target) as client:
        return await client.explain(reference if reference.startswith("graphs/") else read_spec(reference))


def _write_drawing(svg: str, path: Path) -> None:
    """Raises OmniFlowError INVALID_CONFIG."""
    if not svg:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"graphs of more than {MAX_NODES} nodes are not drawn")
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as problem:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"cannot write {path}: {problem.strerror}") from None
