"""Sampling parameters survive their message."""

from __future__ import annotations

import pytest

from omniflow.codec.graph import sampling_from_proto, sampling_to_proto
from omniflow.graph.v1 import sampling_pb2
from omniflow.interface import Sampling
from omniflow_core.errors import OmniFlowError, Reason

FULL = Sampling(
    temperature=0.5,
    top_p=0.25,
    top_k=0,
    min_p=0.0,
    frequency_penalty=-1.0,
    presence_penalty=1.0,
    repetition_penalty=1.5,
    logit_bias={7: -2.0},
    seed=2**64 - 1,
    max_tokens=1,
    stop=("\n", "END"),
    stop_token_ids=(0, 2),
    top_logprobs=0,
    completions=2,
    json_schema="{}",
)


@pytest.mark.parametrize("sampling", [Sampling(), FULL, Sampling(regex="a+", temperature=0)])
def test_sampling_survives(sampling: Sampling) -> None:
    message = sampling_pb2.SamplingParameters.FromString(sampling_to_proto(sampling).SerializeToString())
    assert sampling_from_proto(message) == sampling


def test_sampling_that_is_not_set_stays_absent() -> None:
    assert sampling_to_proto(Sampling()) == sampling_pb2.SamplingParameters()


@pytest.mark.parametrize(
    ("sampling", "field"),
    [
        (Sampling(top_k=-1), "sampling.top_k"),
        (Sampling(seed=2**64), "sampling.seed"),
        (Sampling(temperature="hot"), "sampling.temperature"),  # type: ignore[arg-type]
        (Sampling(stop_token_ids=(-1,)), "sampling"),
        (Sampling(json_schema="{}", regex="a"), "sampling.regex"),
    ],
)
def test_sampling_that_its_field_cannot_hold_names_the_field(sampling: Sampling, field: str) -> None:
    with pytest.raises(OmniFlowError) as caught:
        sampling_to_proto(sampling)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.violations[0].field == field
