"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server import config
from omniflow_server.config import Configuration, Flag
from omniflow_server.launch.state import StateFile, runtime_of

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Settings file; $OMNIFLOW_CONFIG, else ./omniflow.toml."),
]
SetFlags = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="One setting, such as supervisor.ready_timeout_s=60."),
]
Name = Annotated[str, typer.Option("--name", "-n", metavar="NAME", help="Name of the running flow.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="HOST:PORT",
        help="Control plane to talk to; $OMNIFLOW_TARGET, else the flow that runs here under --name.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT_NAME = "default"


def load_settings(file: Path | None, sets: list[str] | None, *flags: Flag) -> Configuration:
    """The configuration as the command line gives it. Raises OmniFlowError INVALID_CONFIG."""
    return config.load(file=file, flags=[*map(config.settings_flag, sets or ()), *flags])


def find_target(target: str | None, name: str, configuration: Configuration) -> str:
    """The control plane to talk to. Raises OmniFlowError INVALID_CONFIG when none is named and none runs here."""
    if named := target or os.environ.get("OMNIFLOW_TARGET"):
        return named
    running = StateFile(runtime_of(configuration.settings.supervisor, name)).running()
    if running is None:
        start = "omniflow up assistant --detach" + (f" --name {name}" if name != DEFAULT_NAME else "")
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"nothing runs here under the name {name!r}; start it with `{start}`, or name a server with --target",
        )
    return running.client_target
