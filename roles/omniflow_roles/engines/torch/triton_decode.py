"""Decode attention over pages in Triton: no gather, no host decisions, one captured launch for any lengths.

    grid     (row, kv head, split)            each split attends over its share of the row's tokens
    merge    (row, head)                      joins the splits by their maxima and sums

The query heads of a kv head are one block, so keys and values are read once for all of them. The number of splits is
fixed, as the grid of a captured launch must be; a split that a short row does not reach gives nothing. Precedent:
Flash-Decoding (Dao et al., 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from omniflow_roles.engines.torch.attention import AttentionOptions
from omniflow_roles.engines.torch.kv import KvTensors

_BLOCK_TOKENS = 64
_WARPS = 2
_LEAST_GROUP = 16
"""Rows of the smallest matrix product that the tensor cores do."""
_NO_WINDOW = 1 << 30


@triton.jit
def _attend_split(
    query, keys, values, tables, lengths, partial, maxima, sums,
    scale, softcap, window, page_size,
    query_row, query_head, key_slot, key_head, value_slot, value_head, table_row,
    heads, groups: tl.constexpr, group_block: tl.constexpr,
    key_size: tl.constexpr, key_block: tl.constexpr, value_size: tl.constexpr, value_block: tl.constexpr,
    splits: tl.constexpr, block: tl.constexpr, has_softcap: tl.constexpr,
):  # fmt: skip
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + row)
    first = tl.maximum(length - window, 0)
    share = tl.cdiv(tl.cdiv(length - first, splits), block) * block
    begin = first + split * share
    end = tl.minimum(begin + share, length)
    member = tl.arange(0, group_block)
    is_member = member < groups
    head = kv_head * groups + member
    key_lane, value_lane = tl.arange(0, key_block), tl.arange(0, value_block)
    q = tl.load(
        query + row * query_row + head[:, None] * query_head + key_lane[None, :],
        mask=is_member[:, None] & (key_lane < key_size)[None, :],
        other=0.0,
    )
    highest = tl.full([group_block], float("-inf"), tl.float32)
    total = tl.zeros([group_block], tl.float32)
    out = tl.zeros([group_block, value_block], tl.float32)
    for start in range(begin, end, block):
        place = start + tl.arange(0, block)
        is_in = place < end
        page = tl.load(tables + row * table_row + place // page_size, mask=is_in, other=0).to(tl.int64)
        slot = page * page_size + place % page_size
        k = tl.load(
            keys + slot[None, :] * key_slot + kv_head * key_head + key_lane[:, None],
            mask=is_in[None, :] & (key_lane < key_size)[:, None],
            other=0.0,
        )
        scores = tl.dot(q, k, input_precision="ieee").to(tl.float32) * scale
        if has_softcap:
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
        scores = tl.where(is_in[None, :], scores, float("-inf"))
        newest = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp(scores - newest[:, None])
        fade = tl.exp(highest - newest)
        v = tl.load(
            values + slot[:, None] * value_slot + kv_head * value_head + value_lane[None, :],
            mask=is_in[:, None] & (value_lane < value_size)[None, :],
            other=0.0,
        )
        out = out * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee").to(tl.float32)
        total = total * fade + tl.sum(weights, 1)
        highest = newest
    place = (row * heads + head) * splits + split
    tl.store(maxima + place, highest, mask=is_member)
    tl.store(sums + place, total, mask=is_member)
    tl.store(
        partial + place[:, None] * value_size + value_lane[None, :],
        out,
        mask=is_member[:, None] & (value_lane < value_size)[None, :],
    )


@triton.jit
def _merge_splits(
    partial, maxima, sums, output,
    splits: tl.constexpr, split_block: tl.constexpr, value_size: tl.constexpr, value_block: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0)
    split, lane = tl.arange(0, split_block), tl.arange(0, value_block)
    is_split, is_lane = split < splits, lane < value_size
    highest = tl.load(maxima + place * splits + split, mask=is_split, other=float("-inf"))
    total = tl.load(sums + place * splits + split, mask=is_split, other=0.0)
    weights = tl.exp(highest - tl.max(highest, 0))
    part = tl.load(
        partial + (place * splits + split)[:, None] * value_size + lane[None, :],
        mask=is_split[:, None] & is_lane[None, :],
        other=0.0,
    )
    out = tl.sum(part * weights[:, None], 0) / tl.sum(total * weights, 0)
    tl.store(output + place * value_size + lane, out.to(output.dtype.element_ty), mask=is_lane)


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonDecode:
    """A `DecodePlan` whose tensors may be static: it is read by the device alone."""

    row_count: int
    tables: torch.Tensor
    """[rows, pages] int32 or int64; beyond a row's pages anything."""
    lengths: torch.Tensor
    """Tokens of each row, its newest included, [rows]."""
    splits: int

    def attend(self, kv: KvTensors, layer: int, query: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
        """Query [rows, heads, key size] -> [rows, heads, value size]."""
        keys, values = kv.keys[layer], kv.values[layer]
        rows, heads, key_size = query.shape
        kv_heads, value_size = keys.shape[1], values.shape[2]
        groups = heads // kv_heads
        query = query if query.stride(2) == 1 else query.contiguous()
        partial = torch.empty(rows, heads, self.splits, value_size, dtype=torch.float32, device=query.device)
        maxima = torch.empty(rows, heads, self.splits, dtype=torch.float32, device=query.device)
        sums = torch.empty_like(maxima)
        output = torch.empty(rows, heads, value_size, dtype=query.dtype, device=query.device)
        value_block = triton.next_power_of_2(value_size)
        _attend_split[(rows, kv_heads, self.splits)](
            query, keys, values, self.tables, self.lengths, partial, maxima, sums,
            options.scale, options.softcap or 1.0, options.window or _NO_WINDOW, kv.page_size,
            query.stride(0), query.stride(1), keys.stride(0), keys.stride(1), values.stride(0), values.stride(1),
            self.tables.stride(0),
            heads, groups=groups, group_block=max(_LEAST_GROUP, triton.next_power_of_2(groups)),
            key_size=key_size, key_block=triton.next_power_of_2(key_size),
            value_size=value_size, value_block=value_block,
            splits=self.splits, block=_BLOCK_TOKENS, has_softcap=options.softcap is not None,
            num_warps=_WARPS,
        )  # fmt: skip
        _merge_splits[(rows * heads,)](
            partial, maxima, sums, output,
            splits=self.splits, split_block=triton.next_power_of_2(self.splits),
            value_size=value_size, value_block=value_block,
        )  # fmt: skip
        return output
