"""The plans of a step's rows as one tensor on the device, and what of it the host has to know.

One tensor, because a step then copies once; what the host knows decides which kernels are launched, so it is also what a
captured CUDA graph is chosen by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from omniflow_roles.engines.sampling.plan import SamplingPlan

_TEMPERATURE, _TOP_P, _TOP_K, _MIN_P = range(4)
_GREEDY = (0.0, 1.0, 0.0, 0.0)
_LARGEST_EXACT = 2**24
"""Integers up to it are exact as float32; no vocabulary is that large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPath:
    """Which parts of a draw some row needs. A path with more than that gives the same tokens."""

    is_all_greedy: bool = False
    needs_top_k: bool = True
    needs_top_p: bool = True
    needs_min_p: bool = True

    @property
    def needs_ranking(self) -> bool:
        """The likeliest tokens have to be known in order."""
        return self.needs_top_k or self.needs_top_p


EVERY_PATH = DrawPath()
"""Right for any rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowParameters:
    """What R rows are drawn by. Greedy rows have temperature 0 and no filters."""

    packed: torch.Tensor
    """[4, R] float32: temperature, top_p, top_k, min_p. A graph keeps its own and is given others by `copy_`."""
    path: DrawPath = EVERY_PATH
    largest_top_k: int = _LARGEST_EXACT
    """No row has more. A smaller one lets a CPU select tokens, looking at values, instead of sorting all."""

    @classmethod
    def of(
        cls, plans: Sequence[SamplingPlan], *, device: torch.device | str = "cpu", row_count: int | None = None
    ) -> RowParameters:
        """One row a plan, then greedy ones up to `row_count`. The copy to a CUDA device does not wait for it."""
        drawn = [plan for plan in plans if not plan.is_greedy]
        rows = [_GREEDY if plan.is_greedy else _row(plan) for plan in plans]
        rows += [_GREEDY] * ((row_count or len(rows)) - len(rows))
        packed = torch.tensor(rows, dtype=torch.float32).reshape(len(rows), len(_GREEDY)).T.contiguous()
        largest_top_k = max((plan.top_k for plan in drawn), default=0)
        if torch.device(device).type == "cuda":
            packed = packed.pin_memory().to(device, non_blocking=True)
            largest_top_k = _LARGEST_EXACT
        path = DrawPath(
            is_all_greedy=not drawn,
            needs_top_k=any(plan.top_k for plan in drawn),
            needs_top_p=any(plan.top_p < 1.0 for plan in drawn),
            needs_min_p=any(plan.min_p for plan in drawn),
        )
        return cls(packed=packed, path=path, largest_top_k=largest_top_k)

    @property
    def is_greedy(self) -> torch.Tensor:
        """[R] bool."""
        return self.packed[_TEMPERATURE] == 0

    @property
    def temperature(self) -> torch.Tensor:
        """[R] float32, 1 in greedy rows."""
        return torch.where(self.is_greedy, 1.0, self.packed[_TEMPERATURE])

    @property
    def top_p(self) -> torch.Tensor:
        """[R] float32, 1 for all."""
        return self.packed[_TOP_P]

    @property
    def top_k(self) -> torch.Tensor:
        """[R] int64, 0 for all."""
        return self.packed[_TOP_K].long()

    @property
    def min_p(self) -> torch.Tensor:
        """[R] float32, 0 for all."""
        return self.packed[_MIN_P]


def _row(plan: SamplingPlan) -> tuple[float, float, float, float]:
    return (plan.temperature, plan.top_p, float(min(plan.top_k, _LARGEST_EXACT)), plan.min_p)
