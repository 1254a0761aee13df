"""`omniflow graph check` and `omniflow graph explain`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf import json_format
from rich.markup import escape

import omniflow
from omniflow.client import Diagnostic
from omniflow.discovery import registered
from omniflow.flow import Flow
from omniflow.flow_loading import load_graph, load_object
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_core.graph.explain import explain as explain_plan
from omniflow_core.graph.findings import Finding
from omniflow_server.cli import terminal
from omniflow_server.control.catalog import Catalog
from omniflow_server.launch.plan import role_violations

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

    [bold]Examples[/]

      omniflow graph check assistant
      omniflow graph check path/to/flow.py --target 127.0.0.1:7700
    """
    spec = read_spec(graph)
    findings = asyncio.run(_findings_of_server(spec, target)) if target else _catalog(graph).check(spec)
    broken_roles = _broken_roles(graph)
    out = terminal.console()
    if not findings and not broken_roles:
        out.print(f"[bold green]{escape(spec.name)}[/] can run: {len(spec.nodes)} nodes, {len(spec.edges)} edges")
        return
    for finding in findings:
        out.print(f"[bold red]{escape(finding.reason)}[/] {escape(finding.field)}", soft_wrap=True)
        out.print(f"  {finding.message} {finding.fix}", markup=False, soft_wrap=True)
    for violation in broken_roles:
        out.print(f"[bold red]{Reason.INVALID_CONFIG}[/] {escape(violation.field.rstrip(':'))}", soft_wrap=True)
        out.print(f"  {violation.description}", markup=False, soft_wrap=True)
    raise typer.Exit(terminal.FAILED)


@app.command()
def explain(graph: GraphReference, target: Server = None) -> None:
    """
    Print how a graph runs: what starts each node and where its yields go.

    [bold]Examples[/]

      omniflow graph explain assistant
      omniflow graph explain graphs/assistant --target 127.0.0.1:7700
    """
    text = (
        asyncio.run(_explain_by_server(graph, target))
        if target
        else explain_plan(_catalog(graph).compile(read_spec(graph)).plan)
    )
    terminal.console().print(text, markup=False, soft_wrap=True)


def read_spec(reference: str) -> graph_spec_pb2.GraphSpec:
    """The graph that a reference names. Raises OmniFlowError INVALID_CONFIG."""
    if not reference.endswith(".json"):
        return load_graph(reference).spec()
    try:
        return json_format.Parse(Path(reference).read_text(encoding="utf-8"), graph_spec_pb2.GraphSpec())
    except (OSError, UnicodeDecodeError, json_format.ParseError) as problem:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{reference} is no GraphSpec: {problem}") from None


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


async def _explain_by_server(reference: str, target: str) -> str:
    async with omniflow.connect(target) as client:
        graph = reference if reference.startswith("graphs/") else read_spec(reference)
        return (await client.explain(graph)).text
