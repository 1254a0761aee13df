"""`omniflow restart`: asks the supervisor for a rolling restart and shows how it goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.cli import terminal
from omniflow_server.cli.options import DEFAULT_NAME, ConfigFile, load_settings
from omniflow_server.launch.requests import ask_restart
from omniflow_server.launch.state import StateFile, runtime_of
from omniflow_server.launch.status import RollingStatus

_LOOK_INTERVAL_S = 0.05


def restart(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the running flow.")] = DEFAULT_NAME,
    only: Annotated[
        str,
        typer.Option(
            "--only", "-o", metavar="ROLE_OR_PROCESS", help="A role, a process, or all control planes by `control`."
        ),
    ] = "",
    config: ConfigFile = None,
) -> None:
    """
    Restart a running flow one process after another, while it serves: new weights, environments and code of roles.

    Replicas go role by role, then the control planes. Each ends what it runs, starts, and is ready before the next one ends;
    one that does not come back stops the rest, and status is 1. A role with one replica, and a flow with one control plane,
    are away while it restarts. The store is only restarted by --only store. Ctrl+C ends the display, not the restart.

    The supervisor itself goes on with the code, the settings and the roles that it was started with, while processes read
    the flow's file anew: when the graph, its roles or their interfaces have changed, use `omniflow down` and `omniflow up`.

    [bold]Examples[/]

      omniflow restart
      omniflow restart experiment --only llm
      omniflow restart --only control-1
    """
    runtime = runtime_of(load_settings(config, None).settings.supervisor, name)
    state = StateFile(runtime)
    if state.running() is None:
        raise OmniFlowError(
            Reason.UNKNOWN_RESOURCE, f"nothing runs under the name {name!r}; `omniflow up` starts a flow"
        )
    number = ask_restart(runtime, only)
    out = terminal.console()
    rolling = _follow(state, number, out)
    if rolling.error:
        raise OmniFlowError(Reason.INTERNAL, rolling.error)
    out.print(f"restarted {rolling.done} processes", markup=False)


def _follow(state: StateFile, number: int, out: Console) -> RollingStatus:
    """Shows a line per process until the rolling restart is over. Raises OmniFlowError when its supervisor ends before."""
    shown = ""
    with contextlib.ExitStack() as display:
        spinner = display.enter_context(out.status("restarting")) if out.is_terminal else None
        for rolling in _seen(state, number):
            if spinner is not None:
                spinner.update(f"restarting {rolling.done + 1} of {rolling.total}: {rolling.process}")
            if rolling.process != shown:
                shown = rolling.process
                place = f"{min(rolling.done + 1, rolling.total)} of {rolling.total}"
                out.print(f"{shown}: restarting ({place})", markup=False, soft_wrap=True)
            if rolling.is_over:
                return rolling
    raise OmniFlowError(
        Reason.CONNECTION_LOST, "the supervisor ended before it had restarted everything; see `omniflow status`"
    )


def _seen(state: StateFile, number: int) -> Iterator[RollingStatus]:
    """What the state file says of one rolling restart, again and again while its supervisor runs."""
    while (status := state.running()) is not None:
        if status.rolling is not None and status.rolling.number == number:
            yield status.rolling
        elif status.rolling is not None and status.rolling.number > number:
            raise OmniFlowError(Reason.CONFLICT, "another rolling restart has begun since; see `omniflow status`")
        time.sleep(_LOOK_INTERVAL_S)
