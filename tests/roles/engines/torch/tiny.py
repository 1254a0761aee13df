"""Tiny random checkpoints of several architectures, a tokenizer for them, and what `generate()` says."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import tokenizers
import torch
import transformers

from omniflow_roles.engines.requests import GenerationRequest
from omniflow_roles.engines.sampling.plan import SamplingPlan
from omniflow_roles.engines.torch.compose import EngineSettings, make_engine
from omniflow_roles.engines.torch.engine import Engine, collect

VOCABULARY = 300
END = 299

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,  # the usual 0.02 makes all logits alike, and greedy choices a matter of rounding
    "bos_token_id": None,
    "eos_token_id": END,
    "pad_token_id": END,
}
_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}

CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**_SIZES),
    "qwen2": lambda: transformers.Qwen2Config(**_SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**_SIZES, head_dim=16),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**_SIZES, **_EXPERTS),
    "deepseek_v2": lambda: transformers.DeepseekV2Config(
        **{**_SIZES, "num_key_value_heads": 4},
        moe_intermediate_size=32,
        n_routed_experts=4,
        num_experts_per_tok=2,
        kv_lora_rank=16,
        q_lora_rank=None,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        head_dim=8,
        n_group=1,
        topk_group=1,
        topk_method="greedy",
    ),
    "mistral": lambda: transformers.MistralConfig(**_SIZES, sliding_window=12),
    "gemma2": lambda: transformers.Gemma2Config(**_SIZES, head_dim=16, sliding_window=12),
}


def tiny_model(kind: str, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    """A random causal model, in evaluation mode."""
    torch.manual_seed(seed)
    config = CONFIGS[kind]()
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager").eval()


def tiny_tokenizer() -> Any:
    """Token i is the text "<i>"; the last is the end token."""
    vocabulary = {f"<{i}>": i for i in range(VOCABULARY - 1)} | {"</s>": END}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<0>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"<[^>]*>"), "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>")


def prompts(count: int, *, longest: int = 60, seed: int = 1) -> list[tuple[int, ...]]:
    """Random prompts of 1 to `longest` tokens."""
    rng = random.Random(seed)
    return [tuple(rng.randrange(VOCABULARY - 1) for _ in range(rng.randint(1, longest))) for _ in range(count)]


def generated(model: Any, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """The greedy answer of transformers itself, its end token left out."""
    ids = torch.tensor([list(prompt)])
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=END,
            pad_token_id=END,
        )
    return [token for token in out[0, len(prompt) :].tolist() if token != END]


def greedy(prompt: Sequence[int], max_tokens: int, **options: Any) -> GenerationRequest:
    return GenerationRequest(prompt=tuple(prompt), plan=SamplingPlan(max_tokens=max_tokens, temperature=0.0), **options)


@contextlib.asynccontextmanager
async def engine_of(model: Any, **settings: Any) -> AsyncIterator[Engine]:
    """A running engine over the model, which is checked for leaks when it is left."""
    engine = make_engine(model, tiny_tokenizer(), EngineSettings(**settings))
    engine.start()
    try:
        yield engine
        await settled(engine)
    finally:
        engine.close()


async def settled(engine: Engine) -> None:
    """Waits until nothing runs, and checks that every page has come back."""
    is_idle = False

    def look() -> None:
        nonlocal is_idle
        engine._scheduler.check_integrity()
        pages = engine._scheduler.pages
        is_idle = not engine._scheduler.has_work
        assert not is_idle or pages.available == pages.page_count, "pages leaked"

    while not is_idle:
        await engine.between_steps(look)


async def answers(engine: Engine, requests: Sequence[GenerationRequest]) -> list[list[int]]:
    """The first completion of each, all asked for at once."""
    return [found[0] for found in await asyncio.gather(*(collect(engine, request) for request in requests))]
