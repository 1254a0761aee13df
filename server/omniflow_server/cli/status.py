"""`omniflow status` and `omniflow down`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.cli import terminal
from omniflow_server.cli.options import DEFAULT_NAME, AsJson, ConfigFile, Name, load_settings
from omniflow_server.cli.progress import STYLES
from omniflow_server.launch import identity
from omniflow_server.launch.readiness import ClusterReadiness, Observation
from omniflow_server.launch.state import StateFile, runtime_of
from omniflow_server.launch.status import FlowStatus, Phase, ProcessKind, ProcessState, ProcessStatus


def status(name: Name = DEFAULT_NAME, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """
    Show what runs: processes, restarts, and whether the graph is served. Status 1 when nothing runs.

    [bold]Examples[/]

      omniflow status
      omniflow status --name experiment --json
    """
    runtime = runtime_of(load_settings(config, None).settings.supervisor, name)
    state = StateFile(runtime)
    running = state.running()
    if running is None:
        _report_nothing(name, state.read(), as_json=as_json)
        raise typer.Exit(terminal.FAILED)
    seen = asyncio.run(_look(running))
    if as_json:
        typer.echo(json.dumps(_as_json(running, seen), indent=2))
    else:
        _show(running, seen, time.time())
        terminal.console().print(f"\nlogs in {runtime / 'logs'}", style="dim", markup=False, soft_wrap=True)


def down(name: Name = DEFAULT_NAME, config: ConfigFile = None) -> None:
    """
    Stop what runs: calls end first, then the roles, then the store. Nothing to stop is no error.

    [bold]Examples[/]

      omniflow down
      omniflow down --name experiment
    """
    settings = load_settings(config, None).settings
    running = StateFile(runtime_of(settings.supervisor, name)).running()
    out = terminal.console()
    if running is None:
        out.print(f"nothing runs under the name {name!r}", markup=False)
        return
    # Its own settings may differ from ours, so this waits a good deal longer than a stop in order takes.
    timeout_s = 2 * (settings.control.drain_timeout_s + 3 * settings.supervisor.stop_grace_s)
    with out.status(f"stopping {escape(running.flow)}"):
        is_gone = identity.terminate(running.pid, running.start_ticks, timeout_s=timeout_s)
    if not is_gone:
        raise OmniFlowError(Reason.INTERNAL, f"process {running.pid} did not stop in {timeout_s:g} s; it still tries")
    out.print(f"stopped {running.flow} ({len(running.processes)} processes)", markup=False, soft_wrap=True)


async def _look(running: FlowStatus) -> Observation:
    async with ClusterReadiness(
        targets=running.targets or (running.target,),
        internal_targets=running.internal_targets or (running.internal_target,),
        graph=running.graph,
    ) as readiness:
        return await readiness.look()


def _report_nothing(name: str, last: FlowStatus | None, *, as_json: bool) -> None:
    error = last.error if last and last.phase is Phase.FAILED else ""
    if as_json:
        typer.echo(json.dumps({"name": name, "is_running": False, "error": error}, indent=2))
        return
    out = terminal.console()
    out.print(f"nothing runs under the name {name!r}", markup=False)
    if error:
        out.print(f"the last run failed: {error}", markup=False, soft_wrap=True)


def _as_json(running: FlowStatus, seen: Observation) -> dict[str, Any]:
    values = dataclasses.asdict(running) | {"is_running": True, "is_serving": seen.is_serving}
    for process, shown in zip(running.processes, values["processes"], strict=True):
        shown["replica_state"] = _replica_state(process, running, seen)
    return values


def _replica_state(process: ProcessStatus, running: FlowStatus, seen: Observation) -> str:
    """What the control planes say of a replica; of themselves and of the store, whether they answer."""
    if process.kind is ProcessKind.STORE:
        return "ANSWERING" if process.state is ProcessState.READY else "SILENT"
    if process.kind is ProcessKind.CONTROL:
        controls = [other.name for other in running.processes if other.kind is ProcessKind.CONTROL]
        return "ANSWERING" if seen.is_answering(controls.index(process.name)) else "SILENT"
    life = (process.role, process.replica_id, process.pid)
    return next((r.state for r in seen.replicas if (r.role, r.replica_id, r.process_id) == life), "UNKNOWN")


def _show(running: FlowStatus, seen: Observation, now_s: float) -> None:
    out = terminal.console()
    health = _health(running, seen)
    targets = ", ".join(running.targets or (running.target,))
    out.print(Text.assemble((running.graph, "bold"), " on ", (targets, "bold"), ": ", health), soft_wrap=True)
    uptime = terminal.seconds(now_s - running.started_unix_s)
    out.print(f"{running.flow}, supervisor {running.pid}, up {uptime}", style="dim", markup=False, soft_wrap=True)
    for line in (*_rolling(running), *running.notes):
        out.print(line, style="yellow", markup=False, soft_wrap=True)
    out.print()
    out.print(_table(running, seen, now_s))


def _health(running: FlowStatus, seen: Observation) -> Text:
    if seen.is_serving:
        return Text("serving", "bold green")
    if seen.serving_count:
        return Text(f"serving on {seen.serving_count} of {len(running.targets)} control planes", "bold yellow")
    return Text("not serving", "bold red")


def _rolling(running: FlowStatus) -> list[str]:
    """What there is to say of a rolling restart."""
    rolling = running.rolling
    if rolling is None or (rolling.is_over and not rolling.error):
        return []
    if rolling.error:
        return [f"the rolling restart stopped: {rolling.error.splitlines()[0]}"]
    return [f"restarting {rolling.done + 1} of {rolling.total}: {rolling.process}"]


def _table(running: FlowStatus, seen: Observation, now_s: float) -> Table:
    table = Table("process", "state", "replica", "pid", "up", "restarts", box=None, header_style="bold", pad_edge=False)
    for process in running.processes:
        replica = _replica_state(process, running, seen).lower()
        table.add_row(
            process.name,
            Text(process.state, STYLES[process.state]),
            replica,
            str(process.pid or "-"),
            _uptime(process, now_s),
            str(process.restarts),
        )
    return table


def _uptime(process: ProcessStatus, now_s: float) -> str:
    return terminal.seconds(now_s - process.started_unix_s) if process.pid else "-"
