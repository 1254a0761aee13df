"""Drawn tokens to text as they come, in whole characters.

A token is bytes as often as it is letters: an emoji is four of them, and may be spread over four tokens. Nor can the text of
one token be had by itself, for a tokenizer may drop the blank at the start of what it decodes. So each token is decoded
together with those of the piece before it, and the difference is its text:

    pushed     ▁You   F0     9F      98       80      ▁!
    decoded    You    You�   You��   You���   You😀   😀 !
    given      You    -      -       -        😀      " !"

Replacement characters at the end may yet become a character, at most three of them: a tokenizer writes one for a character
that lacks bytes, or one for each byte that it has. Everything before them is certain. Joined, the pieces are what all
tokens decoded at once give. The one exception are bytes that are no text, under tokenizers with byte fallback: decoded at
once, they turn the characters that stand beside them into replacement characters too, and here those are out by then.

`tokenizers.decoders.DecodeStream` works alike, but raises an error on just those bytes, holds everything back until no
replacement character is at the end, and has no way to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_BROKEN = "\N{REPLACEMENT CHARACTER}"
_MOST_BROKEN = 3
"""Bytes that a character of UTF-8 can still lack its last one with; also the tokens that they can be spread over."""

_MOST_HELD = 32
"""Tokens without the end of a character among them: decoding them again with each new one would take ever longer."""


class Decodes(Protocol):
    """What is needed of a `tokenizers.Tokenizer`, the `backend_tokenizer` of a fast one of transformers."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of the tokens; "" for ids that are none."""


class Detokenizer:
    """The text of one answer. Special tokens have none."""

    def __init__(self, tokenizer: Decodes) -> None:
        self._tokenizer = tokenizer
        self._before: list[int] = []
        """Tokens of the piece before, whose text is out."""
        self._before_text = ""
        self._held: list[int] = []
        """Tokens since then."""
        self._sent = 0
        """Characters of the held tokens' text that are out already."""
        self._length = 0
        """Characters that it had with the token before."""

    def push(self, token: int) -> str:
        """The text that has become certain with the token."""
        self._held.append(token)
        text = self._held_text()
        # Bytes that have one replacement character each get fewer letters when they have become text; that may end with the
        # replacement character itself, which can be written on purpose.
        is_whole = not text.endswith(_BROKEN) or len(text) < self._length
        certain = len(text) if is_whole else max(len(text.rstrip(_BROKEN)), len(text) - _MOST_BROKEN)
        piece = text[self._sent : certain]
        self._sent, self._length = max(self._sent, certain), len(text)
        if text and is_whole:
            self._begin_after(self._held)
        elif len(self._held) > _MOST_HELD:
            self._shorten(len(text) - certain)
        return piece

    def flush(self) -> str:
        """The rest, when no more tokens come: replacement characters for a character that has not been completed."""
        piece = self._held_text()[self._sent :]
        self._begin_after(self._held)
        return piece

    def _held_text(self) -> str:
        text = self._decode(self._before + self._held)
        size = len(self._before_text)
        if text.startswith(self._before_text) and not text.startswith(_BROKEN, size):
            return text[size:]
        # Broken bytes may have torn down those before them. By themselves they are right: they have no blank to lose.
        return self._decode(self._held)

    def _begin_after(self, tokens: list[int]) -> None:
        self._before, self._held, self._sent, self._length = tokens, [], 0, 0
        self._before_text = self._decode(tokens)

    def _shorten(self, uncertain: int) -> None:
        """Keeps the tokens of what is uncertain, or drops the newest one when it has no text."""
        if not uncertain or not self._decode(self._held[-1:]):
            self._held.pop()
            return
        self._before, self._before_text = [], ""
        kept = _MOST_BROKEN
        while kept < len(self._held) and len(self._decode(self._held[-kept:])) < uncertain:
            kept += 1
        self._held = self._held[-kept:]
        self._length = len(self._decode(self._held))
        self._sent = max(0, self._length - uncertain)

    def _decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens, skip_special_tokens=True)
