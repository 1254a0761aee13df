"""Penalties and biases on the device, by slot."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor  # noqa: E402

from omniflow_roles.engines.sampling.counts import TokenCounts  # noqa: E402
from omniflow_roles.engines.sampling.plan import SamplingPlan  # noqa: E402

pytestmark = pytest.mark.assistant
VOCABULARY = 40

penalties = st.fixed_dictionaries(
    {
        "repetition_penalty": st.sampled_from([0.5, 1.0, 1.3, 2.0]),
        "frequency_penalty": st.sampled_from([-0.5, 0.0, 0.25]),
        "presence_penalty": st.sampled_from([-1.0, 0.0, 0.5]),
        "logit_bias": st.dictionaries(
            st.integers(0, VOCABULARY - 1), st.sampled_from([-100.0, -1.0, 0.5, 3.0]), max_size=4
        ),
    }
)
token_lists = st.lists(st.integers(0, VOCABULARY - 1), max_size=12)


def plan_of(**options: Any) -> SamplingPlan:
    return SamplingPlan(max_tokens=1, temperature=1.0, **options)


def random_logits(rows: int, *, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


def expected_logits(
    logits: torch.Tensor, plan: SamplingPlan, prompt: Sequence[int], drawn: Sequence[int]
) -> torch.Tensor:
    """One row [V], written from the definition, repetition by transformers."""
    ids = torch.tensor([[*prompt, *drawn]], dtype=torch.int64)
    row = RepetitionPenaltyLogitsProcessor(plan.repetition_penalty)(ids, logits[None])[0].clone()
    for token in set(drawn):
        row[token] -= plan.frequency_penalty * drawn.count(token) + plan.presence_penalty
    for token, bias in plan.logit_bias.items():
        row[token] += bias
    return row


def held(counts: TokenCounts, sequences: Mapping[int, tuple[SamplingPlan, list[int], list[int]]]) -> torch.Tensor:
    return torch.tensor([counts.hold(sequence, *parts) for sequence, parts in sequences.items()], dtype=torch.int64)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(penalties, token_lists, token_lists), min_size=1, max_size=5))
def test_apply_is_the_definition_for_every_row(given_rows: list[tuple[dict[str, Any], list[int], list[int]]]) -> None:
    sequences = {
        index: (plan_of(**options), prompt, drawn) for index, (options, prompt, drawn) in enumerate(given_rows)
    }
    counts = TokenCounts(len(sequences), VOCABULARY, "cpu")
    slots = held(counts, sequences)
    logits = random_logits(len(sequences))
    before = logits.clone()
    found = counts.apply(logits, slots)
    expected = torch.stack([expected_logits(logits[index], *parts) for index, parts in sequences.items()])
    assert torch.allclose(found, expected, atol=1e-5, rtol=1e-5)
    assert logits.equal(before)


def test_tokens_counted_on_the_device_are_the_same_as_counted_anew() -> None:
    """What a preempted sequence comes back with."""
    rng = random.Random(3)
    plans = [
        plan_of(repetition_penalty=1.2, frequency_penalty=0.3),
        plan_of(presence_penalty=0.4, logit_bias={5: 2.0}),
        plan_of(logit_bias={7: -1.0}),
        plan_of(),
    ]
    prompts = [[rng.randrange(VOCABULARY) for _ in range(9)] for _ in plans]
    stepped, anew = TokenCounts(4, VOCABULARY, "cpu"), TokenCounts(4, VOCABULARY, "cpu")
    slots = held(stepped, {row: (plan, prompts[row], []) for row, plan in enumerate(plans)})
    drawn: list[list[int]] = [[] for _ in plans]
    for _ in range(30):
        tokens = [rng.randrange(8) for _ in plans]
        stepped.add(slots, torch.tensor(tokens))
        for row, token in enumerate(tokens):
            drawn[row].append(token)
    logits = random_logits(4)
    resumed = held(anew, {row: (plan, prompts[row], drawn[row]) for row, plan in enumerate(plans)})
    assert stepped.apply(logits, slots).equal(anew.apply(logits, resumed))
    stepped.release(0)
    again = stepped.hold(0, plans[0], prompts[0], drawn[0])
    assert again != int(slots[0])
    slots[0] = again
    assert stepped.apply(logits, slots).equal(anew.apply(logits, resumed))


def test_rows_without_a_slot_stay_as_they_are() -> None:
    counts = TokenCounts(2, VOCABULARY, "cpu")
    assert counts.hold(1, plan_of(), [1, 2], [3]) == -1
    assert counts.slot_of(1) == -1
    slot = counts.hold(2, plan_of(repetition_penalty=2.0, logit_bias={0: 5.0}), [1, 2], [3])
    assert counts.slot_of(2) == slot >= 0
    logits = random_logits(3)
    slots = torch.tensor([-1, slot, -1])
    for _ in range(3):
        counts.add(slots, torch.tensor([1, 4, 1]))
    found = counts.apply(logits, slots)
    assert found[[0, 2]].equal(logits[[0, 2]])
    assert not found[1].equal(logits[1])
    # As on a device that cannot pick out the rows: the neutral slot itself changes nothing.
    assert counts._adjusted(logits, slots).equal(found)


def test_rows_of_other_penalties_do_not_count_in_a_slot_that_has_biases_alone() -> None:
    counts = TokenCounts(2, VOCABULARY, "cpu")
    slots = held(counts, {1: (plan_of(presence_penalty=1.0), [], []), 2: (plan_of(logit_bias={3: 1.0}), [5], [6])})
    counts.add(slots, torch.tensor([8, 8]))
    logits = random_logits(2)
    found = counts.apply(logits, slots)
    assert found[1].equal(expected_logits(logits[1], plan_of(logit_bias={3: 1.0}), [5], [6, 8]))
    assert found[0, 8] == logits[0, 8] - 1.0


def test_slot_that_comes_free_starts_anew_and_is_the_last_to_be_used() -> None:
    counts = TokenCounts(2, VOCABULARY, "cpu")
    plan = plan_of(repetition_penalty=1.5, frequency_penalty=1.0, logit_bias={1: 1.0})
    first = counts.hold(1, plan, [1, 2, 3], [4, 5])
    counts.release(1)
    counts.release(1)
    others = [counts.hold(sequence, plan, [], []) for sequence in (2, 3)]
    assert first not in others
    counts.release(2)
    counts.release(3)
    plan = plan_of(repetition_penalty=2.0, presence_penalty=0.5)
    slots = [counts.hold(sequence, plan, [9], [7]) for sequence in (4, 5)]
    assert first in slots
    logits = random_logits(2)
    expected = torch.stack([expected_logits(row, plan, [9], [7]) for row in logits])
    assert torch.allclose(counts.apply(logits, torch.tensor(slots)), expected)


def test_memory_is_taken_when_a_plan_needs_it_and_stays_where_it_is() -> None:
    counts = TokenCounts(4, VOCABULARY, "cpu")
    logits = random_logits(1)
    assert counts.apply(logits, torch.tensor([-1])).equal(logits)
    counts.add(torch.tensor([-1]), torch.tensor([3]))
    assert (counts._penalties, counts._biases) == (None, None)
    counts.hold(1, plan_of(logit_bias={1: 1.0}), [], [])
    assert counts._penalties is None
    counts.hold(2, plan_of(presence_penalty=1.0), [], [])
    assert counts._penalties is not None
    place = counts._penalties._drawn.data_ptr()
    counts.hold(3, plan_of(frequency_penalty=1.0), [], [])
    assert counts._penalties._drawn.data_ptr() == place


def test_ids_outside_of_the_vocabulary_count_for_nothing() -> None:
    """Content ids of images stand in prompts, and are negative."""
    counts, plan = TokenCounts(1, VOCABULARY, "cpu"), plan_of(repetition_penalty=2.0)
    logits = random_logits(1)
    slot = torch.tensor([counts.hold(1, plan, [-5, 3, VOCABULARY + 7], [])])
    assert torch.allclose(counts.apply(logits, slot)[0], expected_logits(logits[0], plan, [3], []))


def test_logits_of_16_bits_are_adjusted_in_32() -> None:
    counts, plan = TokenCounts(1, VOCABULARY, "cpu"), plan_of(frequency_penalty=0.001)
    logits = random_logits(1).bfloat16()
    found = counts.apply(logits, torch.tensor([counts.hold(1, plan, [], [4])]))
    assert found.dtype == torch.float32
    assert found[0, 4] == logits[0, 4].float() - 0.001


def test_masked_logits_stay_masked() -> None:
    counts = TokenCounts(1, VOCABULARY, "cpu")
    plan = plan_of(repetition_penalty=0.5, frequency_penalty=-1.0, presence_penalty=-1.0, logit_bias={3: 100.0})
    logits = torch.full((1, VOCABULARY), -torch.inf)
    found = counts.apply(logits, torch.tensor([counts.hold(1, plan, [3], [3, 4])]))
    assert found.eq(-torch.inf).all()


def test_state_taken_in_inference_mode_can_be_changed_outside_of_it() -> None:
    counts = TokenCounts(1, VOCABULARY, "cpu")
    with torch.inference_mode():
        slot = counts.hold(1, plan_of(presence_penalty=1.0, logit_bias={1: 1.0}), [], [])
    counts.add(torch.tensor([slot]), torch.tensor([2]))
    counts.hold(1, plan_of(presence_penalty=1.0, logit_bias={2: 1.0}), [], [3])
    logits = random_logits(1)
    expected = expected_logits(logits[0], plan_of(presence_penalty=1.0, logit_bias={2: 1.0}), [], [3])
    assert torch.allclose(counts.apply(logits, torch.tensor([slot]))[0], expected)
