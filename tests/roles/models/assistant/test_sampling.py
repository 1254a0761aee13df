"""The caller's sampling parameters as a plan."""

from __future__ import annotations

import pytest

from omniflow.interface import Sampling
from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.models.assistant.sampling import DEFAULT_MAX_TOKENS, SamplingPlan, plan_sampling


def test_plan_absent_parameters_are_greedy_with_a_default_length() -> None:
    plan = plan_sampling(Sampling(), vocabulary_size=10)
    assert plan == SamplingPlan()
    assert plan.is_greedy
    assert plan.max_tokens == DEFAULT_MAX_TOKENS == 96


def test_plan_carries_every_parameter() -> None:
    sampling = Sampling(
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        repetition_penalty=1.1,
        frequency_penalty=0.2,
        presence_penalty=0.1,
        logit_bias={3: -1.0},
        seed=7,
        max_tokens=5,
        stop=("x",),
        stop_token_ids=(4,),
    )
    plan = plan_sampling(sampling, vocabulary_size=10)
    assert not plan.is_greedy
    assert {name: getattr(plan, name) for name in SamplingPlan.__slots__} == {
        name: getattr(sampling, name) for name in SamplingPlan.__slots__
    }


@pytest.mark.parametrize(
    ("sampling", "field"),
    [
        (Sampling(completions=2), "completions"),
        (Sampling(top_logprobs=5), "top_logprobs"),
        (Sampling(json_schema="{}"), "json_schema"),
        (Sampling(regex="a*"), "regex"),
        (Sampling(logit_bias={10: 1.0}), "logit_bias"),
    ],
)
def test_plan_refuses_what_the_model_cannot_do(sampling: Sampling, field: str) -> None:
    with pytest.raises(OmniFlowError) as caught:
        plan_sampling(sampling, vocabulary_size=10)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in caught.value.violations] == [f"call.sampling.{field}"]


def test_plan_one_completion_is_not_refused() -> None:
    assert plan_sampling(Sampling(completions=1), vocabulary_size=10) == SamplingPlan()
