"""The distribution that is drawn from: temperature, then top-k, top-p and min-p, in the order of Hugging Face `generate`.

A filter is a least score or weight: what reaches it stays. Tokens of the same score therefore stay or go together, and which
ones stay does not depend on how a sort orders equals; logits of 16 bits often are equal.

The likeliest tokens in order cost 4 to 15 ms a row to sort on a CPU (49,152 and 151,936 tokens, one thread), the largest
1024 of them 0.2 to 1 ms. There they are selected first, and rows whose top-p lies further down are sorted after all.
Elsewhere (`largest_top_k` is not given) everything is sorted at once: how far a row needs it is known on the device alone,
and a captured CUDA graph cannot ask.
"""

from __future__ import annotations

import torch

from omniflow_roles.engines.sampling.inverse_cdf import mass
from omniflow_roles.engines.sampling.parameters import RowParameters

_SELECTED = 1024

Ranking = tuple[torch.Tensor, torch.Tensor]
"""The largest scores of each row in order, [R, width], and their tokens."""


def weigh(scores: torch.Tensor, parameters: RowParameters) -> torch.Tensor:
    """Weights [R, V] float32 to draw by, in no particular scale, 0 for what is filtered out; of scores [R, V] float32."""
    path = parameters.path
    # Differences first: a small temperature then drives what is less likely to zero and leaves no infinity.
    differences = scores - scores.amax(-1, keepdim=True)
    weights = torch.softmax(differences / parameters.temperature[:, None], dim=-1)
    if path.needs_ranking:
        ranking = _rank(scores, _width(scores, parameters))
        if path.needs_top_k:
            weights = _keep(weights, scores, _top_k_floor(ranking, parameters.top_k))
        if path.needs_top_p:
            weights = _keep(weights, scores, _top_p_floor(ranking, scores, weights, parameters.top_p))
    if path.needs_min_p:
        weights = _keep(weights, weights, parameters.min_p * weights.amax(-1))
    return weights


def _keep(weights: torch.Tensor, scores: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    # A product, because masked_fill takes eight times as long on a CPU.
    return weights * (scores >= floor[:, None])


def _width(scores: torch.Tensor, parameters: RowParameters) -> int:
    wanted = max(parameters.largest_top_k, _SELECTED if parameters.path.needs_top_p else 1)
    size: int = scores.shape[-1]
    return min(wanted, size)


def _rank(scores: torch.Tensor, width: int) -> Ranking:
    values, tokens = scores.topk(width) if width < scores.shape[-1] else scores.sort(descending=True)
    return values, tokens


def _top_k_floor(ranking: Ranking, top_k: torch.Tensor) -> torch.Tensor:
    """[R]: the score of each row's last token kept; -inf where all are."""
    values, _ = ranking
    last = (top_k - 1).clamp(0, values.shape[-1] - 1)
    return torch.where(top_k > 0, values.gather(1, last[:, None])[:, 0], -torch.inf)


def _top_p_floor(ranking: Ranking, scores: torch.Tensor, weights: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """[R]: the score of the least likely token of the smallest set that reaches top_p; -inf where all are kept."""
    wanted = top_p.double() * mass(weights)
    floor, reached = _nucleus(ranking, weights, wanted)
    if ranking[0].shape[-1] < scores.shape[-1]:  # on a CPU, which can look at values
        further = ((reached < wanted) & (top_p < 1)).nonzero()[:, 0]
        if len(further):
            sorted_scores = _rank(scores[further], scores.shape[-1])
            floor[further] = _nucleus(sorted_scores, weights[further], wanted[further])[0]
    return torch.where(top_p < 1, floor, -torch.inf)


def _nucleus(ranking: Ranking, weights: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The score of the last token kept, [R], and the mass of all ranked ones, [R] float64."""
    values, tokens = ranking
    ranked = weights.gather(1, tokens)
    ends = ranked.cumsum(-1, dtype=torch.float64)
    count = (ends - ranked < wanted[:, None]).sum(-1).clamp(min=1)
    return values.gather(1, count[:, None] - 1)[:, 0], ends[:, -1]
