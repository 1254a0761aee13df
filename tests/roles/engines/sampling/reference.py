"""The distribution that a plan asks for, by the classes of transformers."""

from __future__ import annotations

import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from omniflow_roles.engines.sampling.plan import SamplingPlan


def reference_distribution(
    logits: torch.Tensor, plan: SamplingPlan, context: torch.Tensor | None = None
) -> torch.Tensor:
    """Probabilities [R, V] of logits [R, V] after `context` [R, tokens], in the order that `generate` applies things in."""
    steps = LogitsProcessorList()
    if plan.repetition_penalty != 1.0:
        steps.append(RepetitionPenaltyLogitsProcessor(plan.repetition_penalty))
    steps.append(TemperatureLogitsWarper(plan.temperature))
    if plan.top_k:
        steps.append(TopKLogitsWarper(plan.top_k))
    if plan.top_p < 1.0:
        steps.append(TopPLogitsWarper(plan.top_p))
    if plan.min_p:
        steps.append(MinPLogitsWarper(plan.min_p))
    ids = torch.zeros(len(logits), 0, dtype=torch.int64) if context is None else context
    return torch.softmax(steps(ids, logits.float()), dim=-1)
