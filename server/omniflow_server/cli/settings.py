"""`omniflow config show`."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from omniflow_server.cli import terminal
from omniflow_server.cli.options import AsJson, ConfigFile, SetFlags, load_settings
from omniflow_server.config import DEFAULT_SOURCE, Configuration, variable_of

app = typer.Typer(help="Settings: what they are and where each comes from.", no_args_is_help=True)


@app.command()
def show(config: ConfigFile = None, sets: SetFlags = None, as_json: AsJson = False) -> None:
    """
    Print every setting with its value and its source.

    Later sources win: default, file, OMNIFLOW_* variable, flag.

    [bold]Examples[/]

      omniflow config show
      OMNIFLOW_CONTROL_LISTEN=127.0.0.1:7800 omniflow config show --json
    """
    configuration = load_settings(config, sets)
    if as_json:
        typer.echo(json.dumps(_as_json(configuration), indent=2))
        return
    out = terminal.console()
    out.print(_as_table(configuration))
    out.print(f"file: {configuration.file or 'none'}", style="dim", markup=False, soft_wrap=True)


def _as_json(configuration: Configuration) -> list[dict[str, Any]]:
    return [
        {"key": v.key, "value": v.shown, "source": v.source, "variable": variable_of(v.key)}
        for v in configuration.values
    ]


def _as_table(configuration: Configuration) -> Table:
    table = Table("setting", "value", "source", box=None, header_style="bold", pad_edge=False)
    for value in configuration.values:
        style = "dim" if value.source == DEFAULT_SOURCE else ""
        table.add_row(escape(value.key), escape(_text(value.shown)), escape(value.source), style=style)
    return table


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
