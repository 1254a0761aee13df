"""`omniflow serve`: the control plane alone."""

from __future__ import annotations

import dataclasses
import os
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
    Run one control plane alone, until SIGTERM; role servers dial in on their own.

    With a metadata store (control.metadata_url, or REDIS_URL) it is one of those that share it; give each a
    control.control_id and, on one host, a control.internal_listen of its own, and all the same control.resume_key.
    `omniflow up` starts control planes, a store and the roles of a flow.

    [bold]Examples[/]

      omniflow serve --set control.flows=assistant
      omniflow serve --set "control.interfaces=*"
      omniflow serve --listen 0.0.0.0:7700 --config /etc/omniflow.toml
      REDIS_URL=redis://store:6379 omniflow serve --set control.control_id=control-1
    """
    flags = [Flag(key="control.listen", text=listen, source="--listen")] if listen else []
    settings = load_settings(config, sets, *flags).settings
    import uvloop

    from omniflow.process import die_with_parent
    from omniflow_server.compose import serve as serve_control
    from omniflow_server.data.metadata.connecting import url_from

    url = url_from(settings.control.metadata_url, os.environ)
    die_with_parent()
    uvloop.run(serve_control(dataclasses.replace(settings.control, metadata_url=url)))
