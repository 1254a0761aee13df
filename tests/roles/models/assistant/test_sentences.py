"""Where sentences end, in texts that grow a piece at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from omniflow_roles.models.assistant.sentences import MAX_CHARS, PassageBuffer, first_end, split


def short_texts() -> Iterator[str]:
    """Every text of up to five of the characters that matter."""
    for length in range(6):
        for characters in itertools.product("ab. !\n1", repeat=length):
            yield "".join(characters)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("It is. And", "It is. "),
        ("it is. and", "it is. "),
        ('He said "go!"  Then', 'He said "go!"  '),
        ("Really?! Yes", "Really?! "),
        ("Well… yes", "Well… "),
        ("A title\n\nA text", "A title\n\n"),
        ("**Bold.** Then", "**Bold.** "),
        ("It ended in 1999. Then", "It ended in 1999. "),
    ],
)
def test_first_end_is_after_the_blank_that_follows_a_full_stop(text: str, sentence: str) -> None:
    assert text[: first_end(text)] == sentence


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is",
        "It is.",
        "It is 3.5",
        "Dr. Smith",
        "e.g. this",
        "J. Bach",
        "1. First",
        "(etc. and",
        "The U.S. is",
        "a.b.c ",
    ],
)
def test_first_end_waits_while_the_sentence_may_go_on(text: str) -> None:
    assert first_end(text) == 0


def test_first_end_cuts_an_endless_sentence_at_a_clause() -> None:
    text = "word " * 50 + "end, " + "word " * 50
    assert text[: first_end(text)].endswith("end, ")


def test_first_end_cuts_at_a_blank_without_a_clause_and_anywhere_without_a_blank() -> None:
    assert first_end("word " * 100) == MAX_CHARS
    assert first_end("x" * 1000) == MAX_CHARS


def test_split_gives_sentences_as_they_are_spoken() -> None:
    text = "# Title\n\n- It is **bold**.  And\tnew.\n\n***\n2. Last"
    assert split(text) == ["Title", "It is bold.", "And new.", "2. Last"]


@pytest.mark.parametrize("text", ["", " \n", "...", "* * *\n!"])
def test_split_gives_nothing_for_nothing_to_say(text: str) -> None:
    assert split(text) == []


def test_passages_come_as_soon_as_they_are_complete() -> None:
    buffer = PassageBuffer()
    pushed = [buffer.push(piece) for piece in ["It", " is", ".", " Dr", ".", " No", "! So", " it"]]
    assert pushed == ["", "", "", "It is. ", "", "", "Dr. No! ", ""]
    assert buffer.flush() == "So it"
    assert buffer.flush() == ""


def test_passages_joined_are_the_text_and_are_spoken_as_it_would_be() -> None:
    for text in short_texts():
        buffer = PassageBuffer()
        passages = [*(buffer.push(character) for character in text), buffer.flush()]
        assert "".join(passages) == text
        assert [sentence for passage in passages for sentence in split(passage)] == split(text)


def test_passages_hold_little_of_a_text_without_an_end() -> None:
    buffer = PassageBuffer()
    passages = [buffer.push("word,") or buffer.push(" ") for _ in range(1_000)]
    assert all(len(passage) <= MAX_CHARS + 1 for passage in passages)
    assert len(buffer.flush()) <= MAX_CHARS


def test_split_keeps_every_letter() -> None:
    for text in short_texts():
        assert [c for sentence in split(text) for c in sentence if c.isalnum()] == [c for c in text if c.isalnum()]


@pytest.mark.parametrize("text", ["word, " * 400, "word " * 400, "x" * 2_000, " " * 2_000 + "x", "a. " * 500])
def test_split_bounds_a_sentence(text: str) -> None:
    assert all(0 < len(sentence) <= MAX_CHARS for sentence in split(text))
