"""The logit changes that transformers has no processor for: penalties that count the answer alone, and biases.

    logits[t] -= frequency * (times t was drawn) + presence * (t was drawn);     logits[t] += bias[t]

transformers' own `repetition_penalty` counts the prompt too, as its field in the contract says.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from transformers import LogitsProcessor


class OutputPenalties(LogitsProcessor):  # type: ignore[misc]
    """Applies them to [batch, vocabulary] logits of one sequence."""

    def __init__(self, *, prompt_size: int, frequency: float, presence: float, bias: Mapping[int, float]) -> None:
        self._prompt_size = prompt_size
        self._frequency = frequency
        self._presence = presence
        self._bias = dict(bias)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        drawn = torch.bincount(input_ids[0, self._prompt_size :], minlength=scores.shape[1]).to(scores.dtype)
        scores = scores - self._frequency * drawn - self._presence * (drawn > 0)
        for token, bias in self._bias.items():
            scores[:, token] += bias
        return scores
