"""An engine put together: the only file of this package that knows all parts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_roles.engines.scheduling.pages import LocalPages
from omniflow_roles.engines.scheduling.scheduler import Scheduler
from omniflow_roles.engines.torch.batch import BatchBuilder
from omniflow_roles.engines.torch.engine import Engine, EngineOptions
from omniflow_roles.engines.torch.executor import CpuExecutor, Executor
from omniflow_roles.engines.torch.kv import KvTensors
from omniflow_roles.engines.torch.lora import LoraAdapters
from omniflow_roles.engines.torch.preparation import Preparation
from omniflow_roles.engines.torch.runner import ModelRunner

_CPU_KV_BYTES = 1 << 30
_GPU_SHARE = 0.85
"""Of the memory that is free when the model is loaded; the rest is for activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What may be chosen; None lets the device decide."""

    page_size: int = 16
    """Tokens a page."""
    pool_tokens: int | None = None
    """Tokens whose keys and values are kept. By default 1 GiB of them on a CPU, most of the free memory on a GPU."""
    max_rows: int = 32
    """Completions that are computed together."""
    max_step_tokens: int | None = None
    """Tokens of one step: longer prompts are cut into chunks. By default 512 on a CPU, 4096 on a GPU."""
    growth_tokens: int = 256
    """How far ahead the growth of what runs is counted when another request is let in."""
    context_size: int | None = None
    """Most tokens of prompt and completion; by default the model's own."""
    is_overlapped: bool | None = None
    """Plan a step while the one before runs; by default on a GPU."""
    speculated_tokens: int = 0
    """Tokens guessed ahead from earlier text; 0 for none."""
    max_adapters: int = 0
    """LoRA adapters that may be loaded side by side."""
    max_adapter_rank: int = 64
    page_order_seed: int | None = None
    """Shuffles the order in which pages are handed out: for tests."""


def make_engine(model: Any, tokenizer: Any, settings: EngineSettings | None = None) -> Engine:
    """An engine over a loaded causal model and its fast tokenizer; `start` it. Raises INVALID_CONFIG."""
    settings = settings or EngineSettings()
    if next(model.parameters()).is_cuda:
        from omniflow_roles.engines.torch.fusions import fuse  # imports Triton, which wants a GPU

        fuse(model)
    adapters = None
    if settings.max_adapters:
        adapters = LoraAdapters(model, max_adapters=settings.max_adapters, max_rank=settings.max_adapter_rank)
    runner = ModelRunner(model, adapters.context if adapters is not None else None)
    kv = _make_kv(runner, settings)
    is_gpu = runner.device.type == "cuda"
    page_count = kv.padding_page
    order = None
    if settings.page_order_seed is not None:
        order = random.Random(settings.page_order_seed).sample(range(page_count), page_count)
    scheduler = Scheduler(
        LocalPages(page_count, settings.page_size, order),
        max_rows=settings.max_rows,
        max_step_tokens=settings.max_step_tokens or (4096 if is_gpu else 512),
        growth_tokens=settings.growth_tokens,
    )
    builder = BatchBuilder(settings.page_size)
    preparation = Preparation(tokenizer, runner, max_rows=settings.max_rows, adapters=adapters)
    return Engine(
        scheduler=scheduler,
        builder=builder,
        executor=_make_executor(runner, kv, builder, preparation, settings),
        preparation=preparation,
        options=EngineOptions(
            is_overlapped=is_gpu if settings.is_overlapped is None else settings.is_overlapped,
            speculated_tokens=settings.speculated_tokens,
            context_size=settings.context_size or runner.context_size,
        ),
    )


def _make_executor(
    runner: ModelRunner, kv: KvTensors, builder: BatchBuilder, preparation: Preparation, settings: EngineSettings
) -> Executor:
    if runner.device.type == "cuda":
        # Imports Triton, which wants a GPU.
        from omniflow_roles.engines.torch.cuda_executor import CudaExecutor

        return CudaExecutor(
            runner,
            kv,
            builder,
            preparation.counts,
            max_rows=settings.max_rows,
            max_draws=settings.max_rows * (1 + settings.speculated_tokens),
            max_pages=-(-(settings.context_size or runner.context_size) // settings.page_size),
        )
    return CpuExecutor(runner, kv, builder, preparation.counts)


def _make_kv(runner: ModelRunner, settings: EngineSettings) -> KvTensors:
    shapes = runner.layer_shapes()
    dtype = runner.dtype
    token_bytes = sum(shape.bytes_per_token(dtype) for shape in shapes)
    tokens = settings.pool_tokens
    if tokens is None:
        budget = _CPU_KV_BYTES
        if runner.device.type == "cuda":
            budget = int(torch.cuda.mem_get_info(runner.device)[0] * _GPU_SHARE)
        tokens = budget // token_bytes
    page_count = tokens // settings.page_size
    if page_count < 1:
        raise OmniFlowError(
            Reason.INVALID_CONFIG,
            f"the pool holds {tokens} tokens, which is not one page of {settings.page_size}; set pool_tokens",
        )
    return KvTensors.allocate(
        shapes, page_count=page_count, page_size=settings.page_size, dtype=dtype, device=runner.device
    )
