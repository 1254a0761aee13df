"""`omniflow ask`: one question, typed or spoken, and its answer as it comes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import omniflow
from omniflow.interface import Sampling
from omniflow.values import Audio
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.cli import terminal
from omniflow_server.cli.answer import Answer
from omniflow_server.cli.answer_view import view_on
from omniflow_server.cli.options import DEFAULT_NAME, ConfigFile, Name, Target, find_target, load_settings

_PANEL = "Sampling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to ask, where. At least one of `text` and `audio` (a WAV file) is given."""

    graph: str
    text: str | None = None
    audio: Path | None = None
    sampling: Sampling | None = None
    timeout_s: float | None = None
    label: str = ""
    """The question for people, when it is not the text or the name of the file."""

    @property
    def shown(self) -> str:
        """The question for people."""
        return self.label or " + ".join(filter(None, (self.text, str(self.audio) if self.audio else None)))


def ask(
    question: Annotated[str | None, typer.Argument(metavar="[QUESTION]", help="A typed question.")] = None,
    audio: Annotated[
        Path | None, typer.Option("--audio", "-a", metavar="FILE.wav", help="A spoken question, 16-bit PCM.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.wav", help="Where to write the spoken answer.")
    ] = None,
    graph: Annotated[str, typer.Option("--graph", "-g", metavar="GRAPH", help="Graph to call.")] = "assistant",
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="Most tokens of the answer.", rich_help_panel=_PANEL)
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, help="0 is greedy.", rich_help_panel=_PANEL)
    ] = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Give up after this time.")
    ] = None,
    target: Target = None,
    name: Name = DEFAULT_NAME,
    config: ConfigFile = None,
) -> None:
    """
    Ask a question and watch the answer come.

    [bold]Examples[/]

      omniflow ask "Why is the sky blue?"
      omniflow ask "Why is the sky blue?" --temperature 0 --max-tokens 60 --out answer.wav
      omniflow ask --audio question.wav --target 127.0.0.1:7700
    """
    _check(question, audio, out)
    where = find_target(target, name, load_settings(config, None))
    sampling = Sampling(max_tokens=max_tokens, temperature=temperature)
    asked = Question(graph=graph, text=question, audio=audio, sampling=sampling, timeout_s=timeout_s)
    console = terminal.console()
    answer = asyncio.run(put(asked, where, console))
    show_end(answer, out, console)


async def put(question: Question, target: str, console: Console) -> Answer:
    """Asks, and shows the answer as it comes. Raises OmniFlowError; leaving early cancels the call."""
    audio = Audio(question.audio.read_bytes(), "audio/wav") if question.audio else None
    answer = Answer(asked_s=time.monotonic())
    async with omniflow.connect(target) as client:
        with view_on(console, answer, question.shown, is_spoken=audio is not None) as view:
            async with client.stream(
                question.graph,
                inputs={"text": question.text, "audio": audio},
                sampling=question.sampling,
                timeout_s=question.timeout_s,
            ) as events:
                async for event in events:
                    answer.take(event, time.monotonic())
                    view.update()
    return answer


def show_end(answer: Answer, out: Path | None, console: Console) -> None:
    """Counters and times, and the speech as a file."""
    console.print(answer.summary(), style="dim", markup=False, soft_wrap=True)
    if out is not None:
        answer.write_wav(out)
        console.print(f"wrote {out}: {answer.audio_s:.1f} s of speech", style="dim", markup=False, soft_wrap=True)
    elif answer.audio:
        console.print(
            f"{answer.audio_s:.1f} s of speech; --out FILE.wav keeps it", style="dim", markup=False, soft_wrap=True
        )


def _check(question: str | None, audio: Path | None, out: Path | None) -> None:
    """What can be refused before anything is sent. Raises OmniFlowError INVALID_CONFIG."""
    if not question and audio is None:
        raise OmniFlowError(Reason.INVALID_CONFIG, 'give a question, such as omniflow ask "Why is the sky blue?"')
    if audio is not None and not audio.is_file():
        raise OmniFlowError(Reason.INVALID_CONFIG, f"there is no file {audio}")
    if out is not None and not out.absolute().parent.is_dir():
        raise OmniFlowError(Reason.INVALID_CONFIG, f"there is no folder {out.parent} to write {out.name} to")
