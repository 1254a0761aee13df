"""Keys and values of a step into their slots, both in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _store(
    keys, values, slots, new_keys, new_values,
    key_slot, value_slot, key_token, key_head, value_token, value_head,
    kv_heads: tl.constexpr, key_size: tl.constexpr, value_size: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    slot = tl.load(slots + token)
    lane = tl.arange(0, block)
    is_key = lane < kv_heads * key_size
    source = token * key_token + lane // key_size * key_head + lane % key_size
    tl.store(keys + slot * key_slot + lane, tl.load(new_keys + source, mask=is_key), mask=is_key)
    is_value = lane < kv_heads * value_size
    source = token * value_token + lane // value_size * value_head + lane % value_size
    tl.store(values + slot * value_slot + lane, tl.load(new_values + source, mask=is_value), mask=is_value)


def store(
    keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, new_keys: torch.Tensor, new_values: torch.Tensor
) -> None:
    """A `kv.Store`. The layer's tensors are contiguous within a slot; the new ones within a head."""
    tokens, kv_heads, key_size = new_keys.shape
    value_size = new_values.shape[2]
    new_keys = new_keys if new_keys.stride(2) == 1 else new_keys.contiguous()
    new_values = new_values if new_values.stride(2) == 1 else new_values.contiguous()
    _store[(tokens,)](
        keys, values, slots, new_keys, new_values,
        keys.stride(0), values.stride(0),
        new_keys.stride(0), new_keys.stride(1), new_values.stride(0), new_values.stride(1),
        kv_heads=kv_heads, key_size=key_size, value_size=value_size,
        block=triton.next_power_of_2(kv_heads * max(key_size, value_size)),
    )  # fmt: skip
