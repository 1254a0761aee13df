"""How much memory a model takes: its weights as loaded, and what it keeps for a token."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from omniflow_roles.engines.checkpoints.tensors import WeightCount


class LoadDtype(enum.StrEnum):
    """How the engine holds the weights."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    INT8 = "int8"
    """On a GPU: the matrices of the linears, the head's too, in int8 with a float32 scale for each output channel; the rest
    in bfloat16."""
    INT8_CPU = "int8-cpu"
    """On a CPU: the same, with the rest in float32."""

    @property
    def is_int8(self) -> bool:
        return self in (LoadDtype.INT8, LoadDtype.INT8_CPU)

    @property
    def floats(self) -> LoadDtype:
        """What is held as floats is held as: embeddings, norms, biases, experts, and keys and values."""
        if self.is_int8:
            return LoadDtype.BFLOAT16 if self is LoadDtype.INT8 else LoadDtype.FLOAT32
        return self

    @property
    def float_bytes(self) -> int:
        """Bytes of an element of the floats."""
        return 4 if self.floats is LoadDtype.FLOAT32 else 2

    def bytes_of(self, weights: WeightCount) -> int:
        """Bytes of the weights as loaded."""
        if self.is_int8:
            return weights.linear + 4 * weights.linear_rows + self.float_bytes * weights.others
        return self.float_bytes * weights.total


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """What the model keeps for a token, alike in every layer."""

    layer_count: int
    head_count: int
    key_size: int
    value_size: int

    def bytes_per_token(self, dtype: LoadDtype) -> int:
        """Keys and values of all layers. A layer with a sliding window counts in full: pages hold a token's layers
        together."""
        return self.layer_count * self.head_count * (self.key_size + self.value_size) * dtype.float_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Of one model in one dtype. Activations and the runtime come on top."""

    weight_bytes: int
    kv_bytes_per_token: int
    """0 for what keeps nothing: an adapter, or a model whose configuration could not be read."""

    def fits_in(self, budget_bytes: int) -> bool:
        """Whether at least the weights do."""
        return self.weight_bytes <= budget_bytes

    def kv_tokens_in(self, budget_bytes: int) -> int | None:
        """Tokens of keys and values that fit beside the weights; None when not even the weights do, or none are kept."""
        if not self.fits_in(budget_bytes) or self.kv_bytes_per_token == 0:
            return None
        return (budget_bytes - self.weight_bytes) // self.kv_bytes_per_token


_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMGT]i?)?B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str) -> int:
    """Bytes of `8GiB`, `500 MB`, `1.5g`, `4096`: powers of 1,024 with an i, of 1,000 without. Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size such as 8GiB, 500MB or 4096")
    unit = (found[2] or "").upper()
    return int(float(found[1]) * (1024 if unit.endswith("I") else 1000) ** _POWERS[unit[:1]])


def show_size(size_bytes: int) -> str:
    """For people: `8.0 GiB`."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
