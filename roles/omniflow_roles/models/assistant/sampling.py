"""The caller's sampling parameters as a plan that a Hugging Face model can carry out. Imports no engine.

What is absent has the defaults of this interface: greedy, DEFAULT_MAX_TOKENS. What a model cannot do is refused with the
field named; a parameter that is taken and then ignored is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omniflow.interface import Sampling
from omniflow_core.errors import OmniFlowError, invalid_field

DEFAULT_MAX_TOKENS = 96
"""Half a minute of speech."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """How the tokens of one answer are drawn."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = 0.0
    """0 is greedy; the other parameters of the draw then have no effect."""
    top_p: float = 1.0
    top_k: int = 0
    """0 for all."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    """None draws differently each time."""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0


def plan_sampling(sampling: Sampling, *, vocabulary_size: int) -> SamplingPlan:
    """The plan for a call's parameters. Raises INVALID_FIELD for what a model of this kind cannot do."""
    _refuse_unsupported(sampling)
    outside = [token for token in sampling.logit_bias if not 0 <= token < vocabulary_size]
    if outside:
        raise _invalid("logit_bias", f"token {outside[0]} is not one of the model's {vocabulary_size}")
    given = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
    }
    return SamplingPlan(
        **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        logit_bias=sampling.logit_bias,
        seed=sampling.seed,
        stop=sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
    )


def _refuse_unsupported(sampling: Sampling) -> None:
    if (sampling.completions or 1) > 1:
        raise _invalid("completions", "this model gives one completion of a prompt")
    if sampling.top_logprobs:
        raise _invalid("top_logprobs", "this model does not report log probabilities")
    if sampling.json_schema is not None or sampling.regex is not None:
        name = "json_schema" if sampling.json_schema is not None else "regex"
        raise _invalid(name, "this model cannot follow a constraint")


def _invalid(name: str, description: str) -> OmniFlowError:
    return invalid_field(f"call.sampling.{name}", description)
