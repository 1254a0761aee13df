"""How an answer looks while it comes: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from omniflow_server.cli.answer import Answer


class AnswerView(Protocol):
    """Shows an answer between entering and leaving."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self) -> None:
        """The answer has grown."""


def view_on(console: Console, answer: Answer, question: str, *, is_spoken: bool = False) -> AnswerView:
    """The view that fits where the output goes. `question` is what was asked, for people."""
    if console.is_terminal:
        return LiveAnswer(console, answer, question, is_spoken=is_spoken)
    return PlainAnswer(console, answer, question)


class PlainAnswer:
    """`question:`, `heard:` and `answer:` lines; the answer grows as it comes."""

    def __init__(self, console: Console, answer: Answer, question: str) -> None:
        self._console, self._answer, self._question = console, answer, question
        self._heard_length = 0
        self._text_length = 0

    def __enter__(self) -> Self:
        self._line(f"question: {self._question}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._text_length:
            self._console.print()

    def update(self) -> None:
        """Prints what is new."""
        if self._answer.transcript and not self._heard_length and not self._text_length:
            self._heard_length = len(self._answer.transcript)
            self._line(f"heard: {self._answer.transcript}")
        new = self._answer.text[self._text_length :]
        if new:
            start = "" if self._text_length else "answer: "
            self._text_length = len(self._answer.text)
            self._console.print(f"{start}{new}", end="", markup=False, soft_wrap=True)
            self._console.file.flush()

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


class LiveAnswer:
    """Question, what was heard, the answer as it grows, and what is going on below it."""

    def __init__(self, console: Console, answer: Answer, question: str, *, is_spoken: bool) -> None:
        self._answer, self._question, self._is_spoken = answer, question, is_spoken
        self._spinner = Spinner("dots", style="cyan")
        self._is_over = False
        self._live = Live(
            console=console, get_renderable=self._frame, refresh_per_second=12, vertical_overflow="visible"
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._live.__exit__(kind, value, trace)

    def update(self) -> None:
        """Nothing to do: each frame reads the answer."""

    def _frame(self) -> RenderableType:
        rows: list[RenderableType] = [_row("❯", "bold cyan", self._question)]
        if self._answer.transcript:
            rows.append(_row("♪", "magenta", f"heard: {self._answer.transcript}", "italic"))
        if self._answer.text:
            rows.append(_row("●", "green", self._answer.text.strip()))
        if not self._is_over:
            self._spinner.update(text=Text(self._doing(), style="dim"))
            rows.append(self._spinner)
        return Group(*rows)

    def _doing(self) -> str:
        speech = f"{self._answer.audio_s:.1f} s of speech" if self._answer.audio else ""
        progress = self._answer.progress
        if self._answer.text:
            return " · ".join(filter(None, (f"{self._answer.tokens} tokens", speech)))
        if progress is not None:
            steps = f" {progress.completed}/{progress.total}" if progress.total else ""
            return f"{progress.node}: {progress.message or 'working'}{steps}"
        return "listening" if self._is_spoken and not self._answer.transcript else "thinking"


def _row(mark: str, mark_style: str, text: str, style: str = "") -> Text:
    return Text.assemble((f"{mark} ", mark_style), (text, style))
