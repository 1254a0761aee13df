"""Temperature, top-k, top-p and min-p against transformers' own."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from omniflow_roles.engines.sampling.filters import weigh  # noqa: E402
from omniflow_roles.engines.sampling.parameters import RowParameters  # noqa: E402
from omniflow_roles.engines.sampling.plan import SamplingPlan  # noqa: E402
from tests.roles.engines.sampling.reference import reference_distribution  # noqa: E402

pytestmark = pytest.mark.assistant

PLANS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.7},
    "hot": {"temperature": 3.0},
    "top_k": {"temperature": 1.0, "top_k": 7},
    "top_k of one": {"temperature": 1.0, "top_k": 1},
    "top_k beyond the vocabulary": {"temperature": 1.0, "top_k": 1_000_000},
    "top_p": {"temperature": 1.0, "top_p": 0.8},
    "top_p nearly one": {"temperature": 1.0, "top_p": 0.999},
    "top_p of zero": {"temperature": 1.0, "top_p": 0.0},
    "min_p": {"temperature": 1.5, "min_p": 0.1},
    "min_p of one": {"temperature": 1.5, "min_p": 1.0},
    "top_k then top_p": {"temperature": 1.3, "top_k": 12, "top_p": 0.7},
    "top_p then min_p": {"temperature": 1.2, "top_p": 0.95, "min_p": 0.05},
    "all": {"temperature": 1.7, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
}


def random_logits(rows: int, size: int, *, seed: int = 0, spread: float = 3.0) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * spread


def plan_of(**options: Any) -> SamplingPlan:
    return SamplingPlan(max_tokens=1, **options)


def weights_of(logits: torch.Tensor, plan: SamplingPlan, **changes: Any) -> torch.Tensor:
    parameters = RowParameters.of([plan] * len(logits))
    return weigh(logits, dataclasses.replace(parameters, **changes))


@pytest.mark.parametrize("size", [64, 3000])
@pytest.mark.parametrize("name", PLANS)
def test_weights_have_the_support_and_the_proportions_of_transformers(name: str, size: int) -> None:
    plan = plan_of(**PLANS[name])
    logits = random_logits(300 if size == 64 else 40, size)
    expected = reference_distribution(logits, plan)
    weights = weights_of(logits, plan)
    assert (weights > 0).equal(expected > 0)
    assert torch.allclose(weights / weights.sum(-1, keepdim=True), expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", PLANS)
def test_weights_are_the_same_whether_selected_or_sorted(name: str) -> None:
    """Logits of 16 bits: many are equal, some at the edge of what is kept."""
    plan = plan_of(**PLANS[name])
    logits = random_logits(20, 5000).bfloat16().float()
    assert weights_of(logits, plan).equal(weights_of(logits, plan, largest_top_k=5000))


def test_weights_of_a_flat_distribution_reach_beyond_what_is_selected() -> None:
    plan = plan_of(temperature=2.0, top_p=0.9)
    logits = torch.cat([random_logits(3, 5000, spread=0.5), random_logits(3, 5000, spread=20.0)])
    weights = weights_of(logits, plan)
    assert (weights > 0).sum(-1).tolist()[:3] > [1024] * 3
    assert weights.equal(weights_of(logits, plan, largest_top_k=5000))
    assert (weights > 0).equal(reference_distribution(logits, plan) > 0)


def test_weights_of_equal_scores_stay_or_go_together() -> None:
    logits = torch.tensor([[2.0, 2.0, 1.0, 1.0, 1.0, 0.0]])
    kept = {
        "top_k": (weights_of(logits, plan_of(temperature=1.0, top_k=3)) > 0).tolist(),
        "top_p": (weights_of(logits, plan_of(temperature=1.0, top_p=0.7)) > 0).tolist(),
        "top_p of zero": (weights_of(logits, plan_of(temperature=1.0, top_p=0.0)) > 0).tolist(),
    }
    assert kept == {
        "top_k": [[True, True, True, True, True, False]],
        "top_p": [[True, True, True, True, True, False]],
        "top_p of zero": [[True, True, False, False, False, False]],
    }


@pytest.mark.parametrize("size", [300, 49_152])
def test_weights_of_a_row_depend_on_nothing_but_the_row(size: int) -> None:
    plans = [plan_of(**options) for options in PLANS.values()] + [plan_of()]
    logits = random_logits(len(plans), size)
    together = weigh(logits, RowParameters.of(plans))
    backwards = weigh(logits.flip(0), RowParameters.of(plans[::-1])).flip(0)
    alone = torch.cat([weigh(logits[row : row + 1], RowParameters.of([plan])) for row, plan in enumerate(plans)])
    rows = [row for row, plan in enumerate(plans) if not plan.is_greedy]
    assert together[rows].equal(alone[rows])
    assert backwards.equal(together)


def test_weights_of_a_small_temperature_are_finite_and_sharp() -> None:
    logits = random_logits(50, 1000) * 1000
    weights = weights_of(logits, plan_of(temperature=1e-5, top_k=5, top_p=0.9, min_p=0.1))
    assert weights.isfinite().all()
    assert weights.argmax(-1).equal(logits.argmax(-1))
    assert (weights > 0).sum(-1).eq(1).all()


@pytest.mark.parametrize("name", PLANS)
def test_weights_keep_what_is_masked_out_at_zero(name: str) -> None:
    logits = random_logits(40, 64)
    allowed = torch.rand(40, 64, generator=torch.Generator().manual_seed(5)) < 0.2
    allowed[:, 9] = True
    masked = logits.masked_fill(~allowed, -torch.inf)
    plan = plan_of(**PLANS[name])
    weights = weights_of(masked, plan)
    assert (weights > 0).equal(reference_distribution(masked, plan) > 0)
    assert not weights[~allowed].any()
