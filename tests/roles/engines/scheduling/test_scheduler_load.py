"""Many sequences over small pools: all end, nothing leaks."""

from __future__ import annotations

import random

import pytest

from omniflow_roles.engines.scheduling.pages import LocalPages
from omniflow_roles.engines.scheduling.sequences import SequenceSpec
from tests.roles.engines.scheduling.simulation import VOCABULARY, Simulation


@pytest.mark.parametrize(("growth_tokens", "lag"), [(16, 1), (256, 0)])
def test_sequences_that_share_most_of_a_small_pool_all_end(growth_tokens: int, lag: int) -> None:
    sim = Simulation(LocalPages(96, 16), max_rows=32, max_step_tokens=512, growth_tokens=growth_tokens)
    prefix = tuple(random.Random(3).randrange(1000) for _ in range(59 * 16))
    sim.add(SequenceSpec(sequence_id=0, content=prefix, max_tokens=1))
    sim.run(0, most_steps=3)
    for sequence_id in range(1, 33):
        sim.add(SequenceSpec(sequence_id=sequence_id, content=(*prefix, sequence_id), max_tokens=200))
    most_preemptions = 0
    while sim.live:
        sim.round(lag)
        most_preemptions = max(most_preemptions, sim.most_preemptions())
    assert most_preemptions <= 4
    assert [len(sim.drawn[sequence_id]) for sequence_id in range(1, 33)] == [200] * 32
    # 37 pages beside the prefix hold two sequences to their ends, so 16 turns of 200 steps and what preemption costs
    assert sim.steps < 16 * 200 + 500
    sim.check_integrity()
    assert sim.pages.available == 96


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_sequences_with_cancels_leak_nothing(seed: int) -> None:
    rng = random.Random(seed)
    order = list(range(60))
    rng.shuffle(order)
    sim = Simulation(LocalPages(60, 8, order), max_rows=16, max_step_tokens=64, growth_tokens=16, aging_steps=32)
    prompts = [tuple(rng.randrange(VOCABULARY) for _ in range(40)) for _ in range(4)]
    added = 0
    while added < 500 or sim.live:
        if added < 500 and len(sim.live) < 60:
            for _ in range(rng.randint(0, 3)):
                added += 1
                head = rng.choice(prompts)[: rng.randint(1, 40)]
                tail = tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(0, 90)))
                sim.add(
                    SequenceSpec(
                        sequence_id=added,
                        content=head + tail,
                        max_tokens=rng.randint(1, 40),
                        priority=rng.randint(0, 1),
                        share=rng.choice("abc"),
                        namespace=rng.choice(["", "other"]),
                        sibling_of=rng.choice(sorted(sim.live)) if sim.live and rng.random() < 0.2 else None,
                    )
                )
        if sim.live and rng.random() < 0.1:
            sim.finish(rng.choice(sorted(sim.live)))
        sim.round(rng.randint(0, 1))
        if sim.steps % 25 == 0:
            sim.check_integrity()
        assert sim.steps < 5_000
    sim.commit_to(0)
    sim.check_integrity()
    assert sim.pages.available == sim.pages.page_count
    assert (sim.scheduler.running_count, sim.scheduler.waiting_count) == (0, 0)
    assert not sim.scheduler.has_work
