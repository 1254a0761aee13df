"""Which tokens of a step belong to which adapter, and what the adapters add to a linear's output.

    step      a a a b b · · a          tokens of requests with the adapters a, b, none, a

    GroupedTokens   a: rows 0..2 and 7, b: rows 3..4     two products for each adapter; for any step
    StackedTokens   [0, 0, 0, 1, 1, n, n, 0]             the same kernels whatever the adapters are: for captured graphs

Both only ever read an adapter's own matrices for its tokens, so what is wrong with one stays with its requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

NO_ADAPTER = -1
"""Index of the plain model."""


@dataclass(slots=True, kw_only=True)
class LoraStacks:
    """The matrices of one linear for every place that an adapter can have; place n, the last, stays zero."""

    down: torch.Tensor
    """[n + 1, max rank, in]; rows beyond an adapter's rank are zero."""
    up: torch.Tensor
    """[n + 1, out, max rank], scaled."""
    ranks: list[int]
    """Of the adapter at each place; 0 where there is none, or it leaves this linear alone."""

    @classmethod
    def zeros(
        cls, places: int, max_rank: int, inputs: int, outputs: int, *, dtype: torch.dtype, device: torch.device
    ) -> LoraStacks:
        return cls(
            down=torch.zeros(places + 1, max_rank, inputs, dtype=dtype, device=device),
            up=torch.zeros(places + 1, outputs, max_rank, dtype=dtype, device=device),
            ranks=[0] * places,
        )

    @property
    def size_bytes(self) -> int:
        return sum(stack.numel() * stack.element_size() for stack in (self.down, self.up))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedTokens:
    """Tokens by adapter: rows of the step as a slice, or int64 [rows] where they are not together."""

    count: int
    """Tokens of the step."""
    groups: tuple[tuple[int, slice | torch.Tensor], ...]
    """Adapter index and its rows."""

    @classmethod
    def of(
        cls, counts: Sequence[int], adapters: Sequence[int], device: torch.device | str = "cpu"
    ) -> GroupedTokens | None:
        """Of sequences in the order of a ragged batch: how many tokens each has, and its adapter's index or NO_ADAPTER.

        None when there is nothing to add.
        """
        rows: dict[int, list[tuple[int, int]]] = {}
        begin = 0
        for count, adapter in zip(counts, adapters, strict=True):
            if adapter != NO_ADAPTER and count:
                spans = rows.setdefault(adapter, [])
                if spans and spans[-1][1] == begin:
                    spans[-1] = (spans[-1][0], begin + count)
                else:
                    spans.append((begin, begin + count))
            begin += count
        if not rows:
            return None
        return cls(count=begin, groups=tuple((adapter, _rows(spans, device)) for adapter, spans in rows.items()))

    def add_to(self, output: torch.Tensor, hidden: torch.Tensor, stacks: LoraStacks) -> None:
        """Increases output [tokens, out] of a linear that was given hidden [tokens, in]."""
        assert len(hidden) == self.count, "the tokens of the step are not those that the linear was given"
        for adapter, rows in self.groups:
            rank = stacks.ranks[adapter]
            if not rank:
                continue
            inner = torch.mm(hidden[rows], stacks.down[adapter, :rank].t())
            up = stacks.up[adapter, :, :rank].t()
            if isinstance(rows, slice):
                output[rows].addmm_(inner, up)
            else:
                output.index_add_(0, rows, torch.mm(inner, up))


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedTokens:
    """Tokens with the place of each one's adapter on the device. Nothing here depends on its values but results."""

    places: torch.Tensor
    """int64 [tokens]; the place after the last for the plain model."""

    def add_to(self, output: torch.Tensor, hidden: torch.Tensor, stacks: LoraStacks) -> None:
        """Increases output [tokens, out] of a linear that was given hidden [tokens, in]."""
        inner = torch.bmm(stacks.down[self.places], hidden[:, :, None])
        output += torch.bmm(stacks.up[self.places], inner)[:, :, 0]


def _rows(spans: Sequence[tuple[int, int]], device: torch.device | str) -> slice | torch.Tensor:
    if len(spans) == 1:
        return slice(*spans[0])
    return torch.cat([torch.arange(*span) for span in spans]).to(device)
