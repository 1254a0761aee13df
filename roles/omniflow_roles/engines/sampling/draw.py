"""One token a row from a step's logits.

    logits ── masks ── argmax ───────────────────────────────▶ greedy rows
                   └── temperature, top-k, top-p, min-p ── inverse CDF by one uniform number ──▶ the others

Penalties and biases come before (`counts`). Nothing here waits for a device or makes shapes from values on one, so a
captured CUDA graph can hold it; on a CPU the filters look at values to save work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from omniflow_roles.engines.sampling.filters import weigh
from omniflow_roles.engines.sampling.inverse_cdf import invert
from omniflow_roles.engines.sampling.parameters import DrawPath, RowParameters

__all__ = ["DrawPath", "Drawn", "RowParameters", "draw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What R rows have drawn. Log-probabilities are natural logarithms; None where none were asked for."""

    tokens: torch.Tensor
    """[R] int64."""
    logprobs: torch.Tensor | None = None
    """[R] float32, of the drawn tokens."""
    top_ids: torch.Tensor | None = None
    """[R, k] int64, the likeliest tokens, likeliest first."""
    top_logprobs: torch.Tensor | None = None
    """[R, k] float32, theirs."""


def draw(
    logits: torch.Tensor,
    parameters: RowParameters,
    uniforms: torch.Tensor,
    *,
    masks: torch.Tensor | None = None,
    top_logprobs: int | None = None,
    raw_logits: torch.Tensor | None = None,
) -> Drawn:
    """Draws from logits [R, V] of any float type; all arithmetic is float32, sums of probabilities float64.

    uniforms [R] in [0, 1) decide, one a row; a row's token depends on nothing but the row. Greedy rows take the largest
    logit, the first of equals. masks [R, V] bool is True where a token is allowed; each row must allow one.

    With `top_logprobs` k (0 for the drawn tokens' alone) the log-probabilities are those of the model itself: before masks,
    temperature and filters, and before penalties and biases too, when `raw_logits` [R, V] are the logits without them. So
    they can be compared between requests, and they are what OpenAI's API and vLLM report by default.
    """
    scores = logits.float()
    if masks is not None:
        scores = scores.masked_fill(~masks, -torch.inf)
    tokens = scores.argmax(-1)
    if not parameters.path.is_all_greedy:
        tokens = torch.where(parameters.is_greedy, tokens, invert(weigh(scores, parameters), uniforms))
    if top_logprobs is None:
        return Drawn(tokens=tokens)
    logprobs = torch.log_softmax((logits if raw_logits is None else raw_logits).float(), dim=-1)
    top = logprobs.topk(min(top_logprobs, logprobs.shape[-1]))
    return Drawn(
        tokens=tokens,
        logprobs=logprobs.gather(1, tokens[:, None])[:, 0],
        top_ids=top.indices,
        top_logprobs=top.values,
    )
