"""`omniflow call list`, `show`, `save` and `replay`: what calls do, and why."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf import json_format
from rich.console import Console
from rich.table import Table
from rich.text import Text

from omniflow.codec.error import status_from_proto
from omniflow.graph.v1 import graph_service_pb2 as pb
from omniflow.graph.v1 import inspection_pb2
from omniflow_core.control.replay import Step
from omniflow_server.cli import call_source, call_view, terminal
from omniflow_server.cli.call_history import CallHistory
from omniflow_server.cli.call_look import look, steps
from omniflow_server.cli.call_source import CallSource
from omniflow_server.cli.call_text import describe_command, describe_event
from omniflow_server.cli.options import DEFAULT_NAME, AsJson, ConfigFile, Name, Target, find_target, load_settings

_HELP = """
Calls: what they do, what they wait for, and what came before what.

A control plane keeps a record of every call: all that happened, without the values. `show` draws it while the call runs and
for some minutes after its end; `save` keeps it in a file, from which `show` and `replay` work anywhere, at any time.
"""

app = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode="rich")

CallOrFile = Annotated[
    str | None,
    typer.Argument(
        metavar="CALL",
        help="Identifier of a call, or the beginning of it; a file of `omniflow call save`; nothing for the newest call.",
    ),
]
Tenant = Annotated[str, typer.Option("--tenant", metavar="TENANT", help="Whose calls.")]
DEFAULT_TENANT = "default"
_STATES = {
    pb.CALL_STATE_QUEUED: "queued",
    pb.CALL_STATE_RUNNING: "running",
    pb.CALL_STATE_CANCELLING: "cancelling",
    pb.CALL_STATE_FINISHED: "finished",
    pb.CALL_STATE_FAILED: "failed",
}
_STATE_STYLES = {
    "finished": "green",
    "running": "cyan",
    "queued": "yellow",
    "cancelling": "yellow",
    "failed": "bold red",
}


@app.command("list")
def list_calls(
    target: Target = None,
    tenant: Tenant = DEFAULT_TENANT,
    name: Name = DEFAULT_NAME,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """
    List the calls that run or are kept, the newest last.

    [bold]Examples[/]

      omniflow call list
      omniflow call list --target 127.0.0.1:7700 --json
    """
    calls = asyncio.run(_source(target, tenant, name, config).list_calls())
    if as_json:
        typer.echo(json.dumps([_summary(call) for call in calls], indent=2))
        return
    table = Table("call", "graph", "state", "age", "took", "activations", "session", box=None, pad_edge=False)
    table.header_style = "bold"
    now_s = time.time()
    for call in calls:
        state = _STATES.get(call.state, "?")
        begin_s, end_s = call.create_time.ToMilliseconds() / 1e3, call.end_time.ToMilliseconds() / 1e3
        took = terminal.seconds(end_s - begin_s) if call.HasField("end_time") else "-"
        age = terminal.seconds(max(0.0, now_s - begin_s))
        table.add_row(
            call.call_id,
            call.graph.removeprefix("graphs/"),
            Text(state, _STATE_STYLES.get(state, "")),
            age,
            took,
            str(call.active_activations),
            call.session.removeprefix("sessions/"),
        )
    out = terminal.console()
    if calls:
        out.print(table)
    else:
        out.print(f"no calls of tenant {tenant!r} run or are kept", markup=False)


@app.command()
def show(
    call: CallOrFile = None,
    at: Annotated[
        int | None, typer.Option("--at", min=0, metavar="EVENT", help="As it was after this event of the record.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Every activation; else long rows of equals are folded.")
    ] = False,
    target: Target = None,
    tenant: Tenant = DEFAULT_TENANT,
    name: Name = DEFAULT_NAME,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """
    Show a call from the inside: its activations by what caused them, with bars over time, and what waits for whom.

    Of a call that failed the joins are shown as they stood before the event that ended it.

    [bold]Examples[/]

      omniflow call show
      omniflow call show 3f2a --all
      omniflow call show 3f2a --at 57
      omniflow call show failed.call --json
    """
    response = _load(call, target, tenant, name, config)
    history, snapshot, title = look(response, call_source.plan_of(response.call), at)
    if as_json:
        typer.echo(json.dumps(_as_json(response, history, snapshot), indent=2))
        return
    out = terminal.console()
    _show_head(response, history, out, at=at)
    call_view.show_tree(history, out, is_folded=not show_all)
    call_view.show_snapshot(snapshot, out, title=title)


@app.command()
def save(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to; JSON when it ends with .json.")],
    call: CallOrFile = None,
    target: Target = None,
    tenant: Tenant = DEFAULT_TENANT,
    name: Name = DEFAULT_NAME,
    config: ConfigFile = None,
) -> None:
    """
    Keep a call in a file: its record, its graph, and what its scheduler was made with. No value of the call is in it.

    [bold]Examples[/]

      omniflow call save 3f2a --out failed.call
      omniflow call save --out newest.json
    """
    response = _load(call, target, tenant, name, config)
    call_source.write(response, out)
    text = f"wrote {out}: call {response.call.call_id} of {response.call.graph.name}"
    terminal.console().print(text, markup=False, soft_wrap=True)


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `omniflow call save`.")],
    commands: Annotated[bool, typer.Option("--commands", help="Print every event and what came of it.")] = False,
) -> None:
    """
    Run a saved call again through the scheduler of this version, offline, and check that it decides the same.

    Status 1 when it does not: another version has other rules, or a rule depends on something that is not in the record.

    [bold]Examples[/]

      omniflow call replay failed.call
      omniflow call replay failed.call --commands | less
    """
    response = call_source.read(file)
    out = terminal.console()
    history = CallHistory(plan=call_source.plan_of(response.call))
    for step in steps(response.call, history.plan):
        history.add(step)
        if commands:
            _print_step(step, out)
    left_out = response.call.record.events_left_out
    text = f"{history.events} events, {history.commands} commands"
    if left_out:
        text += f"; the record was full then, and {left_out} later events are not in it"
    out.print(text, markup=False, soft_wrap=True)
    if history.first_difference is not None:
        out.print(Text(f"differs {_difference(history.first_difference)}", "bold red"), soft_wrap=True)
        raise typer.Exit(terminal.FAILED)
    out.print(Text("agrees with the record", "green"), soft_wrap=True)


def _source(target: str | None, tenant: str, name: str, config: Path | None) -> CallSource:
    return CallSource(target=find_target(target, name, load_settings(config, None)), tenant=tenant)


def _load(call: str | None, target: str | None, tenant: str, name: str, config: Path | None) -> pb.InspectCallResponse:
    """From the file of that name, else from a control plane."""
    if call is not None and Path(call).is_file():
        return call_source.read(Path(call))
    return asyncio.run(_source(target, tenant, name, config).inspect(call or ""))


# --- how it is shown ----------------------------------------------------------------------------------------------------


def _show_head(response: pb.InspectCallResponse, history: CallHistory, out: Console, *, at: int | None) -> None:
    call = response.call
    state = _STATES.get(response.state, "?")
    time_us = history.now_us if history.end_us is None else history.end_us
    span = "after" if history.end is not None else "for"
    head = Text.assemble(
        "call ", (call.call_id, "bold"), f" {call.graph.name}: ", (state, _STATE_STYLES.get(state, ""))
    )
    head.append(f" {span} {call_view.duration(time_us)}" if at is None else f"; as it was after event {at}")
    head.append(f", {call.session}" if call.session else "")
    out.print(head, soft_wrap=True)
    if call.HasField("status"):
        error = status_from_proto(call.status)
        out.print(Text(f"{error.reason}: {error.message}", "red"), soft_wrap=True)
    ended = sum(life.has_ended for life in history.lives.values())
    given = ", ".join(f"{count} {name}" for name, count in sorted(history.outputs.items())) or "nothing"
    text = f"{history.events} events; {len(history.lives)} activations, {ended} ended; given: {given}"
    out.print(text, style="dim", markup=False, soft_wrap=True)
    if call.record.events_left_out:
        terminal.warn(f"the record is full: the last {call.record.events_left_out} events are not in it")
    if history.first_difference is not None:
        terminal.warn(
            "this version of the scheduler decides otherwise than the one that ran the call, "
            f"{_difference(history.first_difference)}; what is shown after that is a guess"
        )
    out.print()


def _difference(step: Step) -> str:
    return f"from event {step.recorded.index} on ({describe_event(step.recorded.event)})"


def _print_step(step: Step, out: Console) -> None:
    recorded = step.recorded
    mark = "" if step.agrees else "  differs"
    text = f"{recorded.index:6}  {recorded.time_us / 1e6:10.6f} s  {describe_event(recorded.event)}{mark}"
    out.print(Text(text, "" if step.agrees else "red"), soft_wrap=True)
    for command in step.commands:
        out.print(Text(f"{'':24}{describe_command(command)}", "dim"), soft_wrap=True)


def _summary(call: pb.CallSummary) -> dict[str, Any]:
    values: dict[str, Any] = json_format.MessageToDict(
        call, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return values | {"state": _STATES.get(call.state, "?")}


def _as_json(
    response: pb.InspectCallResponse, history: CallHistory, snapshot: inspection_pb2.SchedulerSnapshot
) -> dict[str, Any]:
    call = response.call
    error = status_from_proto(call.status) if call.HasField("status") else None
    difference = history.first_difference
    return {
        "call_id": call.call_id,
        "graph": call.graph.name,
        "state": _STATES.get(response.state, "?"),
        "session": call.session,
        "error": {"reason": error.reason, "message": error.message, "metadata": dict(error.metadata)}
        if error
        else None,
        "events": history.events,
        "events_left_out": call.record.events_left_out,
        "first_difference": None if difference is None else difference.recorded.index,
        "now_us": history.now_us,
        "outputs": dict(history.outputs),
        "activations": [dataclasses.asdict(life) for life in history.lives.values()],
        "snapshot": json_format.MessageToDict(snapshot, preserving_proto_field_name=True),
    }
