"""A tensor as the header of a file describes it, whatever the format."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

EMBEDDINGS = ("embed_tokens.weight", "token_embd.weight")
"""Ends of their names in safetensors and in GGUF."""
HEADS = ("lm_head.weight", "output.weight")
"""Ends of its names, outside the layers."""

_LAYER = re.compile(r"(?:^|\.)(?:layers|blk)\.(\d{1,6})\.")
_NO_LINEAR = re.compile(r"\.experts\.|\.mlp\.gate\.weight$|\.ffn_gate_inp\.weight$")


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
    """In matrices of the linears, which int8 stores in a byte each."""
    linear_rows: int = 0
    """Output channels of those, each of which int8 gives a scale."""
    others: int = 0
    """What int8 leaves floats. Embeddings that are the head too count here, and in `linear`: the head gets its own copy."""

    @classmethod
    def of(cls, tensors: Iterable[StoredTensor]) -> WeightCount:
        """Counts weights. A head that is tied to the embeddings must not be among them."""
        weights = list(tensors)
        linears = [t for t in weights if _is_linear(t)]
        total, stored = sum(t.element_count for t in weights), sum(t.element_count for t in linears)
        if not any(t.name.endswith(HEADS) for t in linears if t.layer is None):
            linears += [t for t in weights if t.name.endswith(EMBEDDINGS)]
        return cls(
            total=total,
            linear=sum(t.element_count for t in linears),
            linear_rows=sum(t.shape[0] for t in linears),
            others=total - stored,
        )


def _is_linear(tensor: StoredTensor) -> bool:
    """Whether model code holds it in a linear. It stacks experts, and holds what routes tokens to them by itself."""
    if len(tensor.shape) != 2:
        return False
    if tensor.layer is None:
        return tensor.name.endswith(HEADS)
    return _NO_LINEAR.search(tensor.name) is None
