"""`omniflow up`: in the foreground, or as a supervisor of its own that outlives the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from omniflow.flow import Flow
from omniflow.flow_loading import absolute_reference, load_flow
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.cli import terminal
from omniflow_server.cli.options import DEFAULT_NAME, ConfigFile, Name, SetFlags, load_settings
from omniflow_server.cli.progress import Screen, how_to_call
from omniflow_server.config import Flag, Settings
from omniflow_server.control.settings import ControlSettings
from omniflow_server.launch import identity, logs
from omniflow_server.launch.plan import LaunchPlan, log_of, plan_launch
from omniflow_server.launch.ports import resolve_listen
from omniflow_server.launch.readiness import ClusterReadiness
from omniflow_server.launch.state import StateFile, runtime_of
from omniflow_server.launch.status import FlowStatus, Phase
from omniflow_server.launch.store import choose_store
from omniflow_server.launch.supervisor import Supervisor

_LOOK_INTERVAL_S = 0.05
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A flow that is about to be started."""

    flow: Flow
    plan: LaunchPlan
    settings: Settings

    @property
    def has_text(self) -> bool:
        """Whether the graph takes a typed question."""
        return any(placeholder.field.name == "text" for placeholder in self.flow.graph.spec().placeholders)


def up(
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="An installed flow, or path/to/flow.py[:ATTRIBUTE].")],
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when it is ready; it goes on running.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", "-l", metavar="TARGET", help="HOST:PORT or unix:PATH for clients; port 0: a free one."
        ),
    ] = None,
    name: Name = DEFAULT_NAME,
    config: ConfigFile = None,
    sets: SetFlags = None,
) -> None:
    """
    Start a flow: its control planes, their metadata store and its role processes; restart what dies; stop all with Ctrl+C.

    The store is the one that control.metadata_url or REDIS_URL names, else one of its own; several control planes listen on
    ports in a row.

    [bold]Examples[/]

      omniflow up assistant
      omniflow up assistant --detach --listen 127.0.0.1:0
      omniflow up path/to/flow.py --name experiment
      omniflow up assistant --set supervisor.control_planes=2
    """
    flags = [Flag(key="control.listen", text=listen, source="--listen")] if listen else []
    prepared = prepare(flow, name, load_settings(config, sets, *flags).settings)
    for note in prepared.plan.notes:
        terminal.warn(note)
    if detach:
        passed_on = ["--config", str(config)] if config else []
        passed_on += [word for text in sets or () for word in ("--set", text)]
        start_detached(prepared, [*passed_on, "--name", name, "--listen", prepared.plan.target])
    else:
        asyncio.run(_run(prepared))


def prepare(reference: str, name: str, settings: Settings) -> Prepared:
    """Loads and checks everything that can be checked before a process is started. Raises OmniFlowError."""
    flow = load_flow(reference)
    runtime = runtime_of(settings.supervisor, name)
    with StateFile(runtime).held():  # before the addresses: those are taken as well when the name is
        settings = replace(settings, control=_resolved(settings))
    plan = plan_launch(
        flow,
        absolute_reference(reference),
        settings,
        name=name,
        runtime=runtime,
        python=sys.executable,
        store=choose_store(settings, runtime, os.environ, sys.executable),
    )
    return Prepared(flow=flow, plan=plan, settings=settings)


def _resolved(settings: Settings) -> ControlSettings:
    """With addresses that are free, and one key of resume tokens for all control planes and all their lives: a token of a
    process that ended is then answered with OWNER_LOST, not as a forged one."""
    control, count = settings.control, settings.supervisor.control_planes
    return replace(
        control,
        listen=resolve_listen(control.listen, count=count),
        internal_listen=resolve_listen(control.internal_listen, count=count) if control.internal_listen else "",
        resume_key=control.resume_key or secrets.token_hex(32),
    )


async def _run(prepared: Prepared) -> None:
    """In the foreground, until a signal."""
    out = terminal.console()
    plan = prepared.plan
    with Screen(out, lambda status: f"{_ready(prepared, status)}\n  stop     Ctrl+C") as screen:
        async with ClusterReadiness(
            targets=plan.targets, internal_targets=plan.internal_targets, graph=plan.graph
        ) as readiness:
            supervisor = Supervisor(plan, prepared.settings.supervisor, readiness, screen.update)
            with _signals_stop(supervisor, out):
                await supervisor.run()
    out.print("stopped", style="dim")


@contextlib.contextmanager
def _signals_stop(supervisor: Supervisor, out: Console) -> Iterator[None]:
    """SIGINT, SIGTERM and a terminal that is closed stop in order; a second signal kills."""
    loop = asyncio.get_running_loop()
    asked: list[int] = []

    def on_signal(number: int) -> None:
        asked.append(number)
        if len(asked) > 1:
            supervisor.kill()
            return
        out.print("stopping in order; once more stops at once", style="dim")
        supervisor.stop()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


def start_detached(prepared: Prepared, arguments: Sequence[str]) -> FlowStatus:
    """Starts a supervisor in a session of its own and waits until it is ready. Raises OmniFlowError with the reason when
    it is not."""
    plan = prepared.plan
    log = log_of(plan.runtime, "supervisor")
    logs.rotate(log, keep=prepared.settings.supervisor.log_keep)
    descriptor = logs.open_for_child(log)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "omniflow_server", "up", plan.flow, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    try:
        return _await_ready(prepared, process)
    except BaseException:
        identity.terminate(process.pid, identity.start_ticks(process.pid), timeout_s=_stop_timeout_s(prepared.settings))
        raise


def _await_ready(prepared: Prepared, process: subprocess.Popen[bytes]) -> FlowStatus:
    state = StateFile(prepared.plan.runtime)
    with Screen(terminal.console(), lambda status: _ready(prepared, status, is_detached=True)) as screen:
        while process.poll() is None:
            status = state.read()
            if status is not None and status.pid == process.pid:
                screen.update(status)
                if status.phase is Phase.READY:
                    return status
            time.sleep(_LOOK_INTERVAL_S)
    raise OmniFlowError(Reason.INTERNAL, _why_it_ended(prepared.plan, state.read(), process))


def _why_it_ended(plan: LaunchPlan, status: FlowStatus | None, process: subprocess.Popen[bytes]) -> str:
    if status is not None and status.pid == process.pid and status.error:
        return status.error
    log = log_of(plan.runtime, "supervisor")
    return f"the supervisor ended with status {process.returncode}\nits log: {log}\n{logs.tail(log)}"


def _ready(prepared: Prepared, status: FlowStatus, *, is_detached: bool = False) -> str:
    text = how_to_call(status, has_text=prepared.has_text)
    named = "" if status.name == DEFAULT_NAME else f" --name {status.name}"
    return f"{text}\n  stop     {escape(f'omniflow down{named}')}" if is_detached else text


def _stop_timeout_s(settings: Settings) -> float:
    """Longest time that a supervisor needs to stop in order: the graces of control planes, roles and the store."""
    return settings.control.drain_timeout_s + 3 * settings.supervisor.stop_grace_s + 5.0
