"""`omniflow serve`: the control plane alone."""

from __future__ import annotations

from typing import Annotated

import typer

from omniflow_server.cli.options import ConfigFile, SetFlags, load_settings
from omniflow_server.config import Flag


def serve(
    listen: Annotated[
        str | None, typer.Option("--listen", "-l", metavar="TARGET", help="HOST:PORT or unix:PATH for clients.")
    ] = None,
    config: ConfigFile = None,
    sets: SetFlags = None,
) -> None:
    """
    Run the control plane alone, until SIGTERM; role servers dial in on their own.

    `omniflow up` starts it together with the roles of a flow.

    [bold]Examples[/]

      omniflow serve --set control.flows=assistant
      omniflow serve --set "control.interfaces=*"
      omniflow serve --listen 0.0.0.0:7700 --config /etc/omniflow.toml
    """
    flags = [Flag(key="control.listen", text=listen, source="--listen")] if listen else []
    settings = load_settings(config, sets, *flags).settings
    import uvloop

    from omniflow.process import die_with_parent
    from omniflow_server.compose import serve as serve_control

    die_with_parent()
    uvloop.run(serve_control(settings.control))
