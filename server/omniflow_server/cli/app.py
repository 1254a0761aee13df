"""The command tree, and how errors reach a person: one clear line, a status, never a traceback."""

from __future__ import annotations

import sys

import typer

from omniflow_core.errors import OmniFlowError
from omniflow_server.cli import ask, call, demo, doctor, graph, restart, serve, settings, status, terminal, up
from omniflow_server.cli.plugins import GroupWithPlugins

_HELP = """
Serve graphs of models over gRPC, and call them.

[bold]First steps[/]

  omniflow up assistant --detach          start the built-in assistant, return when it is ready
  omniflow ask "Why is the sky blue?"     stream an answer; --out answer.wav keeps its speech
  omniflow status                         what is running
  omniflow call show                      what the newest call did, and why
  omniflow down                           stop it
  omniflow doctor                         what this machine lacks, and how to mend it
"""


def build() -> typer.Typer:
    """The whole tree, with the commands that installed packages add."""
    app = typer.Typer(
        name="omniflow",
        cls=GroupWithPlugins,
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command()(up.up)
    app.command()(status.status)
    app.command()(status.down)
    app.command()(restart.restart)
    app.command()(doctor.doctor)
    app.command()(ask.ask)
    app.command()(demo.demo)
    app.command()(serve.serve)
    app.add_typer(call.app, name="call")
    app.add_typer(graph.app, name="graph")
    app.add_typer(settings.app, name="config")
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
