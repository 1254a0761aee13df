"""Sequences: what is declared of one, and how far it has come.

    content   p p p p p p p p d d d          prompt, then drawn tokens that are committed
    committed ───────────────────▶           KV computed by committed steps: its full pages are sealed
    computed  ─────────────────────▶         KV computed by planned steps, one ahead at most
    known     ───────────────────────▶       with the token that the uncommitted step draws

The newest known token has no KV: the next row computes it, and draws the token after it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from omniflow_roles.engines.scheduling.pages import Page
from omniflow_roles.engines.scheduling.step import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSpec:
    """What is declared of a sequence."""

    sequence_id: int
    """Unique for the engine's life."""
    content: tuple[int, ...]
    """Content ids of the prompt, one a token: token ids for text; digests folded to negative ints for other media."""
    max_tokens: int
    """Most tokens to draw."""
    priority: int = 0
    """Higher first."""
    share: str = ""
    """For whom it counts in the fair share: the tenant."""
    namespace: str = ""
    """Prefixes are shared within it."""
    sibling_of: int | None = None
    """Waits until that sequence's prompt has been computed, or that sequence has gone."""
    is_stepwise: bool = False
    """Its next row needs the token before it on the host: it has no row while a draw of it is uncommitted."""


class State(enum.Enum):
    """Where a sequence is: WAITING ⇄ RUNNING → DRAINING. The end, from any of them, is that it is forgotten.

    A sequence preempted while a step with drafts of it is under way can turn out to be done: WAITING → DRAINING.
    """

    WAITING = enum.auto()
    """It holds no pages."""
    RUNNING = enum.auto()
    DRAINING = enum.auto()
    """All its tokens are planned or drawn; it will have no further row."""


@dataclass(slots=True, eq=False)
class LiveSequence:
    """A declared sequence that has not been finished."""

    spec: SequenceSpec
    content: list[int]
    end: int
    """Length of its content when all tokens are drawn."""
    rank: tuple[int, int]
    """Running sequences keep their pages in this order, the smallest first: priority, then arrival."""
    arrival: int
    waiting_since: int
    """Step after which it began to wait; steps it waited before are in `waited_before`."""
    waited_before: int = 0
    state: State = State.WAITING
    pages: tuple[Page, ...] = ()
    spare_pages: list[Page] = field(default_factory=list)
    """Held, and not needed yet: what was taken for drafts that were not accepted."""
    computed: int = 0
    committed: int = 0
    sealed_pages: int = 0
    uncommitted_rows: int = 0
    uncommitted_draws: int = 0
    has_open_drafts: bool = False
    """How many tokens its uncommitted row draws is open."""
    preemption_count: int = 0
    cached_tokens: int | None = None
    """Tokens taken over from sealed pages when it was first admitted."""
    is_prompt_computed: bool = False

    @classmethod
    def declared(cls, spec: SequenceSpec, *, arrival: int, now: int) -> LiveSequence:
        """A sequence that begins to wait after step `now`."""
        return cls(
            spec=spec,
            content=list(spec.content),
            end=len(spec.content) + spec.max_tokens,
            rank=(-spec.priority, arrival),
            arrival=arrival,
            waiting_since=now,
        )

    @property
    def sequence_id(self) -> int:
        return self.spec.sequence_id

    @property
    def known(self) -> int:
        """Tokens that are in the content or will be by the uncommitted step's commit (at least, with open drafts)."""
        return len(self.content) + self.uncommitted_draws

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next draw: 1 when it decodes."""
        return len(self.content) + self.uncommitted_draws - self.computed

    @property
    def is_done_drawing(self) -> bool:
        return len(self.content) + self.uncommitted_draws >= self.end

    @property
    def must_wait_for_commit(self) -> bool:
        """A running sequence has no row in this step."""
        return self.uncommitted_draws > 0 and (self.spec.is_stepwise or self.has_open_drafts)

    def waited_steps(self, now: int) -> int:
        """Steps that a waiting sequence has waited, all its waits together."""
        return self.waited_before + now - self.waiting_since

    def admit(self, pages: tuple[Page, ...], page_size: int, now: int) -> None:
        """It runs, with the prefix in `pages`."""
        self.state = State.RUNNING
        self.waited_before = self.waited_steps(now)
        self.pages = pages
        self.sealed_pages = len(pages)
        self.computed = self.committed = len(pages) * page_size
        if self.cached_tokens is None:
            self.cached_tokens = self.computed

    def restart(self, now: int) -> None:
        """Its pages are gone; it waits to compute its content again. A draw under way still comes at its commit."""
        self.state = State.WAITING
        self.waiting_since = now
        self.preemption_count += 1
        self.drop_pages()
        self.computed = self.committed = 0

    def drop_pages(self) -> None:
        self.pages = ()
        self.spare_pages = []
        self.sealed_pages = 0

    def next_row(self, count: int, drafts: tuple[int, ...]) -> Row:
        """The row of the next `count` tokens, drafts among them. Its pages are there."""
        draws = count - len(drafts) == self.remaining
        row = Row(
            sequence_id=self.spec.sequence_id,
            start=self.computed,
            count=count,
            pages=self.pages,
            draws=draws,
            pending=self.uncommitted_draws,
            drafts=drafts,
        )
        self.computed += count
        self.uncommitted_rows += 1
        if draws:
            self.uncommitted_draws += 1
            self.has_open_drafts = bool(drafts)
        return row

    def commit_row(self, row: Row, tokens: tuple[int, ...], page_size: int) -> None:
        """What a row drew; pages of drafts that were not accepted are kept aside."""
        self.content.extend(tokens)
        self.uncommitted_rows -= 1
        if row.draws:
            self.uncommitted_draws -= 1
            self.has_open_drafts = False
        if not self.pages:
            return
        if row.drafts:
            self.computed = row.start + len(tokens)
            needed = -(-self.computed // page_size)
            self.spare_pages[:0] = self.pages[needed:]
            self.pages = self.pages[:needed]
        self.committed = row.start + (len(tokens) if row.drafts else row.count)
        self.is_prompt_computed = self.is_prompt_computed or self.committed >= len(self.spec.content)
