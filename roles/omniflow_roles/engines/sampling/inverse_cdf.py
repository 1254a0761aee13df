"""Draws from weights with one uniform number a row: the first token, in the order of the vocabulary, at which the sum of
the weights so far exceeds that part of the whole.

The sum is taken in two steps, over blocks and then within one. That reads the weights once, where a sum over the whole
vocabulary is a slow scan on every device, and it leaves so few numbers that they can be summed in float64.

    weights   .1 .0 .3 | .2 .0 .1 | .2 .1 .0      uniform .65
    blocks       .4         .3         .3         .65 lies in the second, .25 into it
    within                .2 .2 .3                at its third token: 5
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad

_BLOCK = 128


def invert(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Tokens [R] int64 from weights [R, V] float32, none negative, in any scale, and uniforms [R] in [0, 1).

    Never a token of weight 0, unless all of a row are. A row's token depends on nothing but the row.
    """
    blocks = _blocks(weights)
    sums = blocks.sum(-1).double()
    ends = sums.cumsum(-1)
    target = uniforms.double() * ends[:, -1]
    block = _first_beyond(ends, sums, target)[:, None]
    within = blocks.gather(1, block[:, :, None].expand(-1, -1, _BLOCK))[:, 0].double()
    target_within = target - (ends - sums).gather(1, block)[:, 0]
    return block[:, 0] * _BLOCK + _first_beyond(within.cumsum(-1), within, target_within)


def mass(weights: torch.Tensor) -> torch.Tensor:
    """The sum [R] float64 of weights [R, V]; a row's depends on nothing but the row, whatever the batch and the threads."""
    return _blocks(weights).sum(-1).double().cumsum(-1)[:, -1]


def _blocks(weights: torch.Tensor) -> torch.Tensor:
    """[R, blocks, _BLOCK], filled up with zeros."""
    rows, size = weights.shape
    missing = -size % _BLOCK
    filled = pad(weights, (0, missing)) if missing else weights
    return filled.view(rows, (size + missing) // _BLOCK, _BLOCK)


def _first_beyond(ends: torch.Tensor, weights: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """[R]: the first place of weight whose end is beyond the target; the last place of weight when rounding leaves none.

    That a place has weight is asked for by itself: sums that are computed in parallel may differ where nothing was added.
    """
    places = torch.arange(ends.shape[-1], device=ends.device)
    has_weight = weights > 0
    first = torch.where(has_weight & (ends > target[:, None]), places, ends.shape[-1]).amin(-1)
    last = torch.where(has_weight, places, 0).amax(-1)
    return torch.minimum(first, last)
