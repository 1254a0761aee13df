"""Where sentences end in a text that is still growing. Pure; knows nothing of tokens, graphs or speech engines.

    "It is 3.5 m long. Dr. Smith said so! An"
                      ^                  ^  still open

A sentence is complete when its full stop is followed by white space: before that, "3." may become "3.5". An abbreviation
or an initial does not end one. A sentence longer than MAX_CHARS is cut at a clause or a blank, so whoever holds the
unfinished rest holds little, and speech does not wait for a page without a full stop. The next letter's case is not looked
at: a model that was asked in lower case answers in lower case.
"""

from __future__ import annotations

import re

MAX_CHARS = 300
"""About 20 s of speech."""

_END = re.compile(r"""[.!?…]+["'”’)\]*_]*(?=\s)|\n""")
_CLAUSE = re.compile(r"[,;:)—–]+(?=\s)")
_NOT_SPOKEN = re.compile(r"[*_`#~|<>]+")
_BULLET = re.compile(r"^[-•]\s+")
_ABBREVIATION = re.compile(
    r"[a-z]|mrs?|ms|dr|prof|rev|st|sr|jr|vs|etc|e\.g|i\.e|cf|vol|approx|dept|inc|ltd|u\.s|u\.k|a\.m|p\.m"
)


def first_end(text: str) -> int:
    """Length of the first complete sentence with the white space after it; 0 when the text has none yet."""
    for match in _END.finditer(text):
        if match.start() > MAX_CHARS:
            break
        if not _is_inner(text, match):
            return _after_blanks(text, match.end())
    return _forced_end(text) if len(text) > MAX_CHARS else 0


def split(text: str) -> list[str]:
    """Sentences of a finished text as they are spoken: one line each, no mark-up, nothing without a letter or digit."""
    found = []
    while text:
        end = first_end(text) or len(text)
        if spoken := _spoken(text[:end]):
            found.append(spoken)
        text = text[end:]
    return found


class PassageBuffer:
    """Collects text and gives it back in whole sentences, as soon as they are complete.

    What comes out, joined, is what went in: nothing is dropped or tidied here.
    """

    def __init__(self) -> None:
        self._text = ""

    def push(self, text: str) -> str:
        """The sentences that this text completes; mostly "", never more than was pushed."""
        self._text += text
        end = 0
        while step := first_end(self._text[end:]):
            end += step
        passage, self._text = self._text[:end], self._text[end:]
        return passage

    def flush(self) -> str:
        """The rest, when no more text will come."""
        rest, self._text = self._text, ""
        return rest


def _is_inner(text: str, match: re.Match[str]) -> bool:
    """Whether the full stop belongs to an abbreviation, an initial or the number of a list item."""
    if match.group()[0] != ".":
        return False
    before = text[: match.start()].split()
    word = before[-1].strip("([\"'“‘").lower() if before else ""
    is_list_number = len(before) == 1 and word.isdigit()
    return is_list_number or bool(_ABBREVIATION.fullmatch(word))


def _forced_end(text: str) -> int:
    """The last clause or blank within MAX_CHARS; without either, MAX_CHARS."""
    head = text[:MAX_CHARS]
    clauses = [match.end() for match in _CLAUSE.finditer(head)]
    end = clauses[-1] if clauses else head.rfind(" ")
    return _after_blanks(text, end) if end > 0 else MAX_CHARS


def _after_blanks(text: str, end: int) -> int:
    while end < len(text) and text[end].isspace():
        end += 1
    return end


def _spoken(sentence: str) -> str:
    words = " ".join(_BULLET.sub("", _NOT_SPOKEN.sub("", sentence).strip()).split())
    return words if any(character.isalnum() for character in words) else ""
