"""The command tree, and how errors reach a person: one clear line, a status, never a traceback."""

from __future__ import annotations

import sys
from importlib import metadata

import typer

from omniflow_core.errors import OmniFlowError
from omniflow_server.cli import ask, demo, graph, serve, settings, status, terminal, up

COMMANDS_GROUP = "omniflow.commands"
"""Entry points that add commands: each is a `typer.Typer`, added under the name of its entry point."""

_HELP = """
Serve graphs of models over gRPC, and call them.

[bold]First steps[/]

  omniflow up assistant --detach          start the built-in assistant, return when it is ready
  omniflow ask "Why is the sky blue?"     stream an answer; --out answer.wav keeps its speech
  omniflow status                         what is running
  omniflow down                           stop it
"""


def build() -> typer.Typer:
    """The whole tree, with the commands that installed packages add."""
    app = typer.Typer(
        name="omniflow",
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command()(up.up)
    app.command()(status.status)
    app.command()(status.down)
    app.command()(ask.ask)
    app.command()(demo.demo)
    app.command()(serve.serve)
    app.add_typer(graph.app, name="graph")
    app.add_typer(settings.app, name="config")
    _add_plugins(app)
    return app


def run() -> None:
    """Runs the command line and ends the process."""
    try:
        build()(prog_name="omniflow")
    except OmniFlowError as problem:
        terminal.show_error(problem)
        sys.exit(terminal.exit_status(problem))
    except KeyboardInterrupt:
        sys.exit(terminal.INTERRUPTED)


def _add_plugins(app: typer.Typer) -> None:
    for point in metadata.entry_points(group=COMMANDS_GROUP):
        try:
            app.add_typer(point.load(), name=point.name)
        except Exception as problem:  # somebody else's package must not take our commands away
            terminal.warn(f"the command {point.name!r} ({point.value}) cannot be loaded: {problem}")
