"""How the start of a flow looks: a live table on a terminal, one line per change elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from omniflow_server.cli import terminal
from omniflow_server.launch import logs
from omniflow_server.launch.status import FlowStatus, Phase, ProcessState, ProcessStatus

STYLES = {
    ProcessState.STARTING: "cyan",
    ProcessState.READY: "green",
    ProcessState.RESTARTING: "yellow",
    ProcessState.STOPPING: "yellow",
    ProcessState.STOPPED: "dim",
    ProcessState.FAILED: "bold red",
}
# What the logs of our processes begin with: time, level, logger.
_LOG_PREFIX = re.compile(r"^\S+ \S+ [A-Z]+ [\w.]+: ")
_MARKS = {ProcessState.READY: "✓", ProcessState.STOPPED: "·", ProcessState.FAILED: "✗"}


class Progress(Protocol):
    """Shows statuses as they come, between entering and leaving."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, status: FlowStatus) -> None:
        """The newest status."""


class PlainProgress:
    """A line per change of a process."""

    def __init__(self, console: Console, seen: FlowStatus | None = None) -> None:
        self._console = console
        self._shown = {p.name: (p.state, p.restarts) for p in (seen.processes if seen else ())}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, status: FlowStatus) -> None:
        """Prints what changed."""
        for process in status.processes:
            life = (process.state, process.restarts)
            if process.pid or process.state not in (ProcessState.STARTING, ProcessState.STOPPED):
                if self._shown.get(process.name) != life:
                    self._console.print(_line(process), markup=False, soft_wrap=True)
                self._shown[process.name] = life


class LiveProgress:
    """A table that moves: state, time, and the last line of the log of what is still starting."""

    def __init__(self, console: Console) -> None:
        self._status: FlowStatus | None = None
        self._since: dict[str, tuple[ProcessState, float]] = {}
        self._spinners: dict[str, Spinner] = {}
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, value, trace)
        if self._status is not None:
            self._live.console.print(self._table())

    def update(self, status: FlowStatus) -> None:
        """Takes the status for the next frame."""
        self._status = status
        for process in status.processes:
            if self._since.get(process.name, ("", 0))[0] != process.state:
                self._since[process.name] = (process.state, time.monotonic())

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        for process in self._status.processes if self._status else ():
            table.add_row(self._mark(process), process.name, *self._state(process), self._note(process))
        return table

    def _mark(self, process: ProcessStatus) -> Text | Spinner:
        if mark := _MARKS.get(process.state):
            return Text(mark, style=STYLES[process.state])
        return self._spinners.setdefault(process.name, Spinner("dots", style=STYLES[process.state]))

    def _state(self, process: ProcessStatus) -> tuple[Text, Text]:
        state, since = self._since[process.name]
        if state is ProcessState.READY:
            return Text(state, style=STYLES[state]), Text(f"pid {process.pid}", style="dim")
        return Text(state, style=STYLES[state]), Text(terminal.seconds(time.monotonic() - since), style="dim")

    def _note(self, process: ProcessStatus) -> Text:
        if process.state is ProcessState.STARTING and process.pid:
            last = _LOG_PREFIX.sub("", logs.tail(Path(process.log), lines=1))
            return Text(last, style="dim", overflow="ellipsis", no_wrap=True)
        death = process.death if process.state is not ProcessState.READY else ""
        return Text(death, style="yellow", overflow="ellipsis", no_wrap=True)


class Screen:
    """The start as a progress display, then `ready_text` (rich markup), then a line per change."""

    def __init__(self, console: Console, ready_text: Callable[[FlowStatus], str]) -> None:
        self._console, self._ready_text = console, ready_text
        self._progress: Progress = LiveProgress(console) if console.is_terminal else PlainProgress(console)
        self._is_open = False

    def __enter__(self) -> Self:
        self._progress.__enter__()
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def update(self, status: FlowStatus) -> None:
        """Shows a status."""
        self._progress.update(status)
        if status.phase is Phase.READY and self._is_open:
            self._close()
            self._console.print(f"\n{self._ready_text(status)}", soft_wrap=True)
            self._progress = PlainProgress(self._console, seen=status)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._progress.__exit__(None, None, None)


def _line(process: ProcessStatus) -> str:
    if process.state is ProcessState.STARTING:
        return f"{process.name}: starting (pid {process.pid})"
    if process.state is ProcessState.READY:
        return f"{process.name}: ready after {terminal.seconds(time.time() - process.started_unix_s)}"
    return f"{process.name}: {process.state}" + (f" ({process.death})" if process.death else "")


def how_to_call(status: FlowStatus, *, has_text: bool) -> str:
    """What to do with a flow that is ready, as rich markup."""
    named = "" if status.name == "default" else f" --name {escape(status.name)}"
    graph = status.graph.removeprefix("graphs/")
    ask = f'omniflow ask{named}{"" if graph == "assistant" else f" --graph {graph}"} "Why is the sky blue?"'
    lines = [
        f"[bold green]{escape(graph)} is ready[/] on [bold]{escape(', '.join(status.targets or (status.target,)))}[/]",
        "",
    ]
    lines += [f"  ask      {escape(ask)}"] if has_text else []
    lines += [
        f'  python   async with omniflow.connect("{escape(status.client_target)}") as client: ...',
        f"  look     omniflow status{named}    omniflow call show{named}",
    ]
    return "\n".join(lines)
