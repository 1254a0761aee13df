"""The scheduler: which sequences the next step computes, how much of each, and in which pages.

    plan 1   plan 2   commit 1   plan 3   commit 2   ...      one step may be ahead of what is committed

A step has the rows that decode, then chunks of prompts that are being computed, then what is newly admitted, within
`max_rows` and `max_step_tokens`; decoding never waits for a prompt. Pages of a row are acquired when it is planned. When a
running sequence is short of one, the lowest in rank loses its pages, and computes its content again later.

Steps are executed in the order they were planned. So pages may be given away at once, even while a step that uses them is
under way, and KV of that step may be read by the next one. Sealing waits for the commit: what a step computed for a
sequence that turns out to have ended before is then never found by another.

It knows nothing of tokens but their ids, of models, of time. Precedents: the token budget shared by decode rows and
chunks is that of Sarathi-Serve (Agrawal et al., OSDI 2024); pages and preemption by recomputing are those of
PagedAttention (Kwon et al., SOSP 2023, section 4.5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from omniflow_roles.engines.scheduling.admission import AdmissionControl, Admitted
from omniflow_roles.engines.scheduling.order import AdmissionOrder, FairShare, RunningOrder
from omniflow_roles.engines.scheduling.pages import PageSource
from omniflow_roles.engines.scheduling.sequences import LiveSequence, SequenceSpec, State
from omniflow_roles.engines.scheduling.step import Step, StepBuilder

_NO_DRAFTS: Mapping[int, Sequence[int]] = MappingProxyType({})
_MAX_WAITS = 8
"""Sequences that do not fit and are passed over in one step: the first ones of the order are worth a look, not all."""
_RESCAN_STEPS = 16
"""When nothing fitted and nothing has changed that could help, waiting sequences are looked at again after so many steps:
prefixes sealed meanwhile and pages given back by others than sequences are noticed then."""


class Scheduler:
    """Sequences of one engine over one pool.

    `max_rows`: most rows of a step, and sequences running. `max_step_tokens`: most tokens of a step. `growth_tokens`: how
    many tokens of growth of everything that runs an admission leaves room for. `aging_steps`: steps of waiting that count
    as one of priority.
    """

    def __init__(
        self,
        pages: PageSource,
        *,
        max_rows: int,
        max_step_tokens: int,
        growth_tokens: int = 256,
        aging_steps: int = 256,
    ) -> None:
        if min(max_rows, max_step_tokens, growth_tokens, aging_steps) < 1:
            raise ValueError("max_rows, max_step_tokens, growth_tokens and aging_steps are at least 1")
        self.pages = pages
        self.preemption_count = 0
        """Times that a running sequence lost its pages."""
        self._max_rows = min(max_rows, max_step_tokens)  # each row has a token: so every running sequence moves
        self._max_step_tokens = max_step_tokens
        self._admission = AdmissionControl(pages, growth_tokens=growth_tokens)
        self._shares = FairShare()
        self._order = AdmissionOrder(self._shares, aging_steps=aging_steps)
        self._sequences: dict[int, LiveSequence] = {}
        self._waiting: dict[int, LiveSequence] = {}
        self._running = RunningOrder()
        self._draining: dict[int, LiveSequence] = {}
        self._uncommitted: deque[Step] = deque()
        self._arrivals = 0
        self._number = 0
        self._has_changed = False
        """Something may fit that did not at the last look."""
        self._next_look = 0

    @property
    def has_work(self) -> bool:
        """A step can be planned, or is to be committed."""
        return bool(self._waiting or len(self._running) or self._uncommitted)

    @property
    def running_count(self) -> int:
        """Sequences that have been admitted and not finished."""
        return len(self._running) + len(self._draining)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def cached_tokens(self, sequence_id: int) -> int:
        """Prompt tokens taken over from sealed pages when it was first admitted. KeyError once it is finished."""
        return self._sequences[sequence_id].cached_tokens or 0

    def is_done_drawing(self, sequence_id: int) -> bool:
        """All its `max_tokens` are planned: it has no further row. True as well for sequences that are finished."""
        sequence = self._sequences.get(sequence_id)
        return sequence is None or sequence.state is State.DRAINING

    def add(self, spec: SequenceSpec) -> None:
        """Takes a sequence in. Raises POOL_EXHAUSTED when the pool can never hold it, and then keeps nothing of it."""
        assert spec.sequence_id not in self._sequences, f"sequence {spec.sequence_id} was added before"
        refused = self._admission.declare(spec)
        if refused is not None:
            raise refused.error()
        self._arrivals += 1
        sequence = LiveSequence.declared(spec, arrival=self._arrivals, now=self._number)
        self._sequences[spec.sequence_id] = self._waiting[spec.sequence_id] = sequence
        self._shares.enter(spec.share)
        self._has_changed = True

    def finish(self, sequence_id: int) -> None:
        """The sequence ends here, whatever it is doing; its sealed pages stay as cache. Unknown ones change nothing.

        Every sequence ends by this, also one that has drawn its `max_tokens`. What an uncommitted step computes for it is
        dropped.
        """
        sequence = self._sequences.pop(sequence_id, None)
        if sequence is None:
            return
        self._leave_state(sequence)
        self.pages.release(sequence_id)
        self._shares.leave(sequence.spec.share)
        self._has_changed = True

    def plan(self, drafts: Mapping[int, Sequence[int]] = _NO_DRAFTS) -> Step | None:
        """The next step; None when no sequence can have a row before a commit, or there is none.

        `drafts`: speculated tokens that may follow the newest token of a sequence. They are taken as far as its
        `max_tokens`, the step's tokens and the pages allow. At most one step may be uncommitted.
        """
        assert len(self._uncommitted) <= 1, "two steps are uncommitted"
        builder = StepBuilder(self._max_step_tokens)
        preemptions = self.preemption_count
        self._plan_running(builder, drafts)
        if preemptions == self.preemption_count:  # else what was just given up would be taken by newcomers
            self._plan_admissions(builder)
        if not builder.row_count:
            return None
        self._number += 1
        step = builder.build(self._number)
        self._uncommitted.append(step)
        return step

    def commit(self, step: Step, drawn: Mapping[int, Sequence[int]]) -> None:
        """Ends the oldest uncommitted step. `drawn`: the tokens of each row that draws, by sequence.

        One token a row, or with drafts those of them that were accepted and the token drawn after them. Rows of
        sequences that ended meanwhile are ignored.
        """
        assert self._uncommitted, "no step is uncommitted"
        assert self._uncommitted[0] is step, f"step {self._uncommitted[0].number} is to be committed first"
        self._uncommitted.popleft()
        for row in step.rows:
            sequence = self._sequences.get(row.sequence_id)
            if sequence is None:
                continue
            tokens = tuple(drawn[row.sequence_id]) if row.draws else ()
            assert not row.draws or 1 <= len(tokens) <= 1 + len(row.drafts), f"{len(tokens)} tokens drawn by {row}"
            was_prompt_computed = sequence.is_prompt_computed
            sequence.commit_row(row, tokens, self.pages.page_size)
            self._seal(sequence)
            if sequence.is_done_drawing and sequence.state is not State.DRAINING:
                self._drain(sequence)
            if sequence.state is State.WAITING or sequence.is_prompt_computed != was_prompt_computed:
                self._has_changed = True

    def check_integrity(self) -> None:
        """Recomputes what is kept beside the sequences themselves. For tests and idle engines."""
        self.pages.check_integrity()
        self._running.check_integrity()
        self._shares.check_integrity(sequence.spec.share for sequence in self._sequences.values())
        running = {sequence.sequence_id: sequence for sequence in self._running}
        assert len(running) <= self._max_rows, "too many sequences run"
        places = {State.WAITING: self._waiting, State.RUNNING: running, State.DRAINING: self._draining}
        for state, members in places.items():
            found = {i: sequence for i, sequence in self._sequences.items() if sequence.state is state}
            assert members == found, f"a sequence is {state.name} and not where those are"
        for sequence in self._sequences.values():
            self._check_sequence(sequence)

    def _check_sequence(self, sequence: LiveSequence) -> None:
        rows = [row for step in self._uncommitted for row in step.rows if row.sequence_id == sequence.sequence_id]
        assert len(rows) == sequence.uncommitted_rows, "uncommitted rows are miscounted"
        assert sum(row.draws for row in rows) == sequence.uncommitted_draws, "uncommitted draws are miscounted"
        assert any(row.drafts for row in rows) == sequence.has_open_drafts, "drafts are forgotten"
        assert sequence.known <= sequence.end, "more tokens are planned than may be drawn"
        assert sequence.is_done_drawing == (sequence.state is State.DRAINING), "a sequence goes on beyond its end"
        size = self.pages.page_size
        if sequence.state is State.RUNNING:
            assert sequence.committed <= sequence.computed, "more is committed than computed"
            assert sequence.has_open_drafts or sequence.remaining > 0, "a running sequence has nothing to compute"
            assert len(sequence.pages) == -(-sequence.computed // size), "a page table is too short or too long"
            assert sequence.sealed_pages == sequence.committed // size, "full pages are not sealed"
        if sequence.state is State.WAITING:
            assert not sequence.pages and not sequence.computed, "a waiting sequence has pages"

    # --- planning ------------------------------------------------------------------------------------------------------

    def _plan_running(self, builder: StepBuilder, drafts: Mapping[int, Sequence[int]]) -> None:
        """Rows of what runs, highest rank first, so that whoever is preempted has no row in this step yet."""
        running = self._running
        remaining = [sequence.remaining for sequence in running]
        decoding = remaining.count(1)
        spare_tokens = self._max_step_tokens - decoding
        # guesses take no more than half of what prompts could use
        has_prompts = bool(self._waiting) or decoding < len(remaining)
        draft_tokens = spare_tokens // 2 if has_prompts else spare_tokens
        done: list[LiveSequence] = []
        place = 0
        while place < len(running):  # preemption shortens it
            sequence, count = running[place], remaining[place]
            place += 1
            if sequence.must_wait_for_commit:
                continue
            guesses: tuple[int, ...] = ()
            if count > 1:
                count = self._secure(sequence, min(count, spare_tokens))
                spare_tokens -= count
            else:
                if drafts and sequence.sequence_id in drafts:
                    most = min(draft_tokens, spare_tokens)
                    guesses = self._affordable(sequence, drafts[sequence.sequence_id][:most])
                    draft_tokens -= len(guesses)
                    spare_tokens -= len(guesses)
                count = self._secure(sequence, 1 + len(guesses))
            if count:
                self._add_row(builder, sequence, count, guesses)
                if sequence.is_done_drawing:
                    done.append(sequence)
        for sequence in done:
            self._drain(sequence)

    def _affordable(self, sequence: LiveSequence, guesses: Sequence[int]) -> tuple[int, ...]:
        """As many as may be drawn, in pages that no other running sequence could miss in this step."""
        if sequence.uncommitted_draws:
            return ()  # they were made before the newest token was known
        size = self.pages.page_size
        spare = max(0, self.pages.available - len(self._running))
        own = max(len(sequence.pages) + len(sequence.spare_pages), sequence.computed // size + 1)
        room = (own + spare) * size - sequence.computed - 1
        most = min(sequence.end - sequence.known - 1, room)
        return tuple(guesses[: max(0, most)])

    def _plan_admissions(self, builder: StepBuilder) -> None:
        if not self._waiting or not self._has_room(builder):
            return
        if len(self._running) and not self._has_changed and self._number < self._next_look:
            return
        waits = 0
        for sequence in self._order.pick(filter(self._is_ready, self._waiting.values()), self._number):
            admission = self._admission.admit(sequence, self._running)
            if isinstance(admission, Admitted):
                self._start(builder, sequence, admission)
                if not self._has_room(builder):
                    return
            else:
                waits += 1
                if waits == _MAX_WAITS or self._order.is_aged(sequence, self._number):
                    break
        self._has_changed = False
        self._next_look = self._number + _RESCAN_STEPS

    def _has_room(self, builder: StepBuilder) -> bool:
        """For one more row."""
        return builder.tokens_left > 0 and max(len(self._running), builder.row_count) < self._max_rows

    def _is_ready(self, sequence: LiveSequence) -> bool:
        """Its content is known, and its sibling's prompt is there to be taken over."""
        if sequence.uncommitted_rows:
            return False
        sibling = None if sequence.spec.sibling_of is None else self._sequences.get(sequence.spec.sibling_of)
        return sibling is None or sibling.is_prompt_computed

    def _start(self, builder: StepBuilder, sequence: LiveSequence, admitted: Admitted) -> None:
        del self._waiting[sequence.sequence_id]
        sequence.admit(admitted.pages, self.pages.page_size, self._number)
        self._running.add(sequence)
        count = min(sequence.remaining, builder.tokens_left)
        is_covered = self._extend(sequence, count)
        assert is_covered, "a sequence was admitted without the pages of its first row"
        self._add_row(builder, sequence, count, ())
        if sequence.is_done_drawing:
            self._drain(sequence)

    def _add_row(self, builder: StepBuilder, sequence: LiveSequence, count: int, drafts: tuple[int, ...]) -> None:
        builder.add(sequence.next_row(count, drafts))
        self._shares.charge(sequence.spec.share, count)

    # --- pages ---------------------------------------------------------------------------------------------------------

    def _secure(self, sequence: LiveSequence, wanted: int) -> int:
        """Gets pages for its next tokens, at the cost of lower ones. How many tokens: 0 when it lost its own instead."""
        size = self.pages.page_size
        while sequence.computed + wanted > len(sequence.pages) * size:
            held = len(sequence.pages) + len(sequence.spare_pages)
            wanted = min(wanted, (held + self.pages.available) * size - sequence.computed) or wanted
            if not self._extend(sequence, wanted) and self._make_room() is sequence:
                return 0
        return wanted

    def _extend(self, sequence: LiveSequence, count: int) -> bool:
        """Extends its page table to its next `count` tokens."""
        missing = -(-(sequence.computed + count) // self.pages.page_size) - len(sequence.pages)
        kept = sequence.spare_pages[:missing]
        acquired = self.pages.acquire(sequence.sequence_id, missing - len(kept))
        if acquired is None:
            return False
        del sequence.spare_pages[:missing]
        sequence.pages += (*kept, *acquired)
        return True

    def _make_room(self) -> LiveSequence:
        """Takes the pages of one sequence: of one that has no further row, else of the lowest that runs."""
        for sequence in self._draining.values():
            if sequence.pages:
                self.pages.release(sequence.sequence_id)
                sequence.drop_pages()
                return sequence
        lowest = self._running.pop_lowest()
        self.pages.release(lowest.sequence_id)
        lowest.restart(self._number)
        self._waiting[lowest.sequence_id] = lowest
        self.preemption_count += 1
        self._has_changed = True
        return lowest

    def _seal(self, sequence: LiveSequence) -> None:
        full = sequence.committed // self.pages.page_size
        if sequence.pages and full > sequence.sealed_pages:
            self.pages.seal(sequence.sequence_id, sequence.spec.namespace, sequence.content, sequence.pages[:full])
            sequence.sealed_pages = full

    # --- states --------------------------------------------------------------------------------------------------------

    def _drain(self, sequence: LiveSequence) -> None:
        self._leave_state(sequence)
        sequence.state = State.DRAINING
        self._draining[sequence.sequence_id] = sequence

    def _leave_state(self, sequence: LiveSequence) -> None:
        if sequence.state is State.RUNNING:
            self._running.remove(sequence)
        else:
            del (self._waiting if sequence.state is State.WAITING else self._draining)[sequence.sequence_id]
