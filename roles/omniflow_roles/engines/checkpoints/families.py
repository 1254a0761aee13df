"""The architectures that the engine runs: decoders whose Hugging Face code does all its attention through the interface.

A family is here when, in its `modeling_<type>.py`,
- every layer calls `attention_interface(self, query, key, value, mask, ..., **kwargs)` once, with `kwargs` as the model's
  `forward` was given them, and with keys and values of this step's tokens only when it is given no cache;
- attention is causal, and all that differs from plain softmax attention comes as an argument: the scale, `sliding_window`,
  `softcap`. The mask is ours, so what a model says by its mask alone would be lost.

Defaults are those of the family's config class, for keys that a `config.json` leaves out. A test runs a tiny model of each
family with an attention function of its own, and compares shapes, windows and logits.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class WindowRule(enum.Enum):
    """Which layers see a sliding window when the config has no `layer_types`."""

    NONE = enum.auto()
    EVERY_LAYER = enum.auto()
    FROM_LAYER = enum.auto()
    """Those from `max_window_layers` on."""
    ALL_BUT_EACH_NTH = enum.auto()
    """Layer i unless i + 1 is a multiple of the pattern."""
    EACH_NTH = enum.auto()
    """Layer i when i + 1 is a multiple of the pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One value of `model_type`."""

    causal_class: str
    """The class with the language-model head, as `architectures` names it."""
    context_size: int
    """Default of `max_position_embeddings`."""
    kv_heads: int | None = None
    """Default of `num_key_value_heads`; None: as many as attention heads."""
    head_dim: int | None = None
    """Default of `head_dim`; None: `hidden_size` shared out among the heads."""
    is_tied: bool = False
    """Default of `tie_word_embeddings`."""
    window: WindowRule = WindowRule.NONE
    window_size: int | None = None
    """Default of `sliding_window`, in tokens."""
    window_pattern: int = 0
    has_window_switch: bool = False
    """`use_sliding_window` must be true for the window to count; it is false by default."""
    passes_window: bool = True
    """False: the model says its window by the mask alone, so that it is only right without one."""
    is_latent: bool = False
    """Multi-head latent attention: each head's keys are `qk_nope_head_dim + qk_rope_head_dim` wide, its values
    `v_head_dim`. The engine keeps them as the interface gets them, expanded to all heads."""
    has_softcap: bool = False
    """Passes `softcap`: scores are squeezed by tanh."""
    can_be_bidirectional: bool = False
    """`use_bidirectional_attention` makes an encoder of it."""
    fuses_projections: bool = False
    """Query, key and value weights are one matrix."""


FAMILIES: Mapping[str, Family] = {
    "arcee": Family(causal_class="ArceeForCausalLM", context_size=4096),
    "cohere": Family(causal_class="CohereForCausalLM", context_size=8192, is_tied=True),
    "deepseek_v2": Family(causal_class="DeepseekV2ForCausalLM", context_size=2048, is_latent=True),
    "ernie4_5": Family(
        causal_class="Ernie4_5ForCausalLM", context_size=131_072, kv_heads=2, head_dim=128, is_tied=True
    ),
    "gemma": Family(
        causal_class="GemmaForCausalLM",
        context_size=8192,
        kv_heads=16,
        head_dim=256,
        is_tied=True,
        can_be_bidirectional=True,
    ),
    "gemma2": Family(
        causal_class="Gemma2ForCausalLM",
        context_size=8192,
        kv_heads=4,
        head_dim=256,
        is_tied=True,
        window=WindowRule.ALL_BUT_EACH_NTH,
        window_size=4096,
        window_pattern=2,
        has_softcap=True,
        can_be_bidirectional=True,
    ),
    "gemma3_text": Family(
        causal_class="Gemma3ForCausalLM",
        context_size=131_072,
        kv_heads=4,
        head_dim=256,
        is_tied=True,
        window=WindowRule.ALL_BUT_EACH_NTH,
        window_size=4096,
        window_pattern=6,
        can_be_bidirectional=True,
    ),
    "glm": Family(causal_class="GlmForCausalLM", context_size=131_072, kv_heads=2, head_dim=128),
    "glm4": Family(causal_class="Glm4ForCausalLM", context_size=131_072, kv_heads=2, head_dim=128),
    "granite": Family(causal_class="GraniteForCausalLM", context_size=2048),
    "helium": Family(causal_class="HeliumForCausalLM", context_size=4096, kv_heads=20, head_dim=128),
    "llama": Family(causal_class="LlamaForCausalLM", context_size=2048),
    "mistral": Family(
        causal_class="MistralForCausalLM",
        context_size=131_072,
        kv_heads=8,
        window=WindowRule.EVERY_LAYER,
        window_size=4096,
    ),
    "mixtral": Family(
        causal_class="MixtralForCausalLM", context_size=131_072, kv_heads=8, window=WindowRule.EVERY_LAYER
    ),
    "olmo": Family(causal_class="OlmoForCausalLM", context_size=2048),
    "olmo2": Family(causal_class="Olmo2ForCausalLM", context_size=2048),
    "phi3": Family(
        causal_class="Phi3ForCausalLM", context_size=4096, window=WindowRule.EVERY_LAYER, fuses_projections=True
    ),
    "qwen2": Family(
        causal_class="Qwen2ForCausalLM",
        context_size=32_768,
        kv_heads=32,
        window=WindowRule.FROM_LAYER,
        window_size=4096,
        has_window_switch=True,
    ),
    "qwen2_moe": Family(
        causal_class="Qwen2MoeForCausalLM",
        context_size=32_768,
        kv_heads=16,
        window=WindowRule.ALL_BUT_EACH_NTH,
        window_size=4096,
        window_pattern=2,
        has_window_switch=True,
        passes_window=False,
    ),
    "qwen3": Family(
        causal_class="Qwen3ForCausalLM",
        context_size=32_768,
        kv_heads=32,
        head_dim=128,
        window=WindowRule.FROM_LAYER,
        window_size=4096,
        has_window_switch=True,
    ),
    "qwen3_moe": Family(
        causal_class="Qwen3MoeForCausalLM",
        context_size=32_768,
        kv_heads=4,
        window=WindowRule.EVERY_LAYER,
        window_size=4096,
        has_window_switch=True,
    ),
    "seed_oss": Family(causal_class="SeedOssForCausalLM", context_size=524_288, kv_heads=8, head_dim=128),
    "smollm3": Family(
        causal_class="SmolLM3ForCausalLM",
        context_size=32_768,
        kv_heads=4,
        is_tied=True,
        window=WindowRule.EACH_NTH,
        window_pattern=4,
        has_window_switch=True,
    ),
    "starcoder2": Family(
        causal_class="Starcoder2ForCausalLM",
        context_size=4096,
        kv_heads=2,
        is_tied=True,
        window=WindowRule.EVERY_LAYER,
    ),
}
"""By `model_type` of config.json."""

REFUSED: Mapping[str, str] = {
    "falcon_mamba": "it has a recurrent state and no keys and values",
    "gemma3": "it reads images too; of its text part alone, model type gemma3_text, the engine can run a checkpoint",
    "gpt_oss": "its attention has sinks (the argument s_aux)",
    "mamba": "it has a recurrent state and no keys and values",
    "mamba2": "it has a recurrent state and no keys and values",
    "qwen3_next": "most of its layers are linear attention, which has no keys and values",
}
"""Known reasons, for types that people try."""

GGUF_TYPES: Mapping[str, str] = {
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "llama": "llama",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "starcoder2": "starcoder2",
}
"""`model_type` by `general.architecture`, where transformers converts the file."""
