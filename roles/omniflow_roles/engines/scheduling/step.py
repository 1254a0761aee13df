"""A step: what one forward computes, for which sequences, and in which pages.

Step 7   row 3: decode at 41, pages (3, 0, 9), draws          decode rows first
         row 5: decode at 80, pending: its input is what step 6 draws
         row 8: tokens 0 .. 511 of a prompt                   then chunks of prompts
"""

from __future__ import annotations

from dataclasses import dataclass

from omniflow_roles.engines.scheduling.pages import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One sequence's part of a step."""

    sequence_id: int
    start: int
    """Position of its first token: so many tokens have their KV in the pages before this step."""
    count: int
    """Tokens computed in this step. Decode: 1, or 1 + drafts; a chunk of a prompt: 1 or more."""
    pages: tuple[Page, ...]
    """Page table, just long enough for start + count tokens. The same object until the sequence gains a page."""
    draws: bool
    """The row's last position is the newest token: a token is drawn from it (with drafts: from each of the last
    1 + drafts positions)."""
    pending: int
    """Input tokens, 0 or 1, that the step before draws and that are not committed: then the first of a decode row."""
    drafts: tuple[int, ...] = ()
    """Speculated tokens that follow the newest one: the inputs at start + 1 and on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Rows that are computed together."""

    number: int
    """1, 2, 3 ..."""
    rows: tuple[Row, ...]
    """At least one. Rows that compute just the newest token (and drafts) first, then chunks of prompts."""


class StepBuilder:
    """Collects the rows of a step, within its budget of tokens."""

    __slots__ = ("_chunks", "_decodes", "tokens_left")

    def __init__(self, max_tokens: int) -> None:
        self._decodes: list[Row] = []
        self._chunks: list[Row] = []
        self.tokens_left = max_tokens

    @property
    def row_count(self) -> int:
        return len(self._decodes) + len(self._chunks)

    def add(self, row: Row) -> None:
        # the last token of a prompt whose rest is cached is computed just as a decode row is
        is_decode = row.draws and row.count == 1 + len(row.drafts)
        (self._decodes if is_decode else self._chunks).append(row)
        self.tokens_left -= row.count

    def build(self, number: int) -> Step:
        return Step(number=number, rows=(*self._decodes, *self._chunks))
