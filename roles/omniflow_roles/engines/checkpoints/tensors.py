"""A tensor as the header of a file describes it, whatever the format."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_LAYER = re.compile(r"(?:^|\.)(?:layers|blk)\.(\d{1,6})\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Nothing of its data is read."""

    name: str
    dtype: str
    """The format's own name: `BF16`, `Q4_K`."""
    shape: tuple[int, ...]
    """Outermost dimension first, in both formats."""
    size_bytes: int
    file: str
    """Name of the file in its folder."""

    @property
    def element_count(self) -> int:
        return math.prod(self.shape)

    @property
    def layer(self) -> int | None:
        """Index of the decoder layer that it belongs to."""
        found = _LAYER.search(self.name)
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightCount:
    """Parameters by what the engine makes of them."""

    total: int = 0
    linear: int = 0
    """In matrices of the layers' linears, which int8 stores in a byte each."""
    linear_rows: int = 0
    """Output channels of those, each of which int8 gives a scale."""

    @classmethod
    def of(cls, tensors: Iterable[StoredTensor]) -> WeightCount:
        """Counts weights. Experts are no linears: model code stacks them, and keeps them in floats."""
        weights = list(tensors)
        linears = [t for t in weights if t.layer is not None and len(t.shape) == 2 and "expert" not in t.name]
        return cls(
            total=sum(t.element_count for t in weights),
            linear=sum(t.element_count for t in linears),
            linear_rows=sum(t.shape[0] for t in linears),
        )
