"""How the start of a flow looks."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from omniflow_server.cli.progress import Screen, how_to_call
from omniflow_server.launch.status import FlowStatus, Phase, ProcessState, ProcessStatus

CONTROL = ProcessStatus(name="control", role="", replica_id="", state=ProcessState.STARTING, log="/nowhere.log")
STATUS = FlowStatus(
    name="default",
    flow="assistant",
    graph="graphs/assistant",
    target="127.0.0.1:7700",
    internal_target="unix:/x",
    phase=Phase.STARTING,
    pid=1,
    start_ticks=1,
    started_unix_s=0.0,
    processes=(CONTROL,),
)


def with_process(phase: Phase = Phase.STARTING, **changes: object) -> FlowStatus:
    process = dataclasses.replace(CONTROL, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(STATUS, phase=phase, processes=(process,))


LIFE = (
    STATUS,
    with_process(pid=7),
    with_process(pid=7),
    with_process(pid=7, state=ProcessState.READY),
    with_process(Phase.READY, pid=7, state=ProcessState.READY),
    with_process(Phase.DEGRADED, state=ProcessState.RESTARTING, death="was killed by SIGKILL"),
    with_process(Phase.DEGRADED, pid=8, restarts=1),
    with_process(Phase.READY, pid=8, restarts=1, state=ProcessState.READY),
)


def test_screen_without_a_terminal_prints_a_line_per_change() -> None:
    console = Console(file=io.StringIO(), width=30)
    with Screen(console, lambda status: f"ready on {status.target}") as screen:
        for status in LIFE:
            screen.update(status)
    assert isinstance(console.file, io.StringIO)
    lines = [line.partition(" after ")[0] for line in console.file.getvalue().splitlines()]
    assert lines == [
        "control: starting (pid 7)",
        "control: ready",
        "",
        "ready on 127.0.0.1:7700",
        "control: restarting (was killed by SIGKILL)",
        "control: starting (pid 8)",
        "control: ready",
    ]


def test_screen_on_a_terminal_leaves_the_table_and_says_how_to_call() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with Screen(console, lambda status: "call it like this") as screen:
        for status in LIFE[:5]:
            screen.update(status)
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
        assert text.index("pid 7") < text.index("call it like this")


def test_how_to_call_names_what_is_not_the_default() -> None:
    text = how_to_call(dataclasses.replace(STATUS, name="second", graph="graphs/echo"), has_text=True)
    assert "omniflow ask --name second --graph echo" in text
    assert "omniflow status --name second" in text
    assert 'omniflow.connect("127.0.0.1:7700")' in text
    assert "ask" not in how_to_call(STATUS, has_text=False)
