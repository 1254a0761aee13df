"""Attention of chunks of prompts over pages in Triton: all chunks of a step in one launch.

    chunks   |p p p p p|q q q|        blocks of queries   [p p p p] [p] [q q q]        grid (block, head)

A block attends causally over the pages of its row: what was computed before the chunk, and the chunk itself, whose keys and
values have just been written there. After FlashAttention-2 (Dao, 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from omniflow_roles.engines.torch.attention import AttentionOptions
from omniflow_roles.engines.torch.kv import KvTensors

BLOCK_QUERIES = 64
_BLOCK_TOKENS = 64
_NO_WINDOW = 1 << 30


@triton.jit
def _attend_block(
    query, keys, values, tables, blocks, output,
    scale, softcap, window, page_size,
    query_head, query_token, key_slot, key_head, value_slot, value_head, table_row, first_token,
    heads, groups: tl.constexpr,
    key_size: tl.constexpr, key_block: tl.constexpr, value_size: tl.constexpr, value_block: tl.constexpr,
    queries: tl.constexpr, block: tl.constexpr, has_softcap: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    kv_head = head // groups
    begin = tl.load(blocks + tl.program_id(0) * 4)
    end = tl.load(blocks + tl.program_id(0) * 4 + 1)
    first = tl.load(blocks + tl.program_id(0) * 4 + 2)
    row = tl.load(blocks + tl.program_id(0) * 4 + 3)
    token = begin + tl.arange(0, queries)
    is_token = token < end
    position = first + tl.arange(0, queries)
    key_lane, value_lane = tl.arange(0, key_block), tl.arange(0, value_block)
    q = tl.load(
        query + head * query_head + token[:, None] * query_token + key_lane[None, :],
        mask=is_token[:, None] & (key_lane < key_size)[None, :],
        other=0.0,
    )
    length = first + tl.minimum(queries, end - begin)
    oldest = tl.maximum(first - window + 1, 0) // block * block
    highest = tl.full([queries], float("-inf"), tl.float32)
    total = tl.zeros([queries], tl.float32)
    out = tl.zeros([queries, value_block], tl.float32)
    for start in range(oldest, length, block):
        place = start + tl.arange(0, block)
        is_in = place < length
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
        distance = position[:, None] - place[None, :]
        scores = tl.where((distance >= 0) & (distance < window) & is_in[None, :], scores, float("-inf"))
        newest = tl.maximum(highest, tl.max(scores, 1))
        safe = tl.where(newest == float("-inf"), 0.0, newest)  # a block that a window hides from a query whole
        weights = tl.exp(scores - safe[:, None])
        fade = tl.exp(highest - safe)
        v = tl.load(
            values + slot[:, None] * value_slot + kv_head * value_head + value_lane[None, :],
            mask=is_in[:, None] & (value_lane < value_size)[None, :],
            other=0.0,
        )
        out = out * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee").to(tl.float32)
        total = total * fade + tl.sum(weights, 1)
        highest = newest
    place = (token - first_token) * heads + head
    tl.store(
        output + place[:, None] * value_size + value_lane[None, :],
        (out / total[:, None]).to(output.dtype.element_ty),
        mask=is_token[:, None] & (value_lane < value_size)[None, :],
    )


def blocks_of(chunks: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """[blocks, 4] int32 for chunks of (first token of the batch, end, tokens of the row before): first token of the block,
    end of its chunk, position of its first token, number of the chunk."""
    blocks = [
        (token, end, prefix + token - begin, number)
        for number, (begin, end, prefix) in enumerate(chunks)
        for token in range(begin, end, BLOCK_QUERIES)
    ]
    return np.array(blocks, np.int32).reshape(-1, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonPrefill:
    """The chunks of a step; their tokens are the last of the batch."""

    first_token: int
    """Where they begin in the batch."""
    blocks: torch.Tensor
    """As `blocks_of` gives them, on the device."""
    tables: torch.Tensor
    """Pages of each chunk's row, [chunks, pages], any integers."""

    def attend(self, kv: KvTensors, layer: int, query: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
        """Query [heads, tokens, key size] of the whole batch -> [tokens of the chunks, heads, value size]."""
        keys, values = kv.keys[layer], kv.values[layer]
        heads, tokens, key_size = query.shape
        kv_heads, value_size = keys.shape[1], values.shape[2]
        query = query if query.stride(2) == 1 else query.contiguous()
        output = torch.empty(tokens - self.first_token, heads, value_size, dtype=query.dtype, device=query.device)
        _attend_block[(self.blocks.shape[0], heads)](
            query, keys, values, self.tables, self.blocks, output,
            options.scale, options.softcap or 1.0, options.window or _NO_WINDOW, kv.page_size,
            query.stride(0), query.stride(1), keys.stride(0), keys.stride(1), values.stride(0), values.stride(1),
            self.tables.stride(0), self.first_token,
            heads, groups=heads // kv_heads,
            key_size=key_size, key_block=max(16, triton.next_power_of_2(key_size)),
            value_size=value_size, value_block=max(16, triton.next_power_of_2(value_size)),
            queries=BLOCK_QUERIES, block=_BLOCK_TOKENS, has_softcap=options.softcap is not None,
            num_warps=4,
        )  # fmt: skip
        return output
