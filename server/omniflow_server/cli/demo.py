"""`omniflow demo`: the whole assistant, from nothing to a checked spoken answer, in one command."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from omniflow.interface import Sampling
from omniflow_server.cli import terminal
from omniflow_server.cli.answer import Answer
from omniflow_server.cli.ask import Question, put, show_end
from omniflow_server.cli.options import ConfigFile, SetFlags, load_settings
from omniflow_server.cli.progress import Screen
from omniflow_server.cli.speech_tools import SpeechTools
from omniflow_server.cli.up import Prepared, prepare
from omniflow_server.config import Flag
from omniflow_server.launch.readiness import ClusterReadiness
from omniflow_server.launch.running import running
from omniflow_server.launch.supervisor import Supervisor

FLOW = "assistant"
TYPED = "What is music?"
SPOKEN = "Why is water important?"
LEAST_SHARE = 0.6
"""Share of the answer's words that a speech recogniser must read back."""
GREEDY = Sampling(temperature=0.0, max_tokens=60)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.wav", help="Where to write the speech.")] = Path(
        "demo.wav"
    ),
    config: ConfigFile = None,
    sets: SetFlags = None,
) -> None:
    """
    Start the assistant, ask it a typed and a spoken question, check its speech, stop it.

    It uses free loopback ports and a folder of its own, so it disturbs nothing that runs. Needs the interpreter of the
    environment "assistant"; `make demo` provides it.

    [bold]Examples[/]

      omniflow demo
      omniflow demo --out answer.wav
    """
    started_s = time.monotonic()
    console = terminal.console()
    with _private_folder(console) as folder:
        flags = [
            Flag(key="control.listen", text="127.0.0.1:0", source="omniflow demo"),
            Flag(key="supervisor.runtime_dir", text=str(folder), source="omniflow demo"),
        ]
        prepared = prepare(FLOW, "demo", load_settings(config, sets, *flags).settings)
        share = asyncio.run(_demonstrate(prepared, out, folder, console))
    _say(console, f"demo done in {terminal.seconds(time.monotonic() - started_s)}", "bold")
    if share < LEAST_SHARE:
        raise typer.Exit(terminal.FAILED)


async def _demonstrate(prepared: Prepared, out: Path, folder: Path, console: Console) -> float:
    """Share of the words of the typed question's answer that were read back."""
    plan = prepared.plan
    tools = SpeechTools(python=prepared.settings.environments["assistant"])
    _step(console, "starting the assistant: a control plane and its role processes")
    with Screen(console, lambda status: f"[green]ready[/] on {status.target}") as screen:
        async with ClusterReadiness(
            targets=plan.targets, internal_targets=plan.internal_targets, graph=plan.graph
        ) as readiness:
            supervisor = Supervisor(plan, prepared.settings.supervisor, readiness, screen.update)
            async with running(supervisor):
                _step(console, "a typed question")
                typed = await _ask(Question(graph=FLOW, text=TYPED, sampling=GREEDY), plan.target, out, console)
                _step(console, "a spoken question")
                question = folder / "question.wav"
                with console.status(f"speaking {SPOKEN!r}"):
                    await tools.say(SPOKEN, question)
                spoken = Question(graph=FLOW, audio=question, label=f"(spoken) {SPOKEN}", sampling=GREEDY)
                await _ask(spoken, plan.target, None, console)
                _step(console, f"reading {out} back")
                with console.status("listening"):
                    share = await tools.share_read_back(out, typed.text)
                is_enough = share >= LEAST_SHARE
                _say(
                    console,
                    f"{'✓' if is_enough else '✗'} {share:.0%} of the words of the answer were understood "
                    f"(at least {LEAST_SHARE:.0%} are wanted)",
                    "green" if is_enough else "bold red",
                )
                _step(console, "stopping")
    return share


async def _ask(question: Question, target: str, out: Path | None, console: Console) -> Answer:
    answer = await put(question, target, console)
    show_end(answer, out, console)
    return answer


@contextmanager
def _private_folder(console: Console) -> Iterator[Path]:
    """A runtime folder of its own, kept when something fails: its logs say why."""
    folder = Path(tempfile.mkdtemp(prefix="omniflow-demo-"))
    try:
        yield folder
    except BaseException:
        if any(folder.rglob("*.log")):
            _say(console, f"logs are kept in {folder}", "dim")
            raise
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def _step(console: Console, text: str) -> None:
    _say(console, f"\n── {text}", "bold cyan")


def _say(console: Console, text: str, style: str) -> None:
    console.print(text, style=style, markup=False, soft_wrap=True)
