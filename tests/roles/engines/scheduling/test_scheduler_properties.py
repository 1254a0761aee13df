"""The scheduler over any order of additions, steps, commits and ends: what its rows compute is what each sequence means."""

from __future__ import annotations

import math
import os

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.scheduling.pages import LocalPages
from omniflow_roles.engines.scheduling.sequences import SequenceSpec
from tests.roles.engines.scheduling.simulation import Simulation

_IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"

# Few different pieces, so that prompts share prefixes; of tokens that are drawn too, so that answers do.
_PIECES = st.sampled_from([(0, 1, 2, 3), (0, 1), (3, 3, 3), (-7, -7), (2,)])
_PROMPTS = st.lists(_PIECES, min_size=1, max_size=6).map(lambda pieces: tuple(t for piece in pieces for t in piece))


class SchedulerMachine(RuleBasedStateMachine):
    simulation: Simulation

    @initialize(
        page_size=st.integers(1, 5),
        page_count=st.integers(4, 24),
        max_rows=st.integers(1, 6),
        max_step_tokens=st.integers(1, 20),
        growth_tokens=st.integers(1, 12),
        aging_steps=st.integers(1, 8),
        order=st.randoms(use_true_random=False),
    )
    def start(self, page_size, page_count, max_rows, max_step_tokens, growth_tokens, aging_steps, order):  # type: ignore[no-untyped-def]
        shuffled = list(range(page_count))
        order.shuffle(shuffled)
        self.growth_tokens = growth_tokens
        self.added = 0
        self.work = 0
        self.longest = 1
        self.simulation = Simulation(
            LocalPages(page_count, page_size, shuffled),
            max_rows=max_rows,
            max_step_tokens=max_step_tokens,
            growth_tokens=growth_tokens,
            aging_steps=aging_steps,
        )

    @rule(
        content=_PROMPTS,
        max_tokens=st.integers(1, 14),
        priority=st.integers(-1, 1),
        share=st.sampled_from("ab"),
        namespace=st.sampled_from("xxy"),
        siblings=st.integers(0, 2),
        is_stepwise=st.booleans(),
    )
    def add(
        self,
        content: tuple[int, ...],
        max_tokens: int,
        priority: int,
        share: str,
        namespace: str,
        siblings: int,
        is_stepwise: bool,
    ) -> None:
        pages = self.simulation.pages
        first: int | None = None
        for _ in range(1 + siblings):
            self.added += 1
            spec = SequenceSpec(
                sequence_id=self.added,
                content=content,
                max_tokens=max_tokens,
                priority=priority,
                share=share,
                namespace=namespace,
                sibling_of=first,
                is_stepwise=is_stepwise,
            )
            if len(content) + max_tokens - 1 > pages.page_count * pages.page_size:
                with pytest.raises(OmniFlowError) as refused:
                    self.simulation.scheduler.add(spec)
                assert refused.value.reason is Reason.POOL_EXHAUSTED
                return
            self.simulation.add(spec)
            self.work += len(content) + max_tokens
            self.longest = max(self.longest, max_tokens)
            first = first or self.added

    @precondition(lambda self: len(self.simulation.outstanding) < 2)
    @rule(data=st.data())
    def plan(self, data: st.DataObject) -> None:
        drafts = {}
        for sequence_id in self.simulation.live:
            if data.draw(st.integers(0, 3)) == 0:
                right, wrong = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 2))
                drafts[sequence_id] = self.simulation.drafts(sequence_id, right=right, wrong=wrong)
        was_idle = not self.simulation.outstanding
        step = self.simulation.plan(drafts)
        assert step is not None or not was_idle or not self.simulation.live, "live sequences, and none moves"

    @precondition(lambda self: self.simulation.outstanding)
    @rule()
    def commit(self) -> None:
        self.simulation.commit()

    @rule(rounds=st.integers(1, 12), lag=st.integers(0, 1), right=st.integers(0, 3), wrong=st.integers(0, 6))
    def go_on(self, rounds: int, lag: int, right: int, wrong: int) -> None:
        for _ in range(rounds):
            self.simulation.commit_to(lag)
            live = self.simulation.live
            drafts = {
                sequence_id: self.simulation.drafts(sequence_id, right=right, wrong=wrong) for sequence_id in live
            }
            self.simulation.round(lag, drafts)
            self.simulation.check_integrity()

    @precondition(lambda self: self.simulation.live)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        sequence_id = data.draw(st.sampled_from(sorted(self.simulation.live)))
        self.simulation.finish(sequence_id)
        self.simulation.finish(sequence_id)

    @invariant()
    def accounts_are_right(self) -> None:
        self.simulation.check_integrity()

    @invariant()
    def none_is_preempted_often(self) -> None:
        bound = 1 + max(0, math.ceil(math.log2(self.longest / self.growth_tokens)))
        assert self.simulation.most_preemptions() <= bound

    def teardown(self) -> None:
        if not hasattr(self, "simulation"):
            return
        # each step computes a token at least; a sequence computes its tokens again after each preemption
        self.simulation.run(1, most_steps=10 + 6 * self.work)


SchedulerMachine.TestCase.settings = settings(
    max_examples=1_500 if _IS_LONG else 60,
    stateful_step_count=40,
    deadline=None,
    derandomize=not _IS_LONG,
    database=None,
)
TestSchedulerMachine = pytest.mark.timeout(600)(SchedulerMachine.TestCase)  # a failing run is made smaller for long
