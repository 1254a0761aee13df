"""Attention over pages, as a function that Hugging Face model code calls in place of its own.

A step's tokens come flattened, [1, tokens, ...]: first one token of each row that decodes, then the chunks of prompts.

    tokens    d0 d1 d2 | p p p p | q q
    decode    one query a row, over the pages of its table
    prefill   chunks, each over its own prefix (in the pages) and itself, causally

The keys and values of the step's tokens are written to their slots first, then every query reads the pages: what was
computed before, by whomever, and what this step adds are the same to it. The page tables come with the batch; nothing here
knows who holds a page. The batch travels as the keyword argument `paged` through the model's `forward`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.torch.kv import KvTensors, LayerShape

NAME = "omniflow_paged"
"""Attention implementation to load a model with."""

NO_MASK = torch.zeros(1, 1, 1, 1)
"""Given to a model as its attention mask: masks of four dimensions are passed on as they are, so that none is built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions:
    """What a layer says about its attention."""

    scale: float
    window: int | None
    """Tokens that a query sees, itself included; None for all before it."""
    softcap: float | None
    """Scores are squeezed to this range by tanh (Gemma 2)."""


class PrefillPlan(Protocol):
    """How the rows of more tokens attend, all of them at once; their tokens are the last of the batch."""

    def attend(self, kv: KvTensors, layer: int, query: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
        """Query [heads, tokens, key size] of the whole batch -> [tokens of these rows, heads, value size]."""


class DecodePlan(Protocol):
    """How the rows of one token attend; the first tokens of the batch are theirs."""

    @property
    def row_count(self) -> int: ...

    def attend(self, kv: KvTensors, layer: int, query: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
        """Query [rows, heads, key size] -> [rows, heads, value size]."""


class Attends(Protocol):
    """What travels to the layers as the argument `paged`."""

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        """Query, key, value [1, (kv) heads, tokens, size] -> [tokens, heads, value size]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedBatch:
    """A step's tokens over the pages of their rows."""

    kv: KvTensors
    write_slots: torch.Tensor
    """Where the tokens' keys and values go, [tokens] int64."""
    decode: DecodePlan | None
    prefill: PrefillPlan | None

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        self.kv.write(layer, self.write_slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
        outputs: list[torch.Tensor] = []
        if self.decode is not None:
            rows = query[0, :, : self.decode.row_count].transpose(0, 1)
            outputs.append(self.decode.attend(self.kv, layer, rows, options))
        if self.prefill is not None:
            outputs.append(self.prefill.attend(self.kv, layer, query[0], options))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def register() -> None:
    """Makes the implementation known to transformers under `NAME`. Repeats change nothing."""
    AttentionInterface.register(NAME, paged_attention)
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)


def paged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function of transformers: [1, (kv) heads, tokens, size] -> [1, tokens, heads, value size].

    Raises INVALID_CONFIG for layers that want what it cannot do: attention sinks, or attention that is not causal.
    """
    if kwargs.get("s_aux") is not None or not getattr(module, "is_causal", True):
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"{type(module).__name__} wants attention sinks, or is not causal; neither is supported",
        )
    paged: Attends = kwargs["paged"]
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    options = AttentionOptions(scale=scale, window=sliding_window, softcap=softcap)
    return paged.attend(module.layer_idx, query, key, value, options).unsqueeze(0), None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A chunk of one row: tokens `begin` to `end` of the batch."""

    begin: int
    end: int
    prefix: int
    """Tokens of the row before the chunk."""
    slots: torch.Tensor
    """Slots of prefix and chunk, [prefix + end - begin] int64."""
    masks: dict[int | None, torch.Tensor | None] = field(default_factory=dict)
    """By sliding window; made by the first layer that needs it."""

    def mask(self, window: int | None, device: torch.device) -> torch.Tensor | None:
        """True where a query may look, [chunk, prefix + chunk]; None for a causal chunk without a prefix."""
        size, total = self.end - self.begin, self.prefix + self.end - self.begin
        if window is not None and total <= window:
            window = None
        if window not in self.masks:
            if window is None and self.prefix == 0:
                self.masks[window] = None
            else:
                allowed = torch.ones(size, total, dtype=torch.bool, device=device).tril(self.prefix)
                if window is not None:
                    allowed = allowed.triu(self.prefix - window + 1)
                self.masks[window] = allowed
        return self.masks[window]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredPrefill:
    """Chunk by chunk: gathers the pages of its row, and attends by SDPA."""

    segments: tuple[Segment, ...]

    def attend(self, kv: KvTensors, layer: int, query: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
        outputs = [self._attend_segment(kv, layer, query, segment, options) for segment in self.segments]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _attend_segment(
        self, kv: KvTensors, layer: int, query: torch.Tensor, segment: Segment, options: AttentionOptions
    ) -> torch.Tensor:
        """[chunk, heads, value size]"""
        keys = kv.keys[layer][segment.slots].transpose(0, 1).unsqueeze(0)
        values = kv.values[layer][segment.slots].transpose(0, 1).unsqueeze(0)
        chunk = query[None, :, segment.begin : segment.end]
        mask = segment.mask(options.window, query.device)
        return attend(chunk, keys, values, mask=mask, scale=options.scale, softcap=options.softcap)[0].transpose(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredDecode:
    """Gathers each row's pages into one padded block: a copy of the keys and values, which on a CPU costs less than a
    call for each row."""

    row_count: int
    slots: torch.Tensor
    """[rows, longest] int64; what is beyond a row's length points anywhere."""
    lengths: torch.Tensor
    """Tokens of each row, its newest included, [rows] int64."""
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    def attend(self, kv: KvTensors, layer: int, query: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
        rows, heads, size = query.shape
        longest = self.slots.shape[1]
        keys, values = kv.keys[layer], kv.values[layer]
        groups = keys.shape[1]
        flat = self.slots.view(-1)
        k = keys.index_select(0, flat).view(rows, longest, groups, -1).transpose(1, 2)
        v = values.index_select(0, flat).view(rows, longest, groups, -1).transpose(1, 2)
        # The query heads that share a key head stand in the place of queries: the keys are not repeated.
        q = query.reshape(rows, groups, heads // groups, size)
        out = attend(q, k, v, mask=self._mask(options.window), scale=options.scale, softcap=options.softcap)
        return out.reshape(rows, heads, -1)

    def _mask(self, window: int | None) -> torch.Tensor:
        """[rows, 1, 1, longest]"""
        mask = self.masks.get(window)
        if mask is None:
            positions = torch.arange(self.slots.shape[1], device=self.slots.device)
            mask = positions < self.lengths[:, None]
            if window is not None:
                mask = mask & (positions >= self.lengths[:, None] - window)
            self.masks[window] = mask = mask[:, None, None]
        return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDecode:
    """One row whose pages follow one another, as they mostly do: read where they are, without a copy or a mask."""

    begin: int
    """Slot of its first token."""
    length: int
    """Tokens, its newest included."""

    @property
    def row_count(self) -> int:
        return 1

    def attend(self, kv: KvTensors, layer: int, query: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
        _, heads, size = query.shape
        first = self.begin + max(0, self.length - (options.window or self.length))
        end = self.begin + self.length
        keys = kv.keys[layer][first:end].transpose(0, 1).unsqueeze(0)
        values = kv.values[layer][first:end].transpose(0, 1).unsqueeze(0)
        groups = keys.shape[1]
        q = query.view(1, groups, heads // groups, size)
        out = attend(q, keys, values, mask=None, is_causal=False, scale=options.scale, softcap=options.softcap)
        return out.reshape(1, heads, -1)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None,
    is_causal: bool = True,
    scale: float,
    softcap: float | None,
) -> torch.Tensor:
    """Query [batch, heads, queries, size] over [batch, kv heads, keys, size].

    Without a mask a query sees the keys before it, of which there are as many as queries, or (not causal) all of them.

    SDPA has no parameter for `softcap`, so it is written out.
    """
    if softcap is None:
        is_grouped = query.shape[1] != key.shape[1]
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=is_causal and mask is None, scale=scale, enable_gqa=is_grouped
        )
    if query.shape[1] != key.shape[1]:
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scores = torch.tanh((query @ key.transpose(-1, -2)) * (scale / softcap)) * softcap
    if mask is None and is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype) @ value


class ShapeProbe:
    """In place of a batch: finds what each layer keeps for a token. Its output has the right shape, and is no attention."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        self.layers[layer] = LayerShape(kv_heads=key.shape[1], key_size=key.shape[3], value_size=value.shape[3])
        return value[0, :1].expand(query.shape[1], -1, -1).transpose(0, 1)
