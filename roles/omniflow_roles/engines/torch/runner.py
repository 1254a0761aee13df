"""A loaded model over a pool of pages: forward of a batch to the logits of its draws. Decides nothing.

The model is Hugging Face code whose attention is `attention.paged_attention`; everything else of it (norms, rotary
positions, experts, caps on logits) stays as its authors wrote it.
"""

from __future__ import annotations

from typing import Any

import torch

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.torch import attention
from omniflow_roles.engines.torch.attention import NO_MASK, PagedBatch, ShapeProbe
from omniflow_roles.engines.torch.kv import LayerShape
from omniflow_roles.engines.torch.lora import LoraContext
from omniflow_roles.engines.torch.lora_tokens import GroupedTokens


class ModelRunner:
    """Forward passes of one model. Not thread-safe: steps run one after another."""

    def __init__(self, model: Any, lora: LoraContext | None = None) -> None:
        """`model` is a causal language model of transformers; its attention is replaced. Raises INVALID_CONFIG.

        `lora` is what its wrapped linears look at, if it has any.
        """
        self.lora = lora or LoraContext()
        attention.register()
        self.model = model.eval()
        try:
            self.model.set_attn_implementation(attention.NAME)
        except ValueError as error:
            raise OmniFlowError(
                Reason.INVALID_CONFIG, f"{type(model).__name__} does not let its attention be replaced: {error}"
            ) from error
        self._embed = model.get_input_embeddings()
        self.device: torch.device = next(model.parameters()).device
        self._no_mask = NO_MASK.to(self.device)
        config = model.config.get_text_config()
        self.vocabulary_size: int = config.vocab_size
        self.hidden_size: int = config.hidden_size
        self.context_size: int = config.max_position_embeddings
        self.dtype: torch.dtype = model.get_input_embeddings().weight.dtype
        """Of activations, and so of keys and values; weights may be quantised."""

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def layer_shapes(self) -> tuple[LayerShape, ...]:
        """What each layer keeps for a token, in order."""
        probe = ShapeProbe()
        ids = torch.zeros(1, 2, dtype=torch.int64, device=self.device)
        positions = torch.arange(2, device=self.device)[None]
        self.model(ids, position_ids=positions, attention_mask=self._no_mask, use_cache=False, paged=probe)
        layers = sorted(probe.layers)
        if layers != list(range(len(layers))):
            raise OmniFlowError(
                Reason.INVALID_CONFIG,
                f"{type(self.model).__name__} has layers without attention over keys and values: only {layers} have it",
            )
        return tuple(probe.layers[layer] for layer in layers)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Input embeddings of ids [tokens] -> [tokens, hidden]."""
        embedded: torch.Tensor = self._embed(ids)
        return embedded

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        paged: PagedBatch,
        logit_rows: torch.Tensor | None,
        embeddings: torch.Tensor | None = None,
        adapters: GroupedTokens | None = None,
    ) -> torch.Tensor:
        """Logits [draws, vocabulary] of the tokens at `logit_rows` [draws], of all when that is None.

        ids and positions are [tokens] int64; `embeddings` [tokens, hidden] take the place of the ids' own; `adapters` says
        which tokens have one.
        """
        self.lora.tokens = adapters
        inputs = {"input_ids": ids[None]} if embeddings is None else {"inputs_embeds": embeddings[None]}
        output = self.model(
            **inputs,
            position_ids=positions[None],
            attention_mask=self._no_mask,
            use_cache=False,
            logits_to_keep=0 if logit_rows is None else logit_rows,
            paged=paged,
        )
        logits: torch.Tensor = output.logits[0]
        return logits
