"""How an answer looks: plain where no terminal is, live on one."""

from __future__ import annotations

import io

from rich.console import Console

from omniflow.events import Event, Output, Progress
from omniflow.values import Tokens
from omniflow_server.cli.answer import Answer
from omniflow_server.cli.answer_view import LiveAnswer, PlainAnswer, view_on

HEARD = Output("transcript", "why [is] it", "asr", (), 1)
FIRST, SECOND = (Output("tokens", Tokens((n,), text), "llm", (), n) for n, text in ((2, "It [bold]"), (3, "is.")))


def shown(console: Console, *events: Event, question: str = "Why?") -> str:
    answer = Answer(asked_s=0.0)
    with view_on(console, answer, question) as view:
        for event in events:
            answer.take(event, 1.0)
            view.update()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, color_system="truecolor", legacy_windows=False)


def test_view_without_a_terminal_is_plain_lines() -> None:
    console = Console(file=io.StringIO(), width=20)
    assert isinstance(view_on(console, Answer(asked_s=0.0), ""), PlainAnswer)
    text = shown(console, HEARD, FIRST, SECOND)
    assert text == "question: Why?\nheard: why [is] it\nanswer: It [bold]is.\n"


def test_view_without_a_terminal_prints_tokens_as_they_come() -> None:
    console = Console(file=io.StringIO(), width=20)
    answer = Answer(asked_s=0.0)
    with view_on(console, answer, "Why?") as view:
        answer.take(FIRST, 1.0)
        view.update()
        assert isinstance(console.file, io.StringIO)
        assert console.file.getvalue().endswith("answer: It [bold]")


def test_view_of_a_failed_call_is_only_the_question() -> None:
    assert shown(Console(file=io.StringIO())) == "question: Why?\n"


def test_view_on_a_terminal_is_live_and_ends_with_the_whole_answer() -> None:
    console = terminal()
    assert isinstance(view_on(console, Answer(asked_s=0.0), ""), LiveAnswer)
    text = shown(console, HEARD, FIRST, SECOND)
    assert "heard: why [is] it" in text
    assert "It [bold]is." in text


def test_view_on_a_terminal_says_what_is_going_on() -> None:
    answer = Answer(asked_s=0.0)
    view = LiveAnswer(terminal(), answer, "question.wav", is_spoken=True)
    assert view._doing() == "listening"
    answer.take(HEARD, 1.0)
    assert view._doing() == "thinking"
    answer.take(Progress("llm", 2, 5, "reading", 1), 1.0)
    assert view._doing() == "llm: reading 2/5"
    answer.take(FIRST, 1.0)
    assert view._doing() == "1 tokens"
