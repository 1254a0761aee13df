"""The caller's sampling parameters as a plan that an engine can carry out. Pure.

What is absent has the defaults that the engine's owner gives. What cannot be followed is refused with the field named: a
parameter that is taken and then ignored is worse than none. Meanings and ranges are those of the contract,
proto/omniflow/graph/v1/sampling.proto; they are looked at here too, because not every caller comes by way of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omniflow.interface import Sampling
from omniflow_core.errors import OmniFlowError, invalid_field

LEAST_TEMPERATURE = 1e-5
"""Below it a draw is greedy: logits that differ by 0.001 would be told apart as 1 and 1e-43."""

MOST_BIASED_TOKENS = 1024
"""As in the contract. Tables on the device have this width."""

_RANGES: Mapping[str, tuple[float, float]] = {
    "max_tokens": (1, 1_048_576),
    "temperature": (0, 100),
    "top_p": (0, 1),
    "top_k": (0, 2**32 - 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 100),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "seed": (0, 2**64 - 1),
    "top_logprobs": (0, 20),
    "completions": (1, 64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """How the tokens of one request are drawn."""

    max_tokens: int
    temperature: float = 0.0
    """0 is greedy; top_p, top_k and min_p then have no effect."""
    top_p: float = 1.0
    """Tokens as likely as the least likely one of the smallest set that reaches this are kept too."""
    top_k: int = 0
    """0 for all. Tokens as likely as the last one kept are kept too."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Counts the prompt; frequency and presence count what was drawn alone."""
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    """None draws differently each time."""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    top_logprobs: int | None = None
    """None reports no log-probabilities, 0 those of drawn tokens alone."""
    completions: int = 1
    json_schema: str | None = None
    regex: str | None = None
    """At most one of the two constraints is given."""

    @property
    def is_greedy(self) -> bool:
        return self.temperature < LEAST_TEMPERATURE

    @property
    def needs_counts(self) -> bool:
        """A penalty is asked for, so occurrences of tokens have to be counted."""
        return self.repetition_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0

    @property
    def is_adjusted(self) -> bool:
        """The logits are changed before the draw, by penalties or biases: the sequence needs a slot of `TokenCounts`."""
        return self.needs_counts or bool(self.logit_bias)

    @property
    def is_constrained(self) -> bool:
        return self.json_schema is not None or self.regex is not None


def plan_sampling(sampling: Sampling, *, vocabulary_size: int, defaults: SamplingPlan) -> SamplingPlan:
    """The plan for a call's parameters; what they leave out is as in `defaults`.

    Raises INVALID_FIELD, with the field's path, for values out of range, tokens that the vocabulary does not have, and two
    constraints at once.
    """
    given = _given(sampling)
    for name, (least, most) in _RANGES.items():
        if name in given and not least <= given[name] <= most:  # NaN is in no range
            raise _invalid(name, f"{given[name]} is not within {least:g} and {most:g}")
    if len(sampling.logit_bias) > MOST_BIASED_TOKENS:
        raise _invalid("logit_bias", f"{len(sampling.logit_bias)} tokens; at most {MOST_BIASED_TOKENS} can have one")
    _check_tokens("logit_bias", sampling.logit_bias, vocabulary_size)
    _check_tokens("stop_token_ids", sampling.stop_token_ids, vocabulary_size)
    for token, bias in sampling.logit_bias.items():
        if not math.isfinite(bias):
            raise _invalid("logit_bias", f"the bias of token {token} is {bias}, which is no finite number")
    if sampling.json_schema is not None and sampling.regex is not None:
        raise _invalid("regex", "there is a json_schema too; an answer follows one constraint")
    if "json_schema" in given or "regex" in given:  # of another kind than the default's: it takes that one's place
        defaults = dataclasses.replace(defaults, json_schema=None, regex=None)
    return dataclasses.replace(defaults, **given)


def _given(sampling: Sampling) -> dict[str, Any]:
    """What the caller has set. Empty texts, tokens and biases are how the contract says that there are none."""
    values = {entry.name: getattr(sampling, entry.name) for entry in dataclasses.fields(sampling)}
    return {name: value for name, value in values.items() if value is not None and value not in ((), {})}


def _check_tokens(name: str, tokens: Iterable[int], vocabulary_size: int) -> None:
    for token in tokens:
        if not 0 <= token < vocabulary_size:
            raise _invalid(name, f"token {token} is not one of the model's {vocabulary_size}")


def _invalid(name: str, description: str) -> OmniFlowError:
    return invalid_field(f"call.sampling.{name}", description)
