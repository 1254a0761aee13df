"""The caller's sampling parameters as a plan."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from omniflow.interface import Sampling
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.sampling.plan import SamplingPlan, plan_sampling

DEFAULTS = SamplingPlan(max_tokens=96)
FULL: dict[str, Any] = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.2,
    "presence_penalty": 0.1,
    "logit_bias": {3: -1.0},
    "seed": 7,
    "max_tokens": 5,
    "stop": ("x",),
    "stop_token_ids": (4,),
    "top_logprobs": 2,
    "completions": 3,
    "json_schema": "{}",
}


def plan(defaults: SamplingPlan = DEFAULTS, **given: Any) -> SamplingPlan:
    return plan_sampling(Sampling(**given), vocabulary_size=10, defaults=defaults)


def test_plan_has_every_parameter_of_the_call() -> None:
    assert {entry.name for entry in dataclasses.fields(SamplingPlan)} == {
        entry.name for entry in dataclasses.fields(Sampling)
    }


def test_plan_of_nothing_is_the_defaults() -> None:
    assert plan() == DEFAULTS
    warm = SamplingPlan(**FULL)
    assert plan(warm) == warm


def test_plan_carries_what_is_given_over_the_defaults() -> None:
    found = plan(SamplingPlan(max_tokens=1, temperature=0.3, stop=("y",)), **FULL)
    assert dataclasses.asdict(found) == FULL | {"regex": None}


@pytest.mark.parametrize(
    ("field", "value", "default"),
    [("temperature", 0.0, 1.0), ("top_k", 0, 50), ("top_p", 1.0, 0.9), ("seed", 0, 5), ("top_logprobs", 0, 3)],
)
def test_plan_a_given_zero_is_no_absent_value(field: str, value: float, default: float) -> None:
    defaults = SamplingPlan(max_tokens=1, **{field: default})  # type: ignore[arg-type]
    assert getattr(plan(defaults, **{field: value}), field) == value


def test_plan_constraint_takes_the_place_of_the_default_one() -> None:
    found = plan(SamplingPlan(max_tokens=1, json_schema="{}"), regex="a+")
    assert (found.json_schema, found.regex) == (None, "a+")
    found = plan(SamplingPlan(max_tokens=1, regex="a+"), json_schema="{}")
    assert (found.json_schema, found.regex) == ("{}", None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", -0.1),
        ("top_p", 1.5),
        ("top_p", math.nan),
        ("top_k", -1),
        ("min_p", -0.5),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -1.0),
        ("frequency_penalty", 3.0),
        ("presence_penalty", math.nan),
        ("seed", -1),
        ("seed", 2**64),
        ("top_logprobs", 21),
        ("completions", 0),
        ("completions", 65),
        ("logit_bias", {10: 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: -math.inf}),
        ("stop_token_ids", (3, 10)),
    ],
)
def test_plan_refuses_what_cannot_be_followed(field: str, value: Any) -> None:
    with pytest.raises(OmniFlowError) as caught:
        plan(**{field: value})
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in caught.value.violations] == [f"call.sampling.{field}"]


def test_plan_refuses_two_constraints() -> None:
    with pytest.raises(OmniFlowError) as caught:
        plan(json_schema="{}", regex="a")
    assert [violation.field for violation in caught.value.violations] == ["call.sampling.regex"]


def test_plan_refuses_more_biases_than_the_contract_allows() -> None:
    biases = dict.fromkeys(range(1025), 1.0)
    with pytest.raises(OmniFlowError) as caught:
        plan_sampling(Sampling(logit_bias=biases), vocabulary_size=5000, defaults=DEFAULTS)
    assert [violation.field for violation in caught.value.violations] == ["call.sampling.logit_bias"]
    del biases[0]
    assert plan_sampling(Sampling(logit_bias=biases), vocabulary_size=5000, defaults=DEFAULTS).logit_bias == biases


def test_plan_says_what_a_draw_needs() -> None:
    assert DEFAULTS.is_greedy
    assert SamplingPlan(max_tokens=1, temperature=1e-6).is_greedy
    assert not SamplingPlan(max_tokens=1, temperature=0.01).is_greedy
    assert not (DEFAULTS.needs_counts or DEFAULTS.is_adjusted or DEFAULTS.is_constrained)
    for name, value in [("repetition_penalty", 1.1), ("frequency_penalty", -0.1), ("presence_penalty", 0.1)]:
        penalised = plan(**{name: value})
        assert penalised.needs_counts
        assert penalised.is_adjusted
    biased = plan(logit_bias={1: 1.0})
    assert biased.is_adjusted
    assert not biased.needs_counts
    assert plan(regex="").is_constrained
    assert plan(json_schema="{}").is_constrained
