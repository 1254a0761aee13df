"""Key and value tensors of a model's layers over a pool of pages. Who owns which page is not known here.

    layer 0   keys   [slots, kv heads, key size]      slot = page * page_size + offset
              values [slots, kv heads, value size]

The tensors may come from outside (another process's pool, mapped); `allocate` makes them where they do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """What one attention layer keeps for a token."""

    kv_heads: int
    key_size: int
    value_size: int
    """Differs from `key_size` in multi-head latent attention."""

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Of keys and values together."""
        return self.kv_heads * (self.key_size + self.value_size) * int(dtype.itemsize)


Store = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Writes keys and values [tokens, kv heads, size] into a layer's two tensors, at slots [tokens]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTensors:
    """Keys and values by layer, each [slots, kv heads, size]."""

    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]
    page_size: int
    store: Store

    @classmethod
    def allocate(
        cls,
        shapes: Sequence[LayerShape],
        *,
        page_count: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> KvTensors:
        """Zeroed tensors, one page more than `page_count`: rows that pad a batch write to the last, which nobody holds."""
        slots = (page_count + 1) * page_size
        return cls(
            keys=tuple(_zeros((slots, s.kv_heads, s.key_size), dtype, device) for s in shapes),
            values=tuple(_zeros((slots, s.kv_heads, s.value_size), dtype, device) for s in shapes),
            page_size=page_size,
            store=_store_of(device),
        )

    @property
    def padding_page(self) -> int:
        """The page for rows that nobody asked for."""
        return int(self.keys[0].shape[0]) // self.page_size - 1

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Stores keys and values [tokens, kv heads, size] at `slots` [tokens] int64."""
        self.store(self.keys[layer], self.values[layer], slots, keys, values)


def _store_of(device: torch.device) -> Store:
    if device.type != "cuda":
        return _copy
    from omniflow_roles.engines.torch.triton_store import store  # imports Triton, which wants a GPU

    return store


def _copy(
    keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, new_keys: torch.Tensor, new_values: torch.Tensor
) -> None:
    keys.index_copy_(0, slots, new_keys)
    values.index_copy_(0, slots, new_values)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros, because what a mask hides is still multiplied by 0. On the CPU a page of memory is taken when it is first
    written: torch.zeros would take all of them at once."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(shape)
