"""`omniflow graph`: `check` and `explain` a definition; the commands about revisions are in `graph_traffic`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

import omniflow
from omniflow.client import Diagnostic
from omniflow.discovery import registered
from omniflow.flow import Flow
from omniflow.flow_loading import load_graph, load_object
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow.workflow.v1.workflow_service_pb2 import ExplainGraphResponse
from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_core.graph.drawing import MAX_NODES
from omniflow_core.graph.findings import Finding, InvalidGraphError
from omniflow_server.cli import graph_traffic, terminal
from omniflow_server.cli.graph_source import GraphReference, print_findings, read_spec
from omniflow_server.control.catalog import Catalog
from omniflow_server.launch.plan import role_violations
from omniflow_server.rpc.workflow_service import explanation

_HELP = """
Graphs: check and explain them, install them, and choose which revision new calls get.

[bold]From a file to all calls[/]

  omniflow graph check flow.py              what is wrong with it
  omniflow graph apply flow.py --canary 10  new, for a tenth of the calls
  omniflow graph revisions my_graph         revisions and their shares
  omniflow graph promote my_graph           the newest one for all calls
  omniflow graph rollback my_graph          back to the one before
"""

app = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode="rich")

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
    print_findings(out, graph, findings)
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
        print_findings(out, graph, problem.findings)
        raise typer.Exit(terminal.FAILED) from None
    out.print(explained.text, markup=False, soft_wrap=True)
    if svg is not None:
        _write_drawing(explained.svg, svg)
        out.print(f"wrote {svg}", style="dim", markup=False, soft_wrap=True)


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


for command in (
    graph_traffic.apply,
    graph_traffic.revisions,
    graph_traffic.traffic,
    graph_traffic.promote,
    graph_traffic.rollback,
):
    app.command()(command)
