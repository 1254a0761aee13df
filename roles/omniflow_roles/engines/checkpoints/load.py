"""Loading a checkpoint for the engine: inspected first, so that what is wrong is said before gigabytes are read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_roles.engines.checkpoints.findings import FindingCode
from omniflow_roles.engines.checkpoints.gguf import cache_root, load_gguf
from omniflow_roles.engines.checkpoints.inspect import gguf_of, inspect_model
from omniflow_roles.engines.checkpoints.report import ModelKind, ModelReport
from omniflow_roles.engines.checkpoints.saved_model import load_saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A checkpoint in memory."""

    model: Any
    """A transformers.PreTrainedModel in eval mode, for which transformers ships no usable types."""
    tokenizer: PreTrainedTokenizerFast | None
    """None where the checkpoint has none: it takes token ids and embeddings only."""
    report: ModelReport


def load_checkpoint(path: Path, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> Loaded:
    """Loads a Hugging Face directory or a GGUF file, its floats as `dtype`: float32, bfloat16 or float16.

    A GGUF file is converted once, see `gguf`. Raises INVALID_CONFIG, with a violation for each error that was found, when
    the engine does not load it; an adapter is none to load by itself.
    """
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise OmniFlowError(
            Reason.INVALID_CONFIG, f"weights are loaded as float32, bfloat16 or float16, not as {dtype}"
        )
    report = inspect_model(path)
    refuse_unsupported(report)
    if report.kind is ModelKind.LORA:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{path} is a LoRA adapter: load its model, and the adapter onto it")
    if report.kind is ModelKind.GGUF:
        file = gguf_of(path)
        has_tokenizer = all(finding.code is not FindingCode.NO_TOKENIZER for finding in report.findings)
        name = re.sub(r"[^a-z0-9._-]+", "-", file.stem.lower())
        model, tokenizer = load_gguf(file, cache_root(), name=name, dtype=dtype, has_tokenizer=has_tokenizer)
    else:
        model, tokenizer = load_saved(path, dtype)
    return Loaded(model=model.to(device), tokenizer=tokenizer, report=report)


def refuse_unsupported(report: ModelReport) -> None:
    """Raises INVALID_CONFIG with the errors of a report, if it has any."""
    if report.is_supported:
        return
    first, *others = report.errors
    more = f" (and {len(others)} more errors)" if others else ""
    raise OmniFlowError(
        Reason.INVALID_CONFIG,
        f"{report.path} cannot be loaded: {first.where} {first.message}. {first.fix}{more}",
        violations=[
            Violation(field=error.where, description=f"{error.code}: {error.message}. {error.fix}")
            for error in report.errors
        ],
    )
