"""Drawing tokens: the right distribution, the same token whatever stands beside it, log-probabilities of the model."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from omniflow_roles.engines.sampling.counts import TokenCounts  # noqa: E402
from omniflow_roles.engines.sampling.draw import draw  # noqa: E402
from omniflow_roles.engines.sampling.parameters import EVERY_PATH, DrawPath, RowParameters  # noqa: E402
from omniflow_roles.engines.sampling.plan import SamplingPlan  # noqa: E402
from omniflow_roles.engines.sampling.seeds import draw_key, uniform  # noqa: E402
from tests.roles.engines.sampling.chi_square import fits  # noqa: E402
from tests.roles.engines.sampling.reference import reference_distribution  # noqa: E402

pytestmark = pytest.mark.assistant

DRAWS = 50_000
VOCABULARY = 64
SAMPLED: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.8},
    "hot": {"temperature": 4.0},
    "top_k": {"temperature": 1.0, "top_k": 9},
    "top_p": {"temperature": 1.0, "top_p": 0.85},
    "min_p": {"temperature": 1.5, "min_p": 0.08},
    "repetition": {"temperature": 1.0, "repetition_penalty": 1.4},
    "all": {"temperature": 1.6, "top_k": 24, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 0.8},
}


def plan_of(**options: Any) -> SamplingPlan:
    return SamplingPlan(max_tokens=1, **options)


def random_logits(rows: int, size: int, *, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * 2


def uniforms_of(rows: int, *, seed: int = 0) -> torch.Tensor:
    key = draw_key(seed, 0)
    return torch.tensor([uniform(key, position) for position in range(rows)], dtype=torch.float64)


def mixed_plans(rows: int) -> list[SamplingPlan]:
    kinds = [plan_of(), *(plan_of(**options) for options in SAMPLED.values())]
    return [kinds[row % len(kinds)] for row in range(rows)]


@pytest.mark.parametrize("name", SAMPLED)
def test_draws_are_distributed_as_those_of_transformers(name: str) -> None:
    plan, context = plan_of(**SAMPLED[name]), [3, 5, 3, 60]
    logits = random_logits(1, VOCABULARY, seed=7)
    expected = reference_distribution(logits, plan, torch.tensor([context]))[0]
    counts = TokenCounts(1, VOCABULARY, "cpu")
    adjusted = counts.apply(logits, torch.tensor([counts.hold(1, plan, context[:2], context[2:])]))
    parameters = RowParameters.of([plan] * DRAWS)
    drawn = draw(adjusted.expand(DRAWS, VOCABULARY), parameters, uniforms_of(DRAWS)).tokens
    found = drawn.bincount(minlength=VOCABULARY)
    assert not found[expected == 0].any()
    assert found[expected > 1e-3].all()
    assert fits(found.tolist(), expected.tolist())


def test_greedy_rows_take_the_first_of_the_largest_in_any_batch() -> None:
    logits = random_logits(16, 1000).bfloat16()
    logits[:, [700, 20, 900]] = 50.0
    greedy = plan_of(top_k=3, top_p=0.1, min_p=0.5)
    for plans in ([greedy] * 16, [greedy if row % 2 else plan_of(temperature=1.0) for row in range(16)]):
        tokens = draw(logits, RowParameters.of(plans), uniforms_of(16)).tokens
        assert all(token == 20 for token, plan in zip(tokens.tolist(), plans, strict=True) if plan.is_greedy)


@pytest.mark.parametrize("size", [300, 49_152])
def test_token_of_a_row_depends_on_nothing_but_the_row(size: int) -> None:
    plans = mixed_plans(16)
    logits, uniforms = random_logits(16, size), uniforms_of(16)
    together = draw(logits, RowParameters.of(plans), uniforms).tokens
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    moved = draw(logits[order], RowParameters.of([plans[row] for row in order]), uniforms[order]).tokens
    alone = [
        int(draw(logits[row : row + 1], RowParameters.of([plan]), uniforms[row : row + 1]).tokens)
        for row, plan in enumerate(plans)
    ]
    assert together.tolist() == alone
    assert moved.equal(together[order])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_shortcuts_give_the_tokens_of_the_plain_path(dtype: torch.dtype) -> None:
    """Everything sorted, every filter computed for every row: the way of a captured graph."""
    rows = 320
    plans = [
        dataclasses.replace(plan, temperature=plan.temperature * (1 + row % 5))
        for row, plan in enumerate(mixed_plans(rows))
    ]
    logits, uniforms = random_logits(rows, 4001).to(dtype), uniforms_of(rows)
    short = RowParameters.of(plans)
    plain = RowParameters(packed=short.packed, path=EVERY_PATH)
    assert draw(logits, short, uniforms).tokens.equal(draw(logits, plain, uniforms).tokens)


def test_path_names_what_the_rows_need() -> None:
    assert RowParameters.of([plan_of(), plan_of(top_k=5, top_p=0.5)]).path == DrawPath(
        is_all_greedy=True, needs_top_k=False, needs_top_p=False, needs_min_p=False
    )
    for name, value in [("top_k", 5), ("top_p", 0.5), ("min_p", 0.1)]:
        path = RowParameters.of([plan_of(), plan_of(temperature=1.0, **{name: value})]).path
        assert not path.is_all_greedy
        assert [path.needs_top_k, path.needs_top_p, path.needs_min_p] == [
            name == filter_name for filter_name in ("top_k", "top_p", "min_p")
        ]
        assert path.needs_ranking is (name != "min_p")


def test_parameters_are_filled_up_with_greedy_rows() -> None:
    parameters = RowParameters.of([plan_of(temperature=1.0, top_k=2)], row_count=3)
    assert parameters.is_greedy.tolist() == [False, True, True]
    assert parameters.top_k.tolist() == [2, 0, 0]
    assert RowParameters.of([]).packed.shape == (4, 0)


def looks_at_values(logits: torch.Tensor, parameters: RowParameters, **options: Any) -> bool:
    """Whether a draw reads a value of a tensor or makes a shape of one: no captured graph can hold that."""
    with torch.autograd.profiler.profile(use_cpu=True) as profile:
        draw(logits, parameters, uniforms_of(len(logits)), **options)
    names = {event.name for event in profile.function_events}
    assert "aten::argmax" in names
    return not names.isdisjoint(
        {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::is_nonzero"}
    )


def test_draw_without_shortcuts_looks_at_no_value() -> None:
    selecting = RowParameters.of(mixed_plans(8))
    logits, masks = random_logits(8, 4000), torch.ones(8, 4000, dtype=torch.bool)
    for path in (EVERY_PATH, selecting.path, DrawPath(is_all_greedy=True)):
        parameters = RowParameters(packed=selecting.packed, path=path)
        assert not looks_at_values(logits, parameters, masks=masks, top_logprobs=4)
    assert looks_at_values(logits, selecting)


def test_masks_hold_for_greedy_and_sampled_rows() -> None:
    plans = mixed_plans(400)
    masks = torch.rand(400, 200, generator=torch.Generator().manual_seed(2)) < 0.02
    masks[:, 150] = True
    logits = random_logits(400, 200)
    logits[:, 150] = -30.0
    tokens = draw(logits, RowParameters.of(plans), uniforms_of(400), masks=masks).tokens
    assert masks.gather(1, tokens[:, None]).all()
    assert len(set(tokens.tolist())) > 50


def test_logprobs_are_those_of_the_model_before_anything_is_done_to_it() -> None:
    logits = random_logits(8, 100)
    masks = torch.zeros(8, 100, dtype=torch.bool)
    masks[:, 40:50] = True
    parameters = RowParameters.of([plan_of(temperature=0.3, top_k=2)] * 8)
    drawn = draw(logits + 1.0, parameters, uniforms_of(8), masks=masks, top_logprobs=3, raw_logits=logits)
    expected = torch.log_softmax(logits, dim=-1)
    assert drawn.logprobs is not None
    assert drawn.top_ids is not None
    assert drawn.top_logprobs is not None
    assert drawn.logprobs.dtype == torch.float32
    assert drawn.logprobs.equal(expected.gather(1, drawn.tokens[:, None])[:, 0])
    assert drawn.top_ids.equal(expected.topk(3).indices)
    assert drawn.top_logprobs.equal(expected.topk(3).values)


def test_logprobs_are_computed_as_far_as_they_are_asked_for() -> None:
    logits, parameters = random_logits(2, 10), RowParameters.of([plan_of()] * 2)
    none = draw(logits, parameters, uniforms_of(2))
    assert (none.logprobs, none.top_ids, none.top_logprobs) == (None, None, None)
    own = draw(logits, parameters, uniforms_of(2), top_logprobs=0)
    assert own.logprobs is not None
    assert own.top_ids is not None
    assert own.top_ids.shape == (2, 0)
    assert own.logprobs.equal(torch.log_softmax(logits, -1).amax(-1))
    assert draw(logits, parameters, uniforms_of(2), top_logprobs=20).top_ids.shape == (2, 10)  # type: ignore[union-attr]


def test_draw_of_no_rows_is_no_tokens() -> None:
    drawn = draw(torch.zeros(0, 50), RowParameters.of([]), torch.zeros(0, dtype=torch.float64), top_logprobs=2)
    assert drawn.tokens.shape == (0,)
