"""A device without a model: what every row must read from its pages, and the tokens that follow from it.

The KV of a token is a digest of the namespace and of all tokens up to its own, made from the digest that the row finds
in the slot before it. A draw is a function of the digest. So a page that is given away too early, shared wrongly or
written twice gives wrong digests, and the tokens of a sequence differ from its `Reference`, which knows no pages.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping, Sequence

from omniflow_roles.engines.scheduling.pages import LocalPages
from omniflow_roles.engines.scheduling.scheduler import Scheduler
from omniflow_roles.engines.scheduling.sequences import SequenceSpec
from omniflow_roles.engines.scheduling.step import Row, Step

VOCABULARY = 4


def _begin(namespace: str) -> int:
    return zlib.crc32(namespace.encode())


def _after(digest: int, token: int) -> int:
    return hash((digest, token))


def _draw(digest: int) -> int:
    return (digest >> 5) % VOCABULARY


class Reference:
    """What a sequence draws, one token after another, and the KV of each token."""

    def __init__(self, spec: SequenceSpec) -> None:
        self.tokens = list(spec.content)
        self.kv: list[int] = []
        digest = _begin(spec.namespace)
        for position in range(len(spec.content) + spec.max_tokens):
            if position == len(self.tokens):
                self.tokens.append(_draw(digest))
            digest = _after(digest, self.tokens[position])
            self.kv.append(digest)

    def drafts(self, start: int, right: int, wrong: int) -> tuple[int, ...]:
        """Speculated tokens after `start` known ones: `right` ones, then `wrong` ones."""
        good = self.tokens[start : start + right]
        return (*good, *((token + 1) % VOCABULARY for token in self.tokens[start + right : start + right + wrong]))


class Device:
    """Executes steps in order."""

    def __init__(self, page_count: int, page_size: int) -> None:
        self._page_size = page_size
        self._kv: list[int | None] = [None] * (page_count * page_size)

    def check_kv(self, row: Row, kv: Sequence[int]) -> None:
        """The row finds `kv` in its pages, position by position."""
        size = self._page_size
        for begin in range(0, len(kv), size):
            wanted = kv[begin : begin + size]
            slot = row.pages[begin // size] * size
            assert self._kv[slot : slot + len(wanted)] == wanted, f"foreign KV from position {begin} on in {row}"

    def compute(self, row: Row, namespace: str, inputs: Sequence[int]) -> list[int]:
        """Writes the KV of the inputs. The draws after each of them."""
        assert len(inputs) == row.count
        draws = []
        for position, token in enumerate(inputs, row.start):
            before = _begin(namespace) if position == 0 else self._kv[self._slot(row, position - 1)]
            assert before is not None, f"nothing was computed before position {position} of {row}"
            digest = self._kv[self._slot(row, position)] = _after(before, token)
            draws.append(_draw(digest))
        return draws

    def _slot(self, row: Row, position: int) -> int:
        return row.pages[position // self._page_size] * self._page_size + position % self._page_size


class Simulation:
    """A scheduler, its pages, and an engine around them that checks every step."""

    def __init__(self, pages: LocalPages, *, max_rows: int, max_step_tokens: int, **options: int) -> None:
        self.pages = pages
        self.scheduler = Scheduler(pages, max_rows=max_rows, max_step_tokens=max_step_tokens, **options)
        self.max_rows = max_rows
        self.max_step_tokens = max_step_tokens
        self.outstanding: deque[tuple[Step, dict[int, list[int]]]] = deque()
        """Executed steps that are not committed, with the tokens that their rows drew."""
        self.live: dict[int, SequenceSpec] = {}
        self.drawn: dict[int, list[int]] = {}
        self.steps = 0
        self._references: dict[int, Reference] = {}
        self._device = Device(pages.page_count, pages.page_size)

    def add(self, spec: SequenceSpec) -> None:
        self.scheduler.add(spec)
        self.live[spec.sequence_id] = spec
        self.drawn[spec.sequence_id] = []
        self._references[spec.sequence_id] = Reference(spec)

    def finish(self, sequence_id: int) -> None:
        """The sequence ends early, or has drawn all its tokens."""
        self.live.pop(sequence_id, None)
        self.scheduler.finish(sequence_id)

    def reference(self, sequence_id: int) -> list[int]:
        """All tokens that the sequence may draw."""
        spec = self.live[sequence_id]
        return self._references[sequence_id].tokens[len(spec.content) :]

    def drafts(self, sequence_id: int, *, right: int, wrong: int) -> tuple[int, ...]:
        """Guesses that follow what is committed of a sequence."""
        known = len(self.live[sequence_id].content) + len(self.drawn[sequence_id])
        return self._references[sequence_id].drafts(known, right, wrong)

    def plan(self, drafts: Mapping[int, Sequence[int]] | None = None) -> Step | None:
        """Plans, checks and executes a step."""
        step = self.scheduler.plan(drafts or {})
        if step is not None:
            self.steps += 1
            assert step.number == self.steps
            self._check_step(step)
            self.outstanding.append((step, self._execute(step)))
        return step

    def commit(self) -> None:
        """Commits the oldest step; sequences that have all their tokens are finished."""
        step, draws = self.outstanding.popleft()
        taken = {sequence_id: tokens for sequence_id, tokens in draws.items() if sequence_id in self.live}
        self.scheduler.commit(step, taken)
        for sequence_id, tokens in taken.items():
            self.drawn[sequence_id] += tokens
            wanted = self.reference(sequence_id)
            assert self.drawn[sequence_id] == wanted[: len(self.drawn[sequence_id])], f"wrong tokens of {sequence_id}"
            if len(self.drawn[sequence_id]) == len(wanted):
                assert self.scheduler.is_done_drawing(sequence_id)
                self.finish(sequence_id)

    def most_preemptions(self) -> int:
        """Of one live sequence."""
        return max((live.preemption_count for live in self.scheduler._sequences.values()), default=0)

    def check_integrity(self) -> None:
        self.scheduler.check_integrity()
        assert self.scheduler.running_count + self.scheduler.waiting_count == len(self.live)

    def commit_to(self, lag: int) -> None:
        """Commits until so many steps are outstanding."""
        while len(self.outstanding) > lag:
            self.commit()

    def round(self, lag: int, drafts: Mapping[int, Sequence[int]] | None = None) -> Step | None:
        """Plans a step, and commits until `lag` (none, when nothing could be planned) are outstanding."""
        self.commit_to(1)
        step = self.plan(drafts)
        self.commit_to(lag if step is not None else 0)
        return step

    def run(self, lag: int, *, most_steps: int, is_checked: bool = True) -> None:
        """Until all sequences have drawn their tokens."""
        bound = self.steps + most_steps
        while self.scheduler.has_work:
            was_idle = not self.outstanding
            step = self.round(lag)
            assert step is not None or not was_idle, "nothing runs, nothing is admitted"
            assert self.steps <= bound, f"{len(self.live)} sequences have not ended in {most_steps} steps"
            if is_checked:
                self.check_integrity()
        assert not self.live
        self.scheduler.check_integrity()
        assert self.pages.available == self.pages.page_count, "pages leaked"

    def _check_step(self, step: Step) -> None:
        assert 1 <= len(step.rows) <= self.max_rows
        assert sum(row.count for row in step.rows) <= self.max_step_tokens
        assert len({row.sequence_id for row in step.rows}) == len(step.rows)
        is_decode = [row.draws and row.count == 1 + len(row.drafts) for row in step.rows]
        assert is_decode == sorted(is_decode, reverse=True), "decode rows come first"
        for row in step.rows:
            self._check_row(row)

    def _check_row(self, row: Row) -> None:
        spec, drawn = self.live[row.sequence_id], len(self.drawn[row.sequence_id])
        size, end = self.pages.page_size, row.start + row.count
        assert row.count >= 1 + len(row.drafts)
        assert len(row.pages) == -(-end // size), "the page table does not just cover the row"
        for page in row.pages:
            assert row.sequence_id in self.pages.holders_of(page)
        for page in row.pages[row.start // size :]:
            assert self.pages.holders_of(page) == {row.sequence_id}, "a page of two sequences is written"
            assert not self.pages.is_sealed(page), "a sealed page is written"
        known = len(spec.content) + drawn + row.pending
        assert row.draws == (end - len(row.drafts) == known)
        assert not row.pending or (row.draws and row.count == 1)
        if row.draws:
            assert drawn + row.pending + 1 + len(row.drafts) <= spec.max_tokens, "a draw beyond max_tokens"

    def _execute(self, step: Step) -> dict[int, list[int]]:
        """Rows do not wait for each other: each finds what steps before have computed, and nobody overwrites it."""
        for row in step.rows:
            self._device.check_kv(row, self._references[row.sequence_id].kv[: row.start])
        draws = {row.sequence_id: self._run_row(row) for row in step.rows}
        for row in step.rows:
            sure = row.start + row.count - len(row.drafts)
            self._device.check_kv(row, self._references[row.sequence_id].kv[:sure])
        return {row.sequence_id: draws[row.sequence_id] for row in step.rows if row.draws}

    def _run_row(self, row: Row) -> list[int]:
        spec = self.live[row.sequence_id]
        committed = [*spec.content, *self.drawn[row.sequence_id]]
        begin, end = row.start + row.pending, row.start + row.count - len(row.drafts)
        inputs = [*committed[begin:end], *row.drafts]
        if row.pending:
            (pending,) = self.outstanding[-1][1][row.sequence_id]
            inputs.insert(0, pending)
        draws = self._device.compute(row, spec.namespace, inputs)[row.count - len(row.drafts) - 1 :]
        accepted = 0
        while accepted < len(row.drafts) and draws[accepted] == row.drafts[accepted]:
            accepted += 1
        return draws[: accepted + 1]
