"""`omniflow doctor`: prints what omniflow_server.launch.doctor finds."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from omniflow_server.cli import terminal
from omniflow_server.cli.options import DEFAULT_NAME, AsJson, ConfigFile, Name, SetFlags, load_settings
from omniflow_server.launch.doctor.examination import examine
from omniflow_server.launch.doctor.findings import Finding, Verdict

_STYLES = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.FAILED: "bold red"}


def doctor(
    flow: Annotated[
        str, typer.Option("--flow", "-f", metavar="FLOW", help="Also check the environments of this flow's roles.")
    ] = "",
    name: Name = DEFAULT_NAME,
    config: ConfigFile = None,
    sets: SetFlags = None,
    as_json: AsJson = False,
) -> None:
    """
    Check what this machine needs to run flows, and say how to mend what it lacks. Status 1 when something failed.

    Nothing has to run; a metadata store is started for a moment in a folder of its own.

    [bold]Examples[/]

      omniflow doctor
      omniflow doctor --flow assistant
      omniflow doctor --json --config /etc/omniflow.toml
    """
    out = terminal.console()
    findings = []
    for finding in examine(lambda: load_settings(config, sets), name=name, flow_reference=flow):
        findings.append(finding)
        if not as_json:
            _print(out, finding)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    if any(finding.verdict is Verdict.FAILED for finding in findings):
        raise typer.Exit(terminal.FAILED)


def _print(out: Console, finding: Finding) -> None:
    line = Text.assemble(
        (f"{finding.verdict:8}", _STYLES[finding.verdict]),
        (f"{finding.check:15}", "bold"),
        finding.found,
        (f" -> {finding.remedy}" if finding.remedy else "", "yellow"),
    )
    out.print(line, soft_wrap=True)
