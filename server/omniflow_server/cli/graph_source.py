"""Where the commands about graphs get a definition, and how they say what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf import json_format
from rich.console import Console
from rich.markup import escape

from omniflow.client import Diagnostic
from omniflow.flow_loading import load_graph
from omniflow.graph_errors import Location
from omniflow.workflow.v1 import graph_spec_pb2
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_core.graph.findings import Finding

GraphReference = Annotated[
    str,
    typer.Argument(metavar="GRAPH", help="An installed flow, path/to/flow.py[:ATTRIBUTE], or a GraphSpec as .json."),
]


def read_spec(reference: str) -> graph_spec_pb2.GraphSpec:
    """The graph that a reference names. Raises OmniFlowError INVALID_CONFIG."""
    if not reference.endswith(".json"):
        return load_graph(reference).spec()
    try:
        return json_format.Parse(Path(reference).read_text(encoding="utf-8"), graph_spec_pb2.GraphSpec())
    except (OSError, UnicodeDecodeError, json_format.ParseError) as problem:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{reference} is no GraphSpec: {problem}") from None


def print_findings(out: Console, reference: str, findings: Sequence[Finding | Diagnostic]) -> None:
    """What is wrong and what would fix it, by the line of the user's file where it is known."""
    for finding in findings:
        part = f"[bold red]{escape(finding.reason)}[/] {escape(finding.field)}"
        said = f"{escape(finding.message)} {escape(finding.fix)}"
        location = _location(reference, finding)
        lines = (f"[bold]{escape(str(location))}:[/] {said}", f"  {part}") if location else (part, f"  {said}")
        for line in lines:
            out.print(line, soft_wrap=True)


def _location(reference: str, finding: Finding | Diagnostic) -> Location | None:
    """The line of a Python file that wrote what a finding is about."""
    if reference.endswith(".json"):
        return None
    graph = load_graph(reference)
    return graph.location_of(finding.field) or graph.location_of(finding.node)
